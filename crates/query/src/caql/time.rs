//! `time:*`: timestamp of a step, and its calendar fields.

use super::function_table::{FunctionTable, StreamUnitRule};
use super::kernel::{Kernel, KernelInput};
use super::points::stream;
use super::signature::ArgumentType::{OneOf, Text};
use super::signature::OutputKind;
use super::zone::Zone;
use crate::error::{Error, Result};
use crate::labels::LabelSet;
use crate::stream::{Stream, seconds};

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let epoch = Kernel::without_margin(epoch);
    table
        .add_source("time:epoch", OutputKind::Numbers, epoch.into())
        .unit(StreamUnitRule::Named("s"));
    table
        .add_source("time:tz", OutputKind::Numbers, Kernel::without_margin(calendar_field).into())
        .required("timezone", Text)
        .required("field", OneOf(&FIELDS));
}

const FIELDS: [&str; 8] =
    ["second", "minute", "hour", "monthday", "month", "weekday", "yearday", "year"];

fn epoch(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    Ok(vec![stream(LabelSet::default(), call.steps.times().map(|time| Some(seconds(time))))])
}

fn calendar_field(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let zone = Zone::find(call.arguments.text("timezone").unwrap_or_default())
        .map_err(|message| Error::Parse { span: call.span, message })?;
    let field = call.arguments.text("field").unwrap_or_default();
    let number = |time| {
        let local = zone.local(time);
        Some(match field {
            "second" => f64::from(local.second()),
            "minute" => f64::from(local.minute()),
            "hour" => f64::from(local.hour()),
            "monthday" => f64::from(local.day()),
            "month" => f64::from(local.month()),
            // Sunday is 0.
            "weekday" => f64::from(local.weekday().to_sunday_zero_offset()),
            "yearday" => f64::from(local.day_of_year()),
            _ => f64::from(local.year()),
        })
    };
    Ok(vec![stream(LabelSet::default(), call.steps.times().map(number))])
}
