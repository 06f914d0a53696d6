//! `sort` and related functions: order of an instant vector. Range results are always sorted by
//! labels.

use std::cmp::Ordering;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::plan::PlanNode;
use crate::stream::Stream;
use crate::value::StepValue;

use super::{FunctionCall, text_argument};

pub(crate) fn by_value(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    sort_by_value(evaluation, call, |a, b| a.total_cmp(&b))
}

pub(crate) fn by_value_desc(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    sort_by_value(evaluation, call, |a, b| b.total_cmp(&a))
}

pub(crate) fn by_label(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    sort_by_label(evaluation, call, |order| order)
}

pub(crate) fn by_label_desc(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    sort_by_label(evaluation, call, Ordering::reverse)
}

/// Distributions have no order and are removed. NaN is last in either direction.
fn sort_by_value(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    order: fn(f64, f64) -> Ordering,
) -> Result<Vec<Stream>> {
    let mut streams = evaluation.streams(&call.args[0], call.steps)?;
    let sample_count = super::samples(&streams);
    for point in streams.iter_mut().flat_map(|stream| &mut stream.points) {
        point.take_if(|value| value.is_distribution());
    }
    evaluation.replace_streams(sample_count, &mut streams)?;
    if is_worthwhile(evaluation, call) {
        // 0 and -0 are equal.
        let number = |stream: &Stream| {
            stream.points[0].as_ref().and_then(StepValue::number).map(|x| x + 0.0)
        };
        model::sort::by(&mut streams, |a, b| {
            let (a, b) = (number(a).unwrap_or(f64::NAN), number(b).unwrap_or(f64::NAN));
            match (a.is_nan(), b.is_nan()) {
                (false, false) => order(a, b),
                (a, b) => a.cmp(&b),
            }
        });
    }
    Ok(streams)
}

fn sort_by_label(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    direction: fn(Ordering) -> Ordering,
) -> Result<Vec<Stream>> {
    let mut streams = evaluation.streams(&call.args[0], call.steps)?;
    if is_worthwhile(evaluation, call) {
        let labels: Vec<&str> =
            call.args[1..].iter().map(|node: &PlanNode| text_argument(node)).collect();
        model::sort::by(&mut streams, |a, b| {
            let value = |stream: &Stream, label: &str| stream.labels.get(label).to_owned();
            let by = |label: &&str| natural_order(&value(a, label), &value(b, label));
            let order = labels.iter().map(by).find(|order| order.is_ne());
            direction(order.unwrap_or_else(|| a.labels.cmp(&b.labels)))
        });
    }
    Ok(streams)
}

fn is_worthwhile(evaluation: &mut Evaluation<'_>, call: &FunctionCall<'_>) -> bool {
    let is_instant = call.steps.is_instant();
    // As in Prometheus: decided by the ends of the range, not by the number of steps.
    if !is_instant || evaluation.is_range_of_one_step {
        let message = "PromQL warning: sort is ineffective for range queries since results are \
                       always ordered by labels";
        evaluation.warnings.warn(call.span, message);
    }
    is_instant
}

/// Natural order: runs of digits compare as numbers, so `a9` comes before `a10`.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let (first, second) = (take_run(&mut left), take_run(&mut right));
        let are_numbers =
            [first, second].iter().all(|run| run.starts_with(|c: char| c.is_ascii_digit()));
        let order = match are_numbers {
            true => {
                let [first, second] = [first, second].map(|digits| digits.trim_start_matches('0'));
                first.len().cmp(&second.len()).then_with(|| first.cmp(second))
            }
            false => first.cmp(second),
        };
        if order.is_ne() {
            return order;
        }
    }
    // The shorter one first; `01` and `1` are equal numbers but different strings.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// Splits off the leading digits, or the leading non-digits.
fn take_run<'a>(text: &mut &'a str) -> &'a str {
    let is_digit = |c: char| c.is_ascii_digit();
    let is_number = text.starts_with(is_digit);
    let end = text.find(|c| is_digit(c) != is_number).unwrap_or(text.len());
    let (run, rest) = text.split_at(end);
    *text = rest;
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sorted: &[&str]) {
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(natural_order(a, b), at.cmp(&other), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn numbers_within_texts() {
        check(&["", "1", "2", "10", "a", "a1", "a01b", "a2", "a10", "a10b", "b"]);
        check(&["9", "10", "18446744073709551616", "99999999999999999999"]);
        check(&["01", "1", "1a", "02"]);
    }
}
