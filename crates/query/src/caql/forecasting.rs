//! `forecasting:*`: forecast for some time after each slot.
//!
//! Lines are fitted to the last numbers (least squares, or the first and last one); smoothing
//! processes one number after the other. Smoothing depends on all previous numbers: numbers before
//! the range of the query are read until the weight of older ones is below 10⁻⁴, and for
//! `holt_winters` three seasons are read.

mod line;
mod smooth;
#[cfg(test)]
mod tests;

use super::arguments::Arguments;
use super::function_table::StreamUnitRule::SameAsInputs;
use super::function_table::{DAY_NS, FunctionTable, MINUTE_NS, SHARE};
use super::kernel::Kernel;
use super::signature::ArgumentType::{self, DurationOrMinutes, OneOf};
use super::signature::DefaultValue;
use super::signature::InputKind::Numbers;
use crate::stream::StepGrid;

pub(super) use smooth::{Smoothing, slots_per_season};

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    const FILL: ArgumentType = ArgumentType::IntegerWithin(1.0, 2.0);
    const ONE: DefaultValue = DefaultValue::Number(1.0);
    const ZERO: DefaultValue = DefaultValue::Duration(0);
    let regression = Kernel { margin: line::margin, run: line::regression };
    let slope = Kernel { margin: line::margin, run: line::slope };
    let smoothing = Kernel { margin: smooth::margin, run: smooth::smooth };
    table
        .add_map("forecasting:auto", Numbers, regression)
        .required("forecast_duration", DurationOrMinutes)
        .unit(SameAsInputs);
    for (name, kernel) in [("regression", regression), ("slope", slope)] {
        table
            .add_map(format!("forecasting:{name}"), Numbers, kernel)
            .required("forecast_duration", DurationOrMinutes)
            .optional("model_duration", DurationOrMinutes, DefaultValue::Duration(10 * MINUTE_NS))
            .option("step", DurationOrMinutes, DefaultValue::Duration(MINUTE_NS))
            .option("model", OneOf(&["linear", "exp"]), DefaultValue::Text("linear"))
            .unit(SameAsInputs);
    }
    table
        .add_map("forecasting:ewma", Numbers, smoothing)
        .required("alpha", SHARE)
        .option("fill", FILL, ONE)
        .unit(SameAsInputs);
    table
        .add_map("forecasting:dewma", Numbers, smoothing)
        .required("alpha", SHARE)
        .required("beta", SHARE)
        .option("fill", FILL, ONE)
        .option("forecast_duration", DurationOrMinutes, ZERO)
        .unit(SameAsInputs);
    table
        .add_map("forecasting:holt_winters", Numbers, smoothing)
        .required("alpha", SHARE)
        .required("beta", SHARE)
        .required("gamma", SHARE)
        .option("forecast_duration", DurationOrMinutes, ZERO)
        .option("fill", FILL, ONE)
        .option("period", DurationOrMinutes, DefaultValue::Duration(DAY_NS))
        .unit(SameAsInputs);
}

/// Duration in slots, as a fraction.
fn slots(arguments: &Arguments, name: &str, steps: StepGrid) -> Option<f64> {
    arguments.duration(name).map(|duration| duration as f64 / steps.step as f64)
}
