//! Aggregations that pick streams of each group and leave them what they are: `topk`, `bottomk`, `limitk` and
//! `limit_ratio`.

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::histogram::Number;
use crate::promql::AggregateOp;
use crate::stream::Stream;
use crate::value::Value;

use super::fold::Findings;
use super::hash::offset;
use super::heap::Heap;
use super::{Aggregate, Group, Params, failed};

/// The least and greatest doubles that Prometheus takes for a number of series.
const K: (f64, f64) = (-9_223_372_036_854_775_808.0, 9_223_372_036_854_774_784.0);

impl Evaluation<'_> {
    pub(super) fn pick(
        &mut self,
        aggregate: &Aggregate,
        params: &Params,
        streams: Vec<Stream>,
        place: Place,
    ) -> Result<Vec<Stream>> {
        let is_ratio = aggregate.way == AggregateOp::LimitRatio;
        let (min, max) = (params.min(), params.max());
        let is_nothing = if is_ratio { min == 0.0 && max == 0.0 } else { max < 1.0 };
        if is_nothing {
            self.release(&streams);
            return Ok(Vec::new());
        }
        match is_ratio {
            true => self.check_ratio(params, min, max)?,
            false => check_k(params, min, max)?,
        }
        let count = streams.len();
        let mut findings = Findings::default();
        let mut results = Vec::new();
        for group in aggregate.grouping.groups(streams) {
            let held = group.members.iter().map(Stream::samples).sum();
            let picked = picked(aggregate.way, group, &params.numbers, count, &mut findings);
            self.budget.hold(picked.iter().map(Stream::samples).sum())?;
            self.budget.release(held);
            results.extend(picked);
        }
        findings.tell(aggregate.way, place, &mut self.notes);
        Ok(results)
    }

    fn check_ratio(&mut self, params: &Params, min: f64, max: f64) -> Result<()> {
        if params.has_nan() {
            return failed(params.place, "Ratio value is NaN".to_owned());
        }
        let mut warn = |ratio: f64, cap: f64| {
            let (ratio, cap) = (Number(ratio), Number(cap));
            let message = format!(
                "PromQL warning: ratio value should be between -1 and 1, got {ratio}, capping to {cap}"
            );
            self.notes.warn(params.place, message);
        };
        if max > 1.0 {
            warn(max, 1.0);
        }
        if min < -1.0 {
            warn(min, -1.0);
        }
        Ok(())
    }
}

fn check_k(params: &Params, min: f64, max: f64) -> Result<()> {
    if params.has_nan() {
        return failed(params.place, "Parameter value is NaN".to_owned());
    }
    if min <= K.0 {
        return failed(params.place, format!("Scalar value {} underflows int64", Number(min)));
    }
    if max >= K.1 {
        return failed(params.place, format!("Scalar value {} overflows int64", Number(max)));
    }
    Ok(())
}

/// The streams of a group that are picked at some step, in the order in which they first are.
fn picked(
    way: AggregateOp,
    mut group: Group,
    params: &[f64],
    count: usize,
    findings: &mut Findings,
) -> Vec<Stream> {
    let offsets: Vec<f64> = match way {
        AggregateOp::LimitRatio => group.members.iter().map(|m| offset(&m.labels)).collect(),
        _ => Vec::new(),
    };
    let mut results: Vec<Stream> = Vec::new();
    let mut result_of: Vec<Option<usize>> = vec![None; group.members.len()];
    for (step, param) in params.iter().enumerate() {
        let mut heap = Heap::new(way == AggregateOp::BottomK);
        // A fraction is cut off, and below 1 there is nothing to pick.
        let k = if *param < 1.0 { 0 } else { (*param as usize).min(count) };
        if way != AggregateOp::LimitRatio && k == 0 {
            continue;
        }
        for (at, member) in group.members.iter().enumerate() {
            let Some(value) = &member.points[step] else { continue };
            let number = value.number();
            let item = (number.unwrap_or(0.0), at);
            let is_full = heap.items.len() >= k;
            match way {
                AggregateOp::LimitRatio if is_within(*param, offsets[at]) => heap.push(item),
                AggregateOp::LimitRatio => {}
                AggregateOp::LimitK if is_full => break,
                AggregateOp::LimitK => heap.push(item),
                _ if number.is_none() => findings.ignored = true,
                _ if is_full => heap.offer(item),
                _ => heap.push(item),
            }
        }
        let items = match way {
            AggregateOp::LimitK | AggregateOp::LimitRatio => heap.items,
            _ => heap.best_first(),
        };
        for (_, at) in items {
            let member = &mut group.members[at];
            let result = *result_of[at].get_or_insert_with(|| {
                let nothing: Vec<Option<Value>> = vec![None; params.len()];
                let mut stream = Stream::new(member.labels.clone(), nothing);
                stream.drops_name = member.drops_name;
                results.push(stream);
                results.len() - 1
            });
            results[result].points[step] = member.points[step].take();
        }
    }
    results
}

/// Whether labels that fall there belong to a part; a negative one is what the positive one leaves.
fn is_within(ratio: f64, offset: f64) -> bool {
    match ratio.clamp(-1.0, 1.0) {
        0.0 => false,
        ratio if ratio > 0.0 => offset < ratio,
        ratio => offset >= 1.0 + ratio,
    }
}
