//! Works out a plan: from the leaves, all steps of a node at once.

pub(crate) mod aggregate;
pub(crate) mod binary;
pub(crate) mod call;
mod exact;
pub(crate) mod over;
mod select;
mod series;
mod subquery;

use std::collections::HashMap;
use std::sync::Arc;

use model::Gap;

use crate::error::{Error, Place, Result};
use crate::labels::Labels;
use crate::limits::{Budget, Limits};
use crate::note::Notes;
use crate::plan::{Extension, Node, Op, Ranged};
use crate::source::Source;
use crate::stream::{Readings, Steps, Stream};
use crate::value::Value;

/// How questions are answered.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a question may cost.
    pub limits: Limits,
    /// How old the latest reading may be at a step, in nanoseconds. Prometheus' default, 5 minutes.
    pub lookback: i64,
    /// Step of subqueries that name none, in nanoseconds. Prometheus' default, 1 minute.
    pub subquery_step: i64,
    /// A metric's name goes at the end, not with the first function that makes it untrue; so labels made of it stay.
    pub delayed_name_removal: bool,
    /// Series have labels `__type__` and `__unit__`.
    pub type_and_unit_labels: bool,
    /// Since when a reading counts is taken for a reading of nought.
    pub start_timestamps: bool,
    /// Averages of quantiles are worked out and not refused.
    pub averaged_quantiles: bool,
    /// Threads that read series.
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limits: Limits::default(),
            lookback: 5 * 60 * store::SECOND,
            subquery_step: store::MINUTE,
            delayed_name_removal: false,
            type_and_unit_labels: false,
            start_timestamps: false,
            averaged_quantiles: false,
            threads: 1,
        }
    }
}

