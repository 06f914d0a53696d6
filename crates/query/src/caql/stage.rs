//! A function of CAQL with its arguments, as a piece of a plan.

use std::sync::Arc;

use super::arguments::{Arguments, Context};
use super::names::{legend, tags};
use super::signature::{Inputs, Shape, Signature};
use super::sources::Find;
use super::work::{LABEL, Work};
use super::{finer, packages, units, vector};
use crate::error::{Error, Place, Result};
use crate::estimate::Estimate;
use crate::eval::Evaluation;
use crate::labels::Labels;
use crate::plan::Node;
use crate::stream::{Steps, Stream};

/// A function and what it is applied to.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(super) form: Form,
    /// Under which number its streams are kept, if they are needed more than once.
    pub(super) shared: Option<usize>,
    pub(super) context: Context,
}

#[derive(Clone, Debug)]
pub(super) enum Form {
    /// A stream without values.
    Null,
    /// What is found.
    Find(Box<Find>),
    /// Histograms that are found, merged: all, or those whose tags of these categories agree.
    Merge { find: Box<Find>, by: Option<Vec<String>> },
    /// What was so long before, once for each length.
    Delay { delays: Vec<i64>, sources: Vec<Node> },
    /// A function of other streams.
    Call(Box<Call>),
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) function: &'static Signature,
    pub(super) arguments: Arguments,
    pub(super) sources: Vec<Node>,
    /// Where its name stands.
    pub(super) place: Place,
}

impl Stage {
    pub(crate) fn streams(
        &self,
        evaluation: &mut Evaluation<'_>,
        steps: Steps,
    ) -> Result<Vec<Stream>> {
        let key = self.shared.map(|shared| (shared, steps));
        if let Some(known) = key.and_then(|key| evaluation.shared.get(&key)) {
            let streams = Vec::clone(known);
            evaluation.hold(&streams)?;
            return Ok(streams);
        }
        let streams = self.work(evaluation, steps)?;
        if let Some(key) = key {
            // Held until the end: it is not known when the last has had it.
            evaluation.hold(&streams)?;
            evaluation.shared.insert(key, Arc::new(streams.clone()));
        }
        Ok(streams)
    }

    /// Adds what it reads.
    pub(crate) fn estimate(&self, estimate: &mut Estimate<'_>, steps: Steps) -> Result<()> {
        match &self.form {
            Form::Null => Ok(()),
            Form::Find(find) | Form::Merge { find, .. } => find.estimate(estimate, steps),
            Form::Delay { delays, sources } => delays.iter().try_for_each(|delay| {
                let start = steps.start.saturating_sub(*delay);
                estimate.nodes(sources, Steps { start, ..steps })
            }),
            Form::Call(call) => estimate.nodes(&call.sources, steps),
        }
    }

    fn work(&self, evaluation: &mut Evaluation<'_>, steps: Steps) -> Result<Vec<Stream>> {
        match &self.form {
            Form::Null => {
                evaluation.fits(1, steps)?;
                Ok(vec![Stream::new(Labels::default(), vec![None; steps.count])])
            }
            Form::Find(find) => find.streams(evaluation, steps),
            Form::Merge { find, by } => find.merged(evaluation, by.as_deref(), steps),
            Form::Delay { delays, sources } => delayed(evaluation, delays, sources, steps),
            Form::Call(call) => {
                let place = call.place;
                if let Some(period) = finer::period(call, steps) {
                    return finer::streams(call, self, evaluation, place, period, steps);
                }
                self.call(call, evaluation, place, steps)
            }
        }
    }

    /// A function of its sources, which are read as far around the slots as it looks.
    pub(super) fn call(
        &self,
        call: &Call,
        evaluation: &mut Evaluation<'_>,
        place: Place,
        steps: Steps,
    ) -> Result<Vec<Stream>> {
        let Call { function, arguments, .. } = call;
        let Some(kernel) = packages::kernel(&function.computes) else {
            let message = format!("{} cannot be worked out yet", function.name);
            return Err(Error::Parse { place: call.place, message });
        };
        let (before, after) = (kernel.reach)(arguments, steps);
        let back = (before as i64).saturating_mul(steps.step);
        let wide = Steps {
            start: steps.start.saturating_sub(back),
            count: steps.count.saturating_add(before).saturating_add(after),
            ..steps
        };
        evaluation.fits(1, wide)?;
        let inputs = evaluation.inputs(&call.sources, wide)?;
        let copies = match function.shape {
            Shape::EachPerArgument | Shape::OnePerArgument => arguments.rest().len().max(1),
            _ => 1,
        };
        evaluation.fits(inputs.len().max(1).saturating_mul(copies), wide)?;
        let are_counts = match function.computes.as_str() {
            "integrate" => units::are_counts(&call.sources, evaluation)?,
            "integrate:while" => {
                units::are_counts(call.sources.get(1..).unwrap_or_default(), evaluation)?
            }
            _ => false,
        };
        let held: u64 = inputs.iter().map(Stream::samples).sum();
        let mut notes = std::mem::take(&mut evaluation.notes);
        let mut work = |inputs: Vec<Stream>| {
            let streams = vector::count(&inputs) + usize::from(arguments.number("x").is_some());
            check_count(function, streams, place)?;
            let (context, notes) = (&self.context, &mut notes);
            (kernel.work)(Work {
                name: &function.computes,
                inputs,
                are_counts,
                arguments,
                steps,
                before,
                after,
                context,
                place,
                notes,
            })
        };
        let outputs = match vector::is_elementwise(function, &inputs) {
            true => vector::each(inputs, &mut work),
            false => work(inputs),
        };
        evaluation.notes = notes;
        let outputs = outputs?;
        debug_assert!(outputs.iter().all(|stream| stream.points.len() == steps.count));
        evaluation.hold(&outputs)?;
        evaluation.budget.release(held);
        Ok(outputs)
    }
}

