//! `each:*`: elementwise operation with a constant.

use super::function_table::StreamUnitRule::{SameAsInputs, Unknown};
use super::function_table::{FunctionTable, QuantileRule};
use super::kernel::{Kernel, KernelInput};
use super::operators::{pair, with_bounds};
use super::points::point;
use super::signature::ArgumentType::Number;
use super::signature::InputKind::Numbers;
use crate::error::Result;
use crate::stream::Stream;
use crate::value::StepValue;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let with_number: [(&str, Kernel); 11] = [
        ("add", Kernel::without_margin(|call| map_with_number(call, "add"))),
        ("sub", Kernel::without_margin(|call| map_with_number(call, "sub"))),
        ("mul", Kernel::without_margin(|call| map_with_number(call, "mul"))),
        ("div", Kernel::without_margin(|call| map_with_number(call, "div"))),
        ("mod", Kernel::without_margin(|call| map_with_number(call, "mod"))),
        ("exp", Kernel::without_margin(|call| map_with_number(call, "exp"))),
        ("eq", Kernel::without_margin(|call| map_with_number(call, "eq"))),
        ("geq", Kernel::without_margin(|call| map_with_number(call, "geq"))),
        ("gt", Kernel::without_margin(|call| map_with_number(call, "gt"))),
        ("leq", Kernel::without_margin(|call| map_with_number(call, "leq"))),
        ("lt", Kernel::without_margin(|call| map_with_number(call, "lt"))),
    ];
    for (name, kernel) in with_number {
        let keeps_unit = matches!(name, "add" | "sub");
        let is_scale = matches!(name, "add" | "sub" | "mul" | "div");
        table
            .add_map(format!("each:{name}"), Numbers, kernel)
            .required("x", Number)
            .unit(if keeps_unit { SameAsInputs } else { Unknown })
            .quantiles(if is_scale { QuantileRule::Kept } else { QuantileRule::NotQuantile });
    }
    table
        .add_map("each:coalesce", Numbers, Kernel::without_margin(|call| Ok(coalesce(call, "x"))))
        .required("x", Number)
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table.add_removed("each:sum", "each:add");
    table.add_removed("each:prod", "each:mul");
    table.add_removed("each:neq", "each:eq(x) | op:not()");
}

fn map_with_number(call: KernelInput<'_>, word: &str) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let x = arguments.number("x").unwrap_or(f64::NAN);
    for point in inputs.iter_mut().flat_map(|stream| &mut stream.points) {
        let Some(value) = point.take() else { continue };
        let number = value.number().map(|number| pair(word, number, x));
        let number = number.filter(|number| number.is_finite());
        *point = number.map(|number| {
            with_bounds(word, [&value].into_iter(), Some(x), number)
                .unwrap_or(StepValue::Number(number))
        });
    }
    Ok(inputs)
}

/// Replaces missing values with an argument.
pub(super) fn coalesce(call: KernelInput<'_>, argument: &str) -> Vec<Stream> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let instead = point(arguments.number(argument));
    for target in inputs.iter_mut().flat_map(|stream| &mut stream.points) {
        if target.is_none() {
            *target = instead.clone();
        }
    }
    inputs
}
