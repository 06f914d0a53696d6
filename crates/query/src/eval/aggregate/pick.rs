//! Aggregations that select streams of each group unchanged: `topk`, `bottomk`, `limitk` and
//! `limit_ratio`.

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::histogram::GoNumber;
use crate::plan::Aggregation;
use crate::promql::AggregateOp;
use crate::stream::Stream;
use crate::value::StepValue;

use super::fold::FoldAnnotations;
use super::hash::label_offset;
use super::heap::TopKHeap;
use super::{AggregateGroup, AggregateParam, execution_error, group_streams};

/// Range of doubles that Prometheus accepts as a number of series.
const K_RANGE: (f64, f64) = (-9_223_372_036_854_775_808.0, 9_223_372_036_854_774_784.0);

impl Evaluation<'_> {
    pub(super) fn pick(
        &mut self,
        aggregate: &Aggregation,
        params: &AggregateParam,
        streams: Vec<Stream>,
        span: SourceSpan,
    ) -> Result<Vec<Stream>> {
        let is_ratio = aggregate.op == AggregateOp::LimitRatio;
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
        let mut findings = FoldAnnotations::default();
        let mut results = Vec::new();
        for group in group_streams(&aggregate.grouping, streams) {
            let sample_count = group.members.iter().map(Stream::samples).sum();
            let selected = pick_streams(aggregate.op, group, &params.numbers, count, &mut findings);
            self.budget.charge_samples(selected.iter().map(Stream::samples).sum())?;
            self.budget.release_samples(sample_count);
            results.extend(selected);
        }
        findings.emit(aggregate.op, span, &mut self.warnings);
        Ok(results)
    }

    fn check_ratio(&mut self, params: &AggregateParam, min: f64, max: f64) -> Result<()> {
        if params.has_nan() {
            return execution_error(params.span, "Ratio value is NaN".to_owned());
        }
        let mut warn = |ratio: f64, cap: f64| {
            let (ratio, cap) = (GoNumber(ratio), GoNumber(cap));
            let message = format!(
                "PromQL warning: ratio value should be between -1 and 1, got {ratio}, capping to \
                 {cap}"
            );
            self.warnings.warn(params.span, message);
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

fn check_k(params: &AggregateParam, min: f64, max: f64) -> Result<()> {
    if params.has_nan() {
        return execution_error(params.span, "Parameter value is NaN".to_owned());
    }
    if min <= K_RANGE.0 {
        return execution_error(
            params.span,
            format!("Scalar value {} underflows int64", GoNumber(min)),
        );
    }
    if max >= K_RANGE.1 {
        return execution_error(
            params.span,
            format!("Scalar value {} overflows int64", GoNumber(max)),
        );
    }
    Ok(())
}

/// Streams of a group selected at any step, in the order of their first selection.
fn pick_streams(
    op: AggregateOp,
    mut group: AggregateGroup,
    params: &[f64],
    count: usize,
    findings: &mut FoldAnnotations,
) -> Vec<Stream> {
    let offsets: Vec<f64> = match op {
        AggregateOp::LimitRatio => group.members.iter().map(|m| label_offset(&m.labels)).collect(),
        _ => Vec::new(),
    };
    let mut results: Vec<Stream> = Vec::new();
    let mut result_of: Vec<Option<usize>> = vec![None; group.members.len()];
    for (step, param) in params.iter().enumerate() {
        let mut heap = TopKHeap::new(op == AggregateOp::BottomK);
        // `k` is truncated; below 1, nothing is selected.
        let k = if *param < 1.0 { 0 } else { (*param as usize).min(count) };
        if op != AggregateOp::LimitRatio && k == 0 {
            continue;
        }
        for (at, member) in group.members.iter().enumerate() {
            let Some(value) = &member.points[step] else { continue };
            let number = value.number();
            let item = (number.unwrap_or(0.0), at);
            let is_full = heap.items.len() >= k;
            match op {
                AggregateOp::LimitRatio if is_in_ratio(*param, offsets[at]) => heap.push(item),
                AggregateOp::LimitRatio => {}
                AggregateOp::LimitK if is_full => break,
                AggregateOp::LimitK => heap.push(item),
                _ if number.is_none() => findings.ignored_histogram = true,
                _ if is_full => heap.offer(item),
                _ => heap.push(item),
            }
        }
        let items = match op {
            AggregateOp::LimitK | AggregateOp::LimitRatio => heap.items,
            _ => heap.best_first(),
        };
        for (_, at) in items {
            let member = &mut group.members[at];
            let result = *result_of[at].get_or_insert_with(|| {
                let nothing: Vec<Option<StepValue>> = vec![None; params.len()];
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

/// Whether a hash is selected by a ratio; a negative ratio selects the complement of the positive
/// one.
fn is_in_ratio(ratio: f64, offset: f64) -> bool {
    match ratio.clamp(-1.0, 1.0) {
        0.0 => false,
        ratio if ratio > 0.0 => offset < ratio,
        ratio => offset >= 1.0 + ratio,
    }
}