impl Evaluation<'_> {
    /// The streams of all sources, in order.
    pub(super) fn inputs(&mut self, sources: &[Node], steps: Steps) -> Result<Vec<Stream>> {
        let mut inputs = Vec::new();
        for source in sources {
            inputs.extend(self.streams(source, steps)?);
        }
        Ok(inputs)
    }

    /// Counts streams that are held from now on.
    pub(super) fn hold(&self, streams: &[Stream]) -> Result<()> {
        self.budget.hold(streams.iter().map(Stream::samples).sum())
    }

    /// Refuses streams that cannot be held, before they are made: slots without values take memory as well.
    pub(super) fn fits(&self, streams: usize, steps: Steps) -> Result<()> {
        let slots = (streams as u64).saturating_mul(steps.count as u64);
        self.budget.hold(slots)?;
        self.budget.release(slots);
        Ok(())
    }
}

/// Each source as it was some time before. Of each its delays follow each other.
fn delayed(
    evaluation: &mut Evaluation<'_>,
    delays: &[i64],
    sources: &[Node],
    steps: Steps,
) -> Result<Vec<Stream>> {
    let mut copies = Vec::with_capacity(delays.len());
    for delay in delays {
        let earlier = Steps { start: steps.start.saturating_sub(*delay), ..steps };
        let mut streams = evaluation.inputs(sources, earlier)?;
        for stream in &mut streams {
            let label = format!("{} {} before", legend(&stream.labels), shown(*delay));
            stream.labels = stream.labels.with(LABEL, label.trim_start());
        }
        copies.push(streams.into_iter());
    }
    let mut all = Vec::new();
    loop {
        let held = all.len();
        all.extend(copies.iter_mut().filter_map(Iterator::next));
        if all.len() == held {
            return Ok(all);
        }
    }
}

fn shown(duration: i64) -> String {
    super::Literal::Duration(duration).to_string()
}

/// Refuses another number of streams than a function takes.
fn check_count(function: &Signature, found: usize, place: Place) -> Result<()> {
    let wanted = match function.inputs {
        Inputs::Any => return Ok(()),
        Inputs::Exactly(count) if count == found => return Ok(()),
        Inputs::AtLeast(count) if count <= found => return Ok(()),
        Inputs::Exactly(1) => "exactly one stream".to_owned(),
        Inputs::Exactly(2) => "exactly two streams".to_owned(),
        Inputs::Exactly(count) => format!("exactly {count} streams"),
        Inputs::AtLeast(count) => format!("at least {count} streams"),
    };
    let name = &function.name;
    let hint = match found > 1 {
        true => "; make one of many first, as with stats:sum() or group_by:sum(…)",
        false => "",
    };
    let message = format!("{name} takes {wanted}, and these are {found}{hint}");
    Err(Error::Execution { place, message })
}

/// Gives streams that have neither a legend nor a name the text of what made them.
pub(crate) fn name(streams: &mut [Stream], text: &str) {
    const LEGEND_BYTES_MAX: usize = 200;
    let text = text.trim();
    let is_one = streams.len() == 1;
    for (at, stream) in streams.iter_mut().enumerate() {
        let labels = &stream.labels;
        let key = vector::key_of(labels).unwrap_or_default().to_owned();
        let mut labels = labels.with(super::names::VECTOR, "").with(super::names::KEY, "");
        if labels.get(LABEL).is_empty() {
            if !key.is_empty() {
                labels = labels.with(LABEL, &key);
            } else if labels.name().is_empty() && tags(&labels).next().is_none() {
                let label = match is_one && text.len() <= LEGEND_BYTES_MAX {
                    true => text.to_owned(),
                    false => format!("output[{}]", at + 1),
                };
                labels = labels.with(LABEL, &label);
            }
        }
        stream.labels = labels;
    }
}
