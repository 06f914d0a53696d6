//! Distributions from numbers and from other distributions.

use std::sync::Arc;

use hist::{Histogram, MergeError, Mixture, Scheme};

use super::super::function_table::{FunctionTable, MergeRule, StreamUnitRule};
use super::super::kernel::{Kernel, KernelInput};
use super::super::names::common_labels;
use super::super::points::number;
use super::super::signature::InputKind::{Histograms, Numbers};
use super::super::signature::OutputKind;
use super::from_value;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::value::StepValue;

/// Adds the functions that make histograms.
pub(super) fn add_functions(table: &mut FunctionTable) {
    table
        .add_fold("histogram:create", Numbers, Kernel::without_margin(create))
        .output(OutputKind::Histograms)
        .unit(StreamUnitRule::Distributions);
    table.add_alias("histogram", "histogram:create");
    table
        .add_fold("histogram:merge", Histograms, Kernel::without_margin(merge))
        .unit(StreamUnitRule::SameAsInputs)
        .merges(MergeRule::All);
    table
        .add_fold("histogram:subtract", Histograms, Kernel::without_margin(subtract))
        .unit(StreamUnitRule::SameAsInputs);
}

/// Histogram of the numbers in a slot, on circllhist's grid.
fn create(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    Ok(single_stream(&call, |at| {
        let mut histogram = Histogram::new(Scheme::LogLinear10);
        let numbers = call.inputs.iter().filter_map(|stream| number(stream, at));
        numbers.filter(|number| !number.is_nan()).for_each(|number| histogram.record(number));
        match histogram.is_empty() {
            true => Mixture::default(),
            false => Mixture::from(histogram),
        }
    }))
}

fn merge(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let mut failed = None;
    let streams = single_stream(&call, |at| {
        let mut merged = Mixture::default();
        for part in distributions(&call.inputs, at).flat_map(|mixture| mixture.components()) {
            if let Err(error) = merged.add(part) {
                failed.get_or_insert(error);
            }
        }
        merged
    });
    match failed {
        None => Ok(streams),
        Some(error) => {
            let message = format!("{error}; merge fewer series");
            Err(Error::Execution { span: call.span, message })
        }
    }
}

/// Subtracts the other histograms from the first. If the first does not contain them, the slot is
/// missing and a warning is added.
fn subtract(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let mut failed = None;
    let streams = single_stream(&call, |at| {
        let all = call.inputs.iter().map(|stream| stream.points[at].as_ref().and_then(from_value));
        let mut all = all.map(|held| held.map(|held| &**held).unwrap_or(&EMPTY));
        let first = all.next().unwrap_or(&EMPTY).clone().into_components();
        let left = all.try_fold(first, subtract_parts);
        let left = left.unwrap_or_else(|error| {
            failed.get_or_insert(error);
            Vec::new()
        });
        let mut rest = Mixture::default();
        for part in left.iter().filter(|part| !part.is_empty()) {
            if let Err(error) = rest.add(part) {
                failed.get_or_insert(error);
            }
        }
        rest
    });
    if let Some(error) = failed {
        let message = format!("histogram:subtract: slot left empty: {error}");
        call.warnings.warn(call.span, message);
    }
    Ok(streams)
}

/// Subtracts the parts of another histogram, each from the part that contains it.
fn subtract_parts(
    mut left: Vec<Histogram>,
    subtrahend: &Mixture,
) -> Result<Vec<Histogram>, MergeError> {
    for part in subtrahend.components().iter().filter(|part| !part.is_empty()) {
        let mut reason = None;
        // A coarser part would accept it too, and that of its own bounds would keep the values.
        let (same, others): (Vec<&mut Histogram>, Vec<&mut Histogram>) =
            left.iter_mut().partition(|held| held.scheme() == part.scheme());
        let is_done = same.into_iter().chain(others).any(|held| match held.subtract(part) {
            Ok(()) => true,
            // With several candidates, the error of the one on the same grid is the most precise.
            Err(error) => {
                if reason.is_none() || matches!(error, MergeError::NotContained { .. }) {
                    reason = Some(error);
                }
                false
            }
        });
        if !is_done {
            let nothing = || Histogram::new(part.scheme().clone()).subtract(part).err();
            match reason.or_else(nothing) {
                Some(reason) => return Err(reason),
                None => continue,
            }
        }
    }
    Ok(left)
}

static EMPTY: std::sync::LazyLock<Mixture> = std::sync::LazyLock::new(Mixture::default);

fn distributions(inputs: &[Stream], at: usize) -> impl Iterator<Item = &Mixture> {
    inputs.iter().filter_map(move |stream| {
        let value = stream.points[at].as_ref().and_then(from_value);
        value.map(Arc::as_ref)
    })
}

/// Combines all inputs into one stream.
fn single_stream(call: &KernelInput<'_>, mut of: impl FnMut(usize) -> Mixture) -> Vec<Stream> {
    let points = (0..call.steps.count).map(|at| Some(StepValue::Distribution(Arc::new(of(at)))));
    let labels = common_labels(call.inputs.iter().map(|stream| &stream.labels));
    vec![Stream::new(labels, points.collect())]
}
