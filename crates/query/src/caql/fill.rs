//! `fill` and `fill:forward`: replace missing values.

use super::arguments::Arguments;
use super::function_table::{FunctionTable, QuantileRule, StreamUnitRule};
use super::kernel::{Kernel, KernelInput, SlotMargin};
use super::signature::ArgumentType::{Duration, Number};
use super::signature::DefaultValue::Absent;
use super::signature::InputKind::Numbers;
use crate::error::Result;
use crate::stream::{StepGrid, Stream};

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    table
        .add_map(
            "fill",
            Numbers,
            Kernel::without_margin(|call| Ok(super::elementwise::coalesce(call, "value"))),
        )
        .required("value", Number)
        .unit(StreamUnitRule::SameAsInputs)
        .quantiles(QuantileRule::Kept);
    let kernel = Kernel { margin, run: forward };
    table
        .add_map("fill:forward", Numbers, kernel)
        .option("limit", Duration, Absent)
        .unit(StreamUnitRule::SameAsInputs)
        .quantiles(QuantileRule::Kept);
}

/// Slots read before the range if no limit is set.
const LOOKBACK_SLOTS: usize = 60;

fn limit(arguments: &Arguments, steps: StepGrid) -> Option<usize> {
    let slots = arguments.duration("limit")? / steps.step;
    Some(usize::try_from(slots).unwrap_or(0))
}

fn margin(arguments: &Arguments, steps: StepGrid) -> SlotMargin {
    SlotMargin::before(limit(arguments, steps).unwrap_or(LOOKBACK_SLOTS))
}

fn forward(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, steps, slots_before: before, .. } = call;
    let limit = limit(arguments, steps).unwrap_or(usize::MAX);
    for stream in &mut inputs {
        let mut last = None;
        for (at, point) in stream.points.iter_mut().enumerate() {
            match (&point, &last) {
                (Some(value), _) => last = Some((at, value.clone())),
                (None, Some((held_at, value))) if at - held_at <= limit => {
                    *point = Some(value.clone());
                }
                (None, _) => {}
            }
        }
        stream.points.drain(..before);
    }
    Ok(inputs)
}
