//! `math:*`: functions of each number. An undefined result is missing.

use std::f64::consts::{E, PI};

use super::function_table::StreamUnitRule::SameAsInputs;
use super::function_table::{FunctionTable, QuantileRule};
use super::kernel::{Kernel, KernelInput};
use super::points::{map, stream};
use super::signature::ArgumentType::Number;
use super::signature::InputKind::Numbers;
use super::signature::{DefaultValue, OutputKind};
use crate::error::Result;
use crate::labels::LabelSet;
use crate::stream::Stream;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    for (name, kernel) in [
        ("pi", Kernel::without_margin(|call| constant(call, PI))),
        ("e", Kernel::without_margin(|call| constant(call, E))),
    ] {
        table.add_source(format!("math:{name}"), OutputKind::Numbers, kernel.into());
    }
    // Functions that only round a number or take its absolute value keep its unit.
    let with_unit: [(&str, Kernel); 4] = [
        ("abs", Kernel::without_margin(|call| plain(call, f64::abs))),
        ("ceil", Kernel::without_margin(|call| plain(call, f64::ceil))),
        ("floor", Kernel::without_margin(|call| plain(call, f64::floor))),
        ("round", Kernel::without_margin(|call| plain(call, |x| nearest(x, 1.0)))),
    ];
    for (name, kernel) in with_unit {
        let row = table.add_map(format!("math:{name}"), Numbers, kernel);
        row.unit(SameAsInputs).quantiles(QuantileRule::Kept);
    }
    let plain_numbers: [(&str, Kernel); 22] = [
        (
            "sgn",
            Kernel::without_margin(|call| plain(call, |x| if x == 0.0 { 0.0 } else { x.signum() })),
        ),
        ("sqrt", Kernel::without_margin(|call| plain(call, f64::sqrt))),
        ("exp", Kernel::without_margin(|call| plain(call, f64::exp))),
        ("ln", Kernel::without_margin(|call| plain(call, f64::ln))),
        ("log2", Kernel::without_margin(|call| plain(call, f64::log2))),
        ("log10", Kernel::without_margin(|call| plain(call, f64::log10))),
        ("deg", Kernel::without_margin(|call| plain(call, f64::to_degrees))),
        ("rad", Kernel::without_margin(|call| plain(call, f64::to_radians))),
        ("sin", Kernel::without_margin(|call| plain(call, f64::sin))),
        ("cos", Kernel::without_margin(|call| plain(call, f64::cos))),
        ("tan", Kernel::without_margin(|call| plain(call, f64::tan))),
        ("asin", Kernel::without_margin(|call| plain(call, f64::asin))),
        ("acos", Kernel::without_margin(|call| plain(call, f64::acos))),
        ("atan", Kernel::without_margin(|call| plain(call, f64::atan))),
        ("sinh", Kernel::without_margin(|call| plain(call, f64::sinh))),
        ("cosh", Kernel::without_margin(|call| plain(call, f64::cosh))),
        ("tanh", Kernel::without_margin(|call| plain(call, f64::tanh))),
        ("asinh", Kernel::without_margin(|call| plain(call, f64::asinh))),
        ("acosh", Kernel::without_margin(|call| plain(call, f64::acosh))),
        ("atanh", Kernel::without_margin(|call| plain(call, f64::atanh))),
        ("logit", Kernel::without_margin(|call| plain(call, |x| (x / (1.0 - x)).ln()))),
        ("sigmoid", Kernel::without_margin(|call| plain(call, |x| 1.0 / (1.0 + (-x).exp())))),
    ];
    for (name, kernel) in plain_numbers {
        table.add_map(format!("math:{name}"), Numbers, kernel);
    }
    table
        .add_map(
            "math:log",
            Numbers,
            Kernel::without_margin(|call| map_with_argument(call, "base", |x, base| x.log(base))),
        )
        .optional("base", Number, DefaultValue::Number(10.0));
    table
        .add_map(
            "math:pow",
            Numbers,
            Kernel::without_margin(|call| map_with_argument(call, "exponent", f64::powf)),
        )
        .required("exponent", Number);
    table
        .add_map(
            "math:roundx",
            Numbers,
            Kernel::without_margin(|call| map_with_argument(call, "step", nearest)),
        )
        .optional("step", Number, DefaultValue::Number(1.0))
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table.add_removed("math:neg", "op:neg");
}

/// Nearest multiple; the larger one on a tie.
fn nearest(x: f64, step: f64) -> f64 {
    (x / step + 0.5).floor() * step
}

fn plain(call: KernelInput<'_>, f: fn(f64) -> f64) -> Result<Vec<Stream>> {
    Ok(map(call.inputs, f))
}

fn map_with_argument(
    call: KernelInput<'_>,
    argument: &str,
    f: fn(f64, f64) -> f64,
) -> Result<Vec<Stream>> {
    let argument_value = call.arguments.number(argument).unwrap_or(f64::NAN);
    Ok(map(call.inputs, |x| f(x, argument_value)))
}

fn constant(call: KernelInput<'_>, number: f64) -> Result<Vec<Stream>> {
    Ok(vec![stream(LabelSet::default(), vec![Some(number); call.steps.count])])
}
