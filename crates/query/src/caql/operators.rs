//! `op:*`, which operators stand for: where one of the streams has no value, the result has none.

use hist::Bracket;

use super::kernel::{Kernel, KernelInput};
use super::names::common_labels;
use super::points::{bool_to_number, map};
use super::stats::rows;
use crate::error::Result;
use crate::eval::binary::{bounds, negate_value};
use crate::promql::BinaryOp;
use crate::stream::Stream;
use crate::value::StepValue;

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    let work: fn(KernelInput<'_>) -> Result<Vec<Stream>> = match name.strip_prefix("op:")? {
        "neg" => |mut work| {
            for value in work.inputs.iter_mut().flat_map(|stream| &mut stream.points).flatten() {
                *value = negate_value(value);
            }
            Ok(work.inputs)
        },
        "not" => |work| Ok(map(work.inputs, |number| bool_to_number(number == 0.0))),
        "sum" => |work| all(work, |row| row.iter().sum::<f64>() + 0.0),
        "sub" => |work| all(work, |row| fold(row, |left, right| left - right)),
        "prod" => |work| all(work, |row| row.iter().product()),
        "div" => |work| all(work, |row| row[0] / row[1..].iter().product::<f64>()),
        "or" => |work| all(work, |row| bool_to_number(row.iter().any(|number| *number != 0.0))),
        "and" => |work| all(work, |row| bool_to_number(row.iter().all(|number| *number != 0.0))),
        "div2" => |work| all(work, |row| fold(row, |left, right| pair("div", left, right))),
        "mod" => |work| all(work, |row| fold(row, |left, right| pair("mod", left, right))),
        "exp" => |work| all(work, |row| fold(row, |left, right| pair("exp", left, right))),
        "eq" => |work| all(work, |row| fold(row, |left, right| pair("eq", left, right))),
        "geq" => |work| all(work, |row| fold(row, |left, right| pair("geq", left, right))),
        "gt" => |work| all(work, |row| fold(row, |left, right| pair("gt", left, right))),
        "leq" => |work| all(work, |row| fold(row, |left, right| pair("leq", left, right))),
        "lt" => |work| all(work, |row| fold(row, |left, right| pair("lt", left, right))),
        _ => return None,
    };
    Some(Kernel::slotwise(work))
}

/// Of two numbers, by the word for it, which `op` and `each` share.
pub(super) fn pair(word: &str, left: f64, right: f64) -> f64 {
    match word {
        "add" => left + right,
        "sub" => left - right,
        "mul" => left * right,
        "div" => left / right,
        // Of whole numbers the remainder of whole division.
        "mod" => left % right,
        "exp" => left.powf(right),
        word => bool_to_number(compare(word, left, right)),
    }
}

/// Whether a comparison holds.
pub(super) fn compare(condition: &str, left: f64, right: f64) -> bool {
    match condition {
        "eq" => left == right,
        "neq" => left != right,
        "geq" => left >= right,
        "gt" => left > right,
        "leq" => left <= right,
        _ => left < right,
    }
}

fn fold(row: &[f64], of: fn(f64, f64) -> f64) -> f64 {
    row[1..].iter().fold(row[0], |left, right| of(left, *right))
}

fn all(work: KernelInput<'_>, of: fn(&[f64]) -> f64) -> Result<Vec<Stream>> {
    let KernelInput { name, inputs, arguments, steps, .. } = work;
    let mut points = Vec::with_capacity(steps.count);
    let mut present = Vec::with_capacity(inputs.len() + 1);
    let is_empty = inputs.is_empty();
    let x = arguments.number("x");
    rows(&inputs, x, steps.count, |row| {
        present.clear();
        present.extend(row.iter().flatten().copied());
        let is_whole = present.len() == row.len() && !is_empty;
        let number = is_whole.then(|| of(&present)).filter(|number| number.is_finite());
        let value = number.map(|number| {
            let values = inputs.iter().filter_map(|stream| stream.points[points.len()].as_ref());
            with_bounds(name, values, x, number).unwrap_or(StepValue::Number(number))
        });
        points.push(value);
    });
    // Constants say nothing about what they are put together with.
    let described = inputs.iter().map(|stream| &stream.labels).filter(|labels| !labels.is_empty());
    Ok(vec![Stream::new(common_labels(described), points)])
}

/// A result with its bounds, where values that it is made of have some.
pub(super) fn with_bounds<'a>(
    name: &str,
    mut values: impl Iterator<Item = &'a StepValue> + Clone,
    x: Option<f64>,
    result: f64,
) -> Option<StepValue> {
    if !values.clone().any(|value| matches!(value, StepValue::Bracket(_))) {
        return None;
    }
    let operator = match name.rsplit(':').next()? {
        "sum" | "add" => BinaryOp::Add,
        "sub" => BinaryOp::Subtract,
        "prod" | "mul" => BinaryOp::Multiply,
        "div" | "div2" => BinaryOp::Divide,
        _ => return None,
    };
    let first = values.next()?.bracket()?;
    let mut rest = values.map(StepValue::bracket).chain(x.map(|x| Some(Bracket::exact(x))));
    let all = rest.try_fold(first, |left, right| {
        let right = right?;
        let estimate = match operator {
            BinaryOp::Add => left.estimate + right.estimate,
            BinaryOp::Subtract => left.estimate - right.estimate,
            BinaryOp::Multiply => left.estimate * right.estimate,
            _ => left.estimate / right.estimate,
        };
        bounds::result_bounds(operator, left, right, estimate)
    });
    let around = bounds::bracket_around(all?.lower, result, all?.upper)?;
    Some(StepValue::from_bracket(around))
}