/// One question while it is worked on.
pub(crate) struct Evaluation<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) settings: &'a Settings,
    pub(crate) budget: Arc<Budget<'a>>,
    pub(crate) notes: Notes,
    pub(crate) gaps: Vec<Gap>,
    /// Streams of nodes that stand in a question more than once, by node and steps.
    pub(crate) shared: HashMap<(usize, Steps), Arc<Vec<Stream>>>,
    /// The steps are those of a range of time, although only its first moment is one of them.
    pub(crate) is_range_of_one_step: bool,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(
        source: &'a dyn Source,
        settings: &'a Settings,
        is_over: &'a (dyn Fn() -> bool + Sync),
    ) -> Evaluation<'a> {
        Evaluation {
            source,
            settings,
            budget: Arc::new(Budget::new(settings.limits, is_over)),
            notes: Notes::default(),
            gaps: Vec::new(),
            shared: HashMap::new(),
            is_range_of_one_step: false,
        }
    }

    /// The streams of a node. What they hold is counted against the limits; whoever drops them says so
    /// with [`Evaluation::release`].
    pub(crate) fn streams(&mut self, node: &Node, steps: Steps) -> Result<Vec<Stream>> {
        self.budget.check()?;
        if steps.count == 0 {
            return Ok(Vec::new());
        }
        match &node.op {
            Op::Number(number) => self.constant(*number, steps),
            Op::Text(_) => panic!("BUG: a text has no streams"),
            Op::Latest(fetch) => self.latest(fetch, steps),
            Op::Ranged(_) => panic!("BUG: readings have no steps"),
            Op::Exact(exact) => self.exact(exact, steps),
            Op::Once(inner) => self.once(inner, steps),
            Op::Negate(inner) => self.negate(inner, steps),
            Op::Over(over) => self.over(over, node.place, steps),
            Op::Call { function, args } => self.call(function, args, node.place, steps),
            Op::Aggregate(aggregate) => self.aggregate(aggregate, node.place, steps),
            Op::Binary(binary) => self.binary(binary, node.place, steps),
            Op::Stage(stage) => stage.streams(self, steps),
        }
    }

    /// The numbers of a node that is a scalar: one for each step.
    pub(crate) fn scalar(&mut self, node: &Node, steps: Steps) -> Result<Vec<f64>> {
        if let Op::Number(number) = node.op {
            return Ok(vec![number; steps.count]);
        }
        if steps.count == 0 {
            return Ok(Vec::new());
        }
        let streams = self.streams(node, steps)?;
        self.release(&streams);
        let stream = streams.first().expect("BUG: a scalar has one stream");
        let number = |point: &Option<Value>| point.as_ref().and_then(Value::number);
        Ok(stream.points.iter().map(|point| number(point).unwrap_or(f64::NAN)).collect())
    }

    /// Readings of one moment, for what asks for them as they are.
    pub(crate) fn ranged(&mut self, ranged: &Ranged, time: i64) -> Result<Vec<Readings>> {
        let end = ranged.shift().apply(time);
        let start = end.saturating_sub(ranged.range);
        self.map_readings(ranged, Steps::at(time), &|evaluation, mut readings| {
            match ranged.extension() {
                Extension::None => {
                    readings.readings.retain(|reading| start < reading.time && reading.time <= end);
                }
                extension => {
                    readings = over::stretched(readings, (start, end), extension, ranged.place)?;
                }
            }
            if readings.readings.is_empty() {
                return Ok(None);
            }
            // They are the answer: from here on they are held.
            let samples = readings.readings.iter().map(|reading| reading.value.samples()).sum();
            evaluation.budget.hold(samples)?;
            Ok(Some(readings))
        })
    }

    fn constant(&mut self, number: f64, steps: Steps) -> Result<Vec<Stream>> {
        self.budget.hold(steps.count as u64)?;
        Ok(vec![Stream::new(Labels::default(), vec![Some(Value::Number(number)); steps.count])])
    }

    fn once(&mut self, inner: &Node, steps: Steps) -> Result<Vec<Stream>> {
        let is_range = std::mem::take(&mut self.is_range_of_one_step);
        let streams = self.streams(inner, Steps::at(steps.start));
        self.is_range_of_one_step = is_range;
        let mut streams = streams?;
        for stream in &mut streams {
            self.budget.hold(stream.samples().saturating_mul(steps.count as u64 - 1))?;
            let point = stream.points[0].take();
            stream.points = vec![point; steps.count];
        }
        Ok(streams)
    }

    fn negate(&mut self, inner: &Node, steps: Steps) -> Result<Vec<Stream>> {
        let mut streams = self.streams(inner, steps)?;
        for stream in &mut streams {
            let before = stream.samples();
            for value in stream.points.iter_mut().flatten() {
                *value = binary::negated(value);
            }
            self.budget.hold(stream.samples())?;
            self.budget.release(before);
            self.drop_name(stream);
        }
        self.merge_same(streams, Place::default())
    }

    /// Says that streams are dropped.
    pub(crate) fn release(&self, streams: &[Stream]) {
        self.budget.release(streams.iter().map(Stream::samples).sum());
    }

    /// A function made something else of a metric: its name does not describe it any more.
    pub(crate) fn drop_name(&self, stream: &mut Stream) {
        match self.settings.delayed_name_removal {
            true => stream.drops_name = true,
            false => stream.labels = stream.labels.without_metadata(),
        }
    }

    /// Streams that have come to have the same labels as one, where no step has two of them.
    pub(crate) fn merge_same(&self, streams: Vec<Stream>, place: Place) -> Result<Vec<Stream>> {
        match self.settings.delayed_name_removal {
            // Names are still there to tell them apart.
            true => Ok(streams),
            false => merge_same(streams, place),
        }
    }
}

/// Streams of the same labels as one; an error where a step has two.
pub(crate) fn merge_same(streams: Vec<Stream>, place: Place) -> Result<Vec<Stream>> {
    let mut merged: Vec<Stream> = Vec::with_capacity(streams.len());
    let mut places = std::collections::HashMap::with_capacity(streams.len());
    for stream in streams {
        match places.entry(stream.labels.clone()) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(merged.len());
                merged.push(stream);
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                for (held, more) in merged[*entry.get()].points.iter_mut().zip(stream.points) {
                    match (&held, more) {
                        (_, None) => {}
                        (None, more) => *held = more,
                        (Some(_), Some(_)) => return Err(same_labels(place)),
                    }
                }
            }
        }
    }
    Ok(merged)
}

pub(crate) fn same_labels(place: Place) -> Error {
    let message = "vector cannot contain metrics with the same labelset".to_owned();
    Error::Execution { place, message }
}
