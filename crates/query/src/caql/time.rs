//! `time:*`: when a slot begins.

use super::kernel::{Kernel, KernelInput};
use super::points::stream;
use super::zone::Zone;
use crate::error::{Error, Result};
use crate::labels::LabelSet;
use crate::stream::{Stream, seconds};

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    match name {
        "time:epoch" => Some(Kernel::slotwise(epoch)),
        "time:tz" => Some(Kernel::slotwise(field)),
        _ => None,
    }
}

fn epoch(work: KernelInput<'_>) -> Result<Vec<Stream>> {
    Ok(vec![stream(LabelSet::default(), work.steps.times().map(|time| Some(seconds(time))))])
}

fn field(work: KernelInput<'_>) -> Result<Vec<Stream>> {
    let zone = Zone::find(work.arguments.text("timezone").unwrap_or_default())
        .map_err(|message| Error::Parse { span: work.span, message })?;
    let field = work.arguments.text("field").unwrap_or_default();
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
    Ok(vec![stream(LabelSet::default(), work.steps.times().map(number))])
}
