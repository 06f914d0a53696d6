//! Functions without a package: `pass`, `coalesce`, `count`, `if`, `is_missing`, `normalize`,
//! `wait`.

use super::function_table::StreamUnitRule::{Named, SameAsInputs};
use super::function_table::{CaqlKernel, FunctionTable, QuantileRule};
use super::kernel::{Kernel, KernelInput, SlotMargin};
use super::names::common_labels;
use super::points::{bool_to_number, number, numbers, point, stream};
use super::signature::ArgumentType::{Duration, Number};
use super::signature::InputKind::{Either, Numbers};
use super::signature::{DefaultValue, InputArity, OutputKind, OutputShape};
use crate::error::Result;
use crate::labels::LabelSet;
use crate::stream::{StepGrid, Stream};

use super::arguments::Arguments;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    table
        .add_map("pass", Either, Kernel::without_margin(|call| Ok(call.inputs)))
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table
        .add_fold("coalesce", Numbers, Kernel::without_margin(coalesce))
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table
        .add_fold("count", Either, Kernel::without_margin(super::stats::count_present))
        .output(OutputKind::Numbers)
        .unit(Named("streams"));
    table
        .add_map("delay", Either, CaqlKernel::Delay)
        .variadic("delay", Duration)
        .shape(OutputShape::EachPerArgument)
        .quantiles(QuantileRule::Kept);
    table.add_fold("if", Numbers, Kernel::without_margin(choose)).inputs(InputArity::Exactly(3));
    table
        .add_map("is_missing", Either, Kernel::without_margin(is_missing))
        .output(OutputKind::Numbers);
    table
        .add_map("normalize", Numbers, Kernel::without_margin(normalize))
        .option("scale", Number, DefaultValue::Number(1.0))
        .option("default", Number, DefaultValue::Number(0.5));
    let wait = Kernel {
        margin: |arguments, steps| SlotMargin::before(required_slots(arguments, steps) - 1),
        run: wait,
    };
    table.add_map("wait", Numbers, wait).required("duration", Duration);
}

fn labels_of(inputs: &[Stream]) -> LabelSet {
    common_labels(inputs.iter().map(|stream| &stream.labels))
}

fn coalesce(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let first = |at| call.inputs.iter().find_map(|stream| number(stream, at));
    Ok(vec![stream(labels_of(&call.inputs), (0..call.steps.count).map(first))])
}

/// The result is missing where the condition is missing.
fn choose(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let [condition, then, otherwise] = &call.inputs[..] else { return Ok(call.inputs) };
    let chosen = |at| match number(condition, at)? {
        0.0 => number(otherwise, at),
        _ => number(then, at),
    };
    let labels =
        common_labels([&then.labels, &otherwise.labels].into_iter().filter(|of| !of.is_empty()));
    Ok(vec![stream(labels, (0..call.steps.count).map(chosen))])
}

fn is_missing(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    for slot in call.inputs.iter_mut().flat_map(|stream| &mut stream.points) {
        *slot = point(Some(bool_to_number(slot.is_none())));
    }
    Ok(call.inputs)
}

/// Scales each stream to the range from 0 to `scale`.
fn normalize(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let scale = arguments.number("scale").unwrap_or(1.0);
    let default = arguments.number("default");
    for stream in &mut inputs {
        let least = numbers(stream).flatten().fold(f64::INFINITY, f64::min);
        let width = numbers(stream).flatten().fold(f64::NEG_INFINITY, f64::max) - least;
        let share = |number: f64| (number - least) / width * scale;
        let share = |number: Option<f64>| number.filter(|_| width > 0.0).map(share).or(default);
        stream.points = numbers(stream).map(|number| point(share(number))).collect();
    }
    Ok(inputs)
}

/// Number of slots for which the condition must hold.
fn required_slots(arguments: &Arguments, steps: StepGrid) -> usize {
    let slots = arguments.duration("duration").unwrap_or(0) / steps.step;
    usize::try_from(slots).unwrap_or(1).max(1)
}

fn wait(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, steps, slots_before: before, .. } = call;
    let needed = required_slots(arguments, steps);
    for stream in &mut inputs {
        let mut held = 0;
        let waited = numbers(stream).map(|number| {
            held = if number.is_some_and(|number| number != 0.0) { held + 1 } else { 0 };
            point(Some(bool_to_number(held >= needed)))
        });
        stream.points = waited.skip(before).collect();
    }
    Ok(inputs)
}
