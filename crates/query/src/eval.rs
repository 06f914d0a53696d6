//! Plan evaluation, all steps of a node at once.

pub(crate) mod aggregate;
pub(crate) mod binary;
pub(crate) mod call;
mod exact;
pub(crate) mod range_functions;
mod select;
mod series;
mod subquery;

use std::collections::HashMap;
use std::sync::Arc;

use model::Gap;

use crate::context::QueryContext;
use crate::error::{Error, Result, SourceSpan};
use crate::labels::LabelSet;
use crate::limits::{Limits, QueryBudget};
use crate::plan::{PlanNode, PlanOp, RangeExtension, RangeSelection};
use crate::query_warnings::QueryWarnings;
use crate::source::Source;
use crate::stream::{SeriesPoints, StepGrid, Stream};
use crate::value::StepValue;

/// Query engine settings.
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

/// State of a running evaluation.
pub(crate) struct Evaluation<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) settings: &'a Settings,
    pub(crate) budget: Arc<QueryBudget<'a>>,
    pub(crate) warnings: QueryWarnings,
    pub(crate) gaps: Vec<Gap>,
    /// Streams of nodes that stand in a question more than once, by node and steps.
    pub(crate) shared: HashMap<(usize, StepGrid), Arc<Vec<Stream>>>,
    /// The steps are those of a range of time, although only its first moment is one of them.
    pub(crate) is_range_of_one_step: bool,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(
        source: &'a dyn Source,
        settings: &'a Settings,
        context: &'a dyn QueryContext,
    ) -> Evaluation<'a> {
        Evaluation {
            source,
            settings,
            budget: Arc::new(QueryBudget::new(settings.limits, context)),
            warnings: QueryWarnings::default(),
            gaps: Vec::new(),
            shared: HashMap::new(),
            is_range_of_one_step: false,
        }
    }

    /// The streams of a node. What they hold is counted against the limits; whoever drops them says so
    /// with [`Evaluation::release`].
    pub(crate) fn streams(&mut self, node: &PlanNode, steps: StepGrid) -> Result<Vec<Stream>> {
        self.budget.check_deadline()?;
        if steps.count == 0 {
            return Ok(Vec::new());
        }
        match &node.op {
            PlanOp::Number(number) => self.constant(*number, steps),
            PlanOp::Text(_) => panic!("BUG: a text has no streams"),
            PlanOp::Latest(fetch) => self.latest(fetch, steps),
            PlanOp::RangeSelection(_) => panic!("BUG: readings have no steps"),
            PlanOp::Exact(exact) => self.exact(exact, steps),
            PlanOp::Once(inner) => self.once(inner, steps),
            PlanOp::Negate(inner) => self.negate(inner, steps),
            PlanOp::RangeFunction(over) => self.range_function(over, node.span, steps),
            PlanOp::Call { function, args } => self.call(function, args, node.span, steps),
            PlanOp::Aggregate(aggregate) => self.aggregate(aggregate, node.span, steps),
            PlanOp::Binary(binary) => self.binary(binary, node.span, steps),
            PlanOp::Stage(stage) => stage.streams(self, steps),
        }
    }

    /// The numbers of a node that is a scalar: one for each step.
    pub(crate) fn scalar(&mut self, node: &PlanNode, steps: StepGrid) -> Result<Vec<f64>> {
        if let PlanOp::Number(number) = node.op {
            return Ok(vec![number; steps.count]);
        }
        if steps.count == 0 {
            return Ok(Vec::new());
        }
        let streams = self.streams(node, steps)?;
        self.release(&streams);
        let stream = streams.first().expect("BUG: a scalar has one stream");
        let number = |point: &Option<StepValue>| point.as_ref().and_then(StepValue::number);
        Ok(stream.points.iter().map(|point| number(point).unwrap_or(f64::NAN)).collect())
    }

    /// Readings of one moment, for what asks for them as they are.
    pub(crate) fn ranged(
        &mut self,
        ranged: &RangeSelection,
        time: i64,
    ) -> Result<Vec<SeriesPoints>> {
        let end = ranged.shift().apply(time);
        let start = end.saturating_sub(ranged.range);
        self.map_readings(ranged, StepGrid::at(time), &|evaluation, mut readings| {
            match ranged.extension() {
                RangeExtension::None => {
                    readings.points.retain(|reading| start < reading.time && reading.time <= end);
                }
                extension => {
                    readings = range_functions::interpolate_at_ends(
                        readings,
                        (start, end),
                        extension,
                        ranged.span,
                    )?;
                }
            }
            if readings.points.is_empty() {
                return Ok(None);
            }
            // They are the answer: from here on they are held.
            let samples = readings.points.iter().map(|reading| reading.value.samples()).sum();
            evaluation.budget.charge_samples(samples)?;
            Ok(Some(readings))
        })
    }

    fn constant(&mut self, number: f64, steps: StepGrid) -> Result<Vec<Stream>> {
        self.budget.charge_samples(steps.count as u64)?;
        Ok(vec![Stream::new(
            LabelSet::default(),
            vec![Some(StepValue::Number(number)); steps.count],
        )])
    }

    fn once(&mut self, inner: &PlanNode, steps: StepGrid) -> Result<Vec<Stream>> {
        let is_range = std::mem::take(&mut self.is_range_of_one_step);
        let streams = self.streams(inner, StepGrid::at(steps.start));
        self.is_range_of_one_step = is_range;
        let mut streams = streams?;
        for stream in &mut streams {
            self.budget.charge_samples(stream.samples().saturating_mul(steps.count as u64 - 1))?;
            let point = stream.points[0].take();
            stream.points = vec![point; steps.count];
        }
        Ok(streams)
    }

    fn negate(&mut self, inner: &PlanNode, steps: StepGrid) -> Result<Vec<Stream>> {
        let mut streams = self.streams(inner, steps)?;
        for stream in &mut streams {
            let before = stream.samples();
            for value in stream.points.iter_mut().flatten() {
                *value = binary::negate_value(value);
            }
            self.budget.charge_samples(stream.samples())?;
            self.budget.release_samples(before);
            self.drop_name(stream);
        }
        self.merge_equal_labels(streams, SourceSpan::default())
    }

    /// Says that streams are dropped.
    pub(crate) fn release(&self, streams: &[Stream]) {
        self.budget.release_samples(streams.iter().map(Stream::samples).sum());
    }

    /// A function made something else of a metric: its name does not describe it any more.
    pub(crate) fn drop_name(&self, stream: &mut Stream) {
        match self.settings.delayed_name_removal {
            true => stream.drops_name = true,
            false => stream.labels = stream.labels.without_metadata(),
        }
    }

    /// Streams that have come to have the same labels as one, where no step has two of them.
    pub(crate) fn merge_equal_labels(
        &self,
        streams: Vec<Stream>,
        place: SourceSpan,
    ) -> Result<Vec<Stream>> {
        match self.settings.delayed_name_removal {
            // Names are still there to tell them apart.
            true => Ok(streams),
            false => merge_equal_labels(streams, place),
        }
    }
}

/// Streams of the same labels as one; an error where a step has two.
pub(crate) fn merge_equal_labels(streams: Vec<Stream>, place: SourceSpan) -> Result<Vec<Stream>> {
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
                        (Some(_), Some(_)) => return Err(duplicate_labels_error(place)),
                    }
                }
            }
        }
    }
    Ok(merged)
}

pub(crate) fn duplicate_labels_error(place: SourceSpan) -> Error {
    let message = "vector cannot contain metrics with the same labelset".to_owned();
    Error::Execution { span: place, message }
}
