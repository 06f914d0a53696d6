//! `top`, `bottom` and `sort:*`: sort streams by a statistic over the whole range.

use super::function_table::{FunctionTable, POSITION, QuantileRule, SWITCH, StreamUnitRule};
use super::kernel::{Kernel, KernelInput};
use super::names::{canonical, legend};
use super::points::numbers;
use super::signature::ArgumentType::OneOf;
use super::signature::DefaultValue;
use super::signature::InputKind::{Either, Numbers};
use crate::error::Result;
use crate::stream::Stream;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    for name in ["top", "bottom"] {
        table
            .add_choice(name, Numbers, Kernel::without_margin(pick_streams))
            .required("k", POSITION)
            .option("method", OneOf(&["mean", "max", "min"]), DefaultValue::Text("mean"))
            .needs_whole_range()
            .unit(StreamUnitRule::SameAsInputs)
            .quantiles(QuantileRule::Kept);
    }
    let by_legend = Kernel::without_margin(|call| by_text(call, |stream| legend(&stream.labels)));
    let by_name = Kernel::without_margin(|call| by_text(call, |stream| canonical(&stream.labels)));
    for (name, kernel) in [("sort:label", by_legend), ("sort:name", by_name)] {
        table
            .add_choice(name, Either, kernel)
            .option("reverse", SWITCH, DefaultValue::Number(0.0))
            .unit(StreamUnitRule::SameAsInputs)
            .quantiles(QuantileRule::Kept);
    }
    for name in ["sort:mean", "sort:min", "sort:max"] {
        table
            .add_choice(name, Numbers, Kernel::without_margin(by_number))
            .option("reverse", SWITCH, DefaultValue::Number(0.0))
            .needs_whole_range()
            .unit(StreamUnitRule::SameAsInputs)
            .quantiles(QuantileRule::Kept);
    }
}

pub(super) fn mean(stream: &Stream) -> Option<f64> {
    let present = numbers(stream).flatten();
    let (sum, count) = present.fold((0.0, 0.0), |held, number| (held.0 + number, held.1 + 1.0));
    (count > 0.0).then(|| sum / count)
}

fn statistic(stream: &Stream, method: &str) -> Option<f64> {
    let present = numbers(stream).flatten();
    match method {
        "min" => present.reduce(f64::min),
        "max" => present.reduce(f64::max),
        _ => mean(stream),
    }
}

/// Sorts by a statistic; streams without values come last.
fn sort_streams(inputs: Vec<Stream>, method: &str, is_rising: bool) -> Vec<Stream> {
    let ranked = inputs.into_iter().map(|stream| (statistic(&stream, method), stream));
    let mut ranked: Vec<(Option<f64>, Stream)> = ranked.collect();
    model::sort::by(&mut ranked, |(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) if is_rising => a.total_cmp(b),
        (Some(a), Some(b)) => b.total_cmp(a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    ranked.into_iter().map(|(_, stream)| stream).collect()
}

fn pick_streams(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let method = call.arguments.text("method").unwrap_or("mean");
    let mut streams = sort_streams(call.inputs, method, call.name == "bottom");
    streams.truncate(call.arguments.number("k").unwrap_or(1.0) as usize);
    Ok(streams)
}

fn is_reverse(call: &KernelInput<'_>) -> bool {
    call.arguments.number("reverse").is_some_and(|number| number != 0.0)
}

fn by_number(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let is_rising = is_reverse(&call);
    let method = call.name.strip_prefix("sort:").unwrap_or_default();
    Ok(sort_streams(call.inputs, method, is_rising))
}

fn by_text(mut call: KernelInput<'_>, text: fn(&Stream) -> String) -> Result<Vec<Stream>> {
    call.inputs.sort_by_cached_key(text);
    if is_reverse(&call) {
        call.inputs.reverse();
    }
    Ok(call.inputs)
}
