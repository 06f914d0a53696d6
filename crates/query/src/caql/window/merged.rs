//! Windows of merged distributions.

use std::sync::Arc;

use hist::Mixture;

use super::super::histogram::{from_number, from_value};
use super::super::kernel::KernelInput;
use super::SlotWindows;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::value::StepValue;

pub(super) fn histogram<const ROLLING: bool>(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    merge_windows(call, ROLLING, |value| value.number().and_then(from_number))
}

pub(super) fn merge<const ROLLING: bool>(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    merge_windows(call, ROLLING, nonempty_distribution)
}

/// Merges numbers and distributions.
pub(super) fn merge_mixed(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    merge_windows(call, false, |value| {
        nonempty_distribution(value).or_else(|| from_number(value.number()?))
    })
}

/// Distribution, unless it is empty.
fn nonempty_distribution(value: &StepValue) -> Option<Arc<Mixture>> {
    from_value(value).filter(|mixture| !mixture.components().is_empty()).cloned()
}

fn merge_windows(
    call: KernelInput<'_>,
    is_rolling: bool,
    of: fn(&StepValue) -> Option<Arc<Mixture>>,
) -> Result<Vec<Stream>> {
    let windows = SlotWindows::for_call(&call, is_rolling)?;
    let span = call.span;
    let add = |merged: &mut Arc<Mixture>, more: &Arc<Mixture>| {
        let merged = Arc::make_mut(merged);
        more.components().iter().try_for_each(|part| merged.add(part)).map_err(|error| {
            Error::Execution { span, message: format!("{error}; use a shorter window") }
        })
    };
    let of_stream = |stream: Stream| {
        let found = windows.sums(&stream, of, add)?;
        let points = found
            .into_iter()
            .map(|merged| Some(StepValue::Distribution(merged.unwrap_or_default())));
        Ok(Stream { points: windows.to_slots(points), ..stream })
    };
    call.inputs.into_iter().map(of_stream).collect()
}
