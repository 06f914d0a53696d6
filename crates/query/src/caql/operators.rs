//! `op:*`, the functions of the operators: the result is missing where one of the streams is.

use hist::Bracket;

use super::function_table::StreamUnitRule::{SameAsInputs, Unknown};
use super::function_table::{FunctionTable, QuantileRule};
use super::kernel::{Kernel, KernelInput};
use super::names::common_labels;
use super::points::{bool_to_number, map};
use super::signature::ArgumentType::Number;
use super::signature::DefaultValue::Absent;
use super::signature::InputArity;
use super::signature::InputKind::Numbers;
use super::stats::each_slot;
use crate::error::Result;
use crate::eval::binary::{bounds, negate_value};
use crate::promql::BinaryOp;
use crate::stream::Stream;
use crate::value::StepValue;

/// Adds the functions of the CAQL package `op`.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let negate = Kernel::without_margin(|mut call| {
        for value in call.inputs.iter_mut().flat_map(|stream| &mut stream.points).flatten() {
            *value = negate_value(value);
        }
        Ok(call.inputs)
    });
    table.add_map("op:neg", Numbers, negate).unit(SameAsInputs).quantiles(QuantileRule::Kept);
    let not = Kernel::without_margin(|call| Ok(map(call.inputs, |x| bool_to_number(x == 0.0))));
    table.add_map("op:not", Numbers, not);
    let arithmetic: [(&str, Kernel); 4] = [
        (
            "sum",
            Kernel::without_margin(|call| fold_rows(call, |row| row.iter().sum::<f64>() + 0.0)),
        ),
        (
            "sub",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |left, right| left - right))
            }),
        ),
        ("prod", Kernel::without_margin(|call| fold_rows(call, |row| row.iter().product()))),
        (
            "div",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| row[0] / row[1..].iter().product::<f64>())
            }),
        ),
    ];
    for (name, kernel) in arithmetic {
        let keeps_unit = matches!(name, "sum" | "sub");
        table
            .add_fold(format!("op:{name}"), Numbers, kernel)
            .optional("x", Number, Absent)
            .unit(if keeps_unit { SameAsInputs } else { Unknown })
            .quantiles(QuantileRule::KeptWithConstants);
    }
    let pairwise: [(&str, Kernel); 8] = [
        (
            "div2",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |l, r| pair("div", l, r)))
            }),
        ),
        (
            "mod",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |l, r| pair("mod", l, r)))
            }),
        ),
        (
            "exp",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |l, r| pair("exp", l, r)))
            }),
        ),
        (
            "eq",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |l, r| pair("eq", l, r)))
            }),
        ),
        (
            "geq",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |l, r| pair("geq", l, r)))
            }),
        ),
        (
            "gt",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |l, r| pair("gt", l, r)))
            }),
        ),
        (
            "leq",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |l, r| pair("leq", l, r)))
            }),
        ),
        (
            "lt",
            Kernel::without_margin(|call| {
                fold_rows(call, |row| fold(row, |l, r| pair("lt", l, r)))
            }),
        ),
    ];
    for (name, kernel) in pairwise {
        let row = table
            .add_fold(format!("op:{name}"), Numbers, kernel)
            .optional("x", Number, Absent)
            .inputs(InputArity::Exactly(2));
        if name == "div2" {
            row.quantiles(QuantileRule::KeptWithConstants);
        }
    }
    let or = Kernel::without_margin(|call| {
        fold_rows(call, |row| bool_to_number(row.iter().any(|number| *number != 0.0)))
    });
    table.add_fold("op:or", Numbers, or);
    let and = Kernel::without_margin(|call| {
        fold_rows(call, |row| bool_to_number(row.iter().all(|number| *number != 0.0)))
    });
    table.add_fold("op:and", Numbers, and);
    table.add_alias("op:add", "op:sum").deprecated("op:sum");
    table.add_removed("op:mul", "op:prod");
    table.add_removed("op:neq", "not (a == b)");
}

/// Result for two numbers; `op` and `each` share the operation names.
pub(super) fn pair(word: &str, left: f64, right: f64) -> f64 {
    match word {
        "add" => left + right,
        "sub" => left - right,
        "mul" => left * right,
        "div" => left / right,
        // For integers, the remainder of integer division.
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

fn fold_rows(call: KernelInput<'_>, of: fn(&[f64]) -> f64) -> Result<Vec<Stream>> {
    let KernelInput { name, inputs, arguments, steps, .. } = call;
    let mut points = Vec::with_capacity(steps.count);
    let mut present = Vec::with_capacity(inputs.len() + 1);
    let is_empty = inputs.is_empty();
    let x = arguments.number("x");
    each_slot(&inputs, x, steps.count, |row| {
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
    // Constants do not contribute labels.
    let described = inputs.iter().map(|stream| &stream.labels).filter(|labels| !labels.is_empty());
    Ok(vec![Stream::new(common_labels(described), points)])
}

/// Adds bounds to a result if values that it was computed from have bounds.
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
