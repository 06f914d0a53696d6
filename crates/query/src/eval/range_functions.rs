//! Range functions of PromQL: `rate`, `avg_over_time` ….
//!
//! Operations are done in the order of Prometheus 3.15, with times in its units, so that floats are
//! equal if times are whole milliseconds. Tests compare them with a tolerance: docs/conformance.md.

pub(crate) mod adjacent;
mod extend;
mod growth_sums;
mod increment_windows;
mod number_windows;
pub(crate) mod passthrough;
mod rate;
pub(crate) mod regression;
mod series_warnings;
mod smoothed;
pub(crate) mod statistics;
pub(crate) mod sum;
mod window;

pub(crate) use growth_sums::{GrowthSum, GrowthSums, SeriesBatch};
pub(crate) use increment_windows::GrowthMapper;
pub(crate) use number_windows::{ValueVisitor, is_plain};
pub(crate) use rate::GrowthKind;
pub(crate) use smoothed::interpolate_at_ends;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crate::error::{Result, SourceSpan};
use crate::eval::series::{SeriesGroup, are_numbers};
use crate::eval::{Evaluation, duplicate_labels_error};
use crate::labels::{LabelSet, TYPE, differ_without_metadata};
use crate::limits::SAMPLE_BYTES;
use crate::plan::{
    Grouping, RangeExtension, RangeFunctionCall, RangeSelection, RangeSource, SeriesFetch,
};
use crate::promql::{StepDependence, labels_from_matchers};
use crate::stream::{SeriesPoint, SeriesPoints, StepGrid, Stream};
use crate::value::StepValue;

use growth_sums::PACK_SERIES;
use series_warnings::{SeriesWarning, SeriesWarnings};
use window::{RangeWindow, SeriesSamples, WindowCursors};

/// Kernel of a range function.
#[derive(Debug)]
pub(crate) struct RangeKernel {
    work: WindowFn,
    /// Whether the metric name still describes the result.
    keeps_name: bool,
    /// Whether start timestamps are used.
    uses_starts: bool,
    /// Range extensions that the function accepts.
    extensions: &'static [RangeExtension],
    /// Whether the function is for counters; other metrics get a warning.
    is_for_counters: bool,
}

/// Implementation of a range function.
#[derive(Clone, Copy, Debug)]
enum WindowFn {
    /// Function of raw samples; there is at least one.
    Points(fn(&[SeriesPoint]) -> StepValue),
    /// Function of floats and histograms; there is at least one.
    Window(fn(&RangeWindow<'_>, &mut SeriesWarnings) -> Result<Option<StepValue>>),
    /// Growth of floats and histograms; there is at least one.
    Growth(GrowthKind),
    /// Result at steps at which no series has a sample.
    Absent,
}

impl RangeKernel {
    pub(crate) const ABSENT: RangeKernel = RangeKernel::new(WindowFn::Absent);

    pub(crate) const fn points(work: fn(&[SeriesPoint]) -> StepValue) -> RangeKernel {
        RangeKernel::new(WindowFn::Points(work))
    }

    pub(crate) const fn window(
        work: fn(&RangeWindow<'_>, &mut SeriesWarnings) -> Result<Option<StepValue>>,
    ) -> RangeKernel {
        RangeKernel::new(WindowFn::Window(work))
    }

    pub(crate) const fn growth(growth: GrowthKind) -> RangeKernel {
        RangeKernel::new(WindowFn::Growth(growth))
    }

    const fn new(work: WindowFn) -> RangeKernel {
        RangeKernel {
            work,
            keeps_name: false,
            uses_starts: false,
            extensions: &[],
            is_for_counters: false,
        }
    }

    pub(crate) const fn with_name(self) -> RangeKernel {
        RangeKernel { keeps_name: true, ..self }
    }

    pub(crate) const fn with_starts(self) -> RangeKernel {
        RangeKernel { uses_starts: true, ..self }
    }

    pub(crate) const fn with_extensions(
        self,
        extensions: &'static [RangeExtension],
    ) -> RangeKernel {
        RangeKernel { extensions, ..self }
    }

    pub(crate) const fn for_counters(self) -> RangeKernel {
        RangeKernel { is_for_counters: true, ..self }
    }

    /// Whether the function accepts a range extension.
    pub(crate) fn takes(&self, extension: RangeExtension) -> bool {
        extension == RangeExtension::None || self.extensions.contains(&extension)
    }
}

impl Evaluation<'_> {
    pub(crate) fn range_function(
        &mut self,
        over: &RangeFunctionCall,
        kernel: &RangeKernel,
        span: SourceSpan,
        steps: StepGrid,
        mapper: Option<&mut GrowthMapper<'_>>,
    ) -> Result<Vec<Stream>> {
        let mut all = Vec::new();
        let batch = (span, usize::MAX, None);
        self.range_function_in_batches(over, kernel, batch, steps, mapper, &mut |_, batch| {
            match batch {
                SeriesBatch::Streams(streams) => all.extend(streams),
                SeriesBatch::Sums(_) => panic!("BUG: series are summed only by a grouping"),
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Streams of a range function in batches of at most `batch` series. Each batch is passed to a
    /// closure, which releases the memory of the streams that it drops. With a grouping, a batch
    /// may be the sums of its groups. A mapper may be used for the only series.
    pub(crate) fn range_function_in_batches(
        &mut self,
        over: &RangeFunctionCall,
        kernel: &RangeKernel,
        (span, batch, grouping): (SourceSpan, usize, Option<&Grouping>),
        steps: StepGrid,
        mapper: Option<&mut GrowthMapper<'_>>,
        take: &mut BatchConsumer<'_>,
    ) -> Result<()> {
        let mut numbers = Vec::with_capacity(over.args.len());
        for arg in &over.args {
            numbers.push(self.scalar(arg, steps)?);
        }
        if matches!(kernel.work, WindowFn::Absent) {
            let streams = self.absent(&over.input, steps)?;
            return take(self, SeriesBatch::Streams(streams));
        }
        let apply = RangeFunctionEval {
            call: over,
            kernel,
            span,
            steps,
            numbers,
            reported_name: OnceLock::new(),
            lookback: self.settings.lookback,
        };
        let mut seen = UniqueLabels::default();
        let RangeSource::Series(fetch) = &over.input.source else {
            let retained = AtomicUsize::new(0);
            let streams = self.map_samples(&over.input, steps, &|evaluation, samples| {
                let stream = apply.to_series(evaluation, samples)?;
                evaluation.retain(stream.as_slice(), steps, &retained)?;
                Ok(stream)
            })?;
            let batch = SeriesBatch::Streams(streams);
            seen.check(self, &batch, span)?;
            return take(self, batch);
        };
        let range = over.input.samples_range(fetch, steps, self.settings.lookback);
        let series = self.select_samples(fetch, &range)?;
        if let (Some(mapper), [only]) = (mapper, &series[..])
            && let Some(streams) = apply.mapped(self, only, &range, mapper)?
        {
            return take(self, SeriesBatch::Streams(streams));
        }
        seen.are_distinct = differ_without_metadata(series.iter().map(|(labels, _)| labels));
        let has_numbers_only = are_numbers(&series);
        let batch = match has_numbers_only {
            true => batch.max(NUMBERS_BATCH / steps.count.max(1)),
            false => batch,
        };
        let evaluate = &mut |evaluation: &mut Self, series: &[SeriesGroup]| {
            for series in series.chunks(batch) {
                let retained = AtomicUsize::new(0);
                let batches = match grouping.filter(|_| !has_numbers_only && apply.is_summable()) {
                    Some(grouping) => {
                        let packs: Vec<&[SeriesGroup]> = series.chunks(PACK_SERIES).collect();
                        let shared = (grouping, &retained);
                        evaluation.map_parallel(&packs, &|evaluation, pack| {
                            apply.pack(evaluation, pack, fetch, &range, shared).map(Some)
                        })?
                    }
                    None => {
                        let streams = evaluation.map_packs(
                            series,
                            &range,
                            steps,
                            &|evaluation, pack, made| {
                                let kept = (&retained, made);
                                apply.series(evaluation, pack, fetch, &range, kept)
                            },
                        )?;
                        vec![SeriesBatch::Streams(streams)]
                    }
                };
                for batch in batches {
                    seen.check(evaluation, &batch, span)?;
                    take(evaluation, batch)?;
                }
            }
            Ok(())
        };
        self.with_read_ahead(&series, &range, evaluate)
    }

    fn absent(&mut self, of: &RangeSelection, steps: StepGrid) -> Result<Vec<Stream>> {
        let found = self.map_samples(of, steps, &|_, samples| {
            let series = SeriesSamples::with_samples(samples);
            let mut cursors = WindowCursors::default();
            let is_there = steps.times().map(|time| {
                let end = of.shift().apply(time);
                let (found, ..) = cursors.advance(&series, end.saturating_sub(of.range), end);
                !found.is_empty()
            });
            Ok(Some(is_there.collect::<Vec<bool>>()))
        })?;
        let mut points = vec![Some(StepValue::Number(1.0)); steps.count];
        for is_there in found {
            points
                .iter_mut()
                .zip(is_there)
                .filter(|(_, there)| *there)
                .for_each(|(at, _)| *at = None);
        }
        // A subquery has no matchers.
        let labels = match &of.source {
            RangeSource::Series(fetch) => labels_from_matchers(&fetch.matchers),
            RangeSource::Subquery { .. } => LabelSet::default(),
        };
        let mut stream = Stream::new(labels, points);
        if stream.is_empty() {
            return Ok(Vec::new());
        }
        self.budget.charge_samples(stream.samples())?;
        stream.drops_name = self.settings.delayed_name_removal;
        Ok(vec![stream])
    }
}

/// Takes results of a range function.
pub(crate) type BatchConsumer<'a> = dyn FnMut(&mut Evaluation<'_>, SeriesBatch) -> Result<()> + 'a;

/// Labels of the streams so far, which must differ.
#[derive(Default)]
struct UniqueLabels {
    known: HashSet<LabelSet>,
    /// Whether they differ because those of the series do.
    are_distinct: bool,
}

impl UniqueLabels {
    fn check(
        &mut self,
        evaluation: &Evaluation<'_>,
        batch: &SeriesBatch,
        span: SourceSpan,
    ) -> Result<()> {
        // With a delay, the names still distinguish the streams.
        if self.are_distinct || evaluation.settings.delayed_name_removal {
            return Ok(());
        }
        let mut insert = |labels: &LabelSet| self.known.insert(labels.clone());
        let is_unique = match batch {
            SeriesBatch::Streams(streams) => streams.iter().all(|stream| insert(&stream.labels)),
            SeriesBatch::Sums(sums) => sums.series.iter().all(insert),
        };
        if is_unique { Ok(()) } else { Err(duplicate_labels_error(span)) }
    }
}

/// Evaluation of a range function call, series by series.
struct RangeFunctionEval<'a> {
    call: &'a RangeFunctionCall,
    kernel: &'a RangeKernel,
    span: SourceSpan,
    steps: StepGrid,
    /// Number arguments, each at each step.
    numbers: Vec<Vec<f64>>,
    /// Metric name of a series with the warning that it is not that of a counter.
    reported_name: OnceLock<String>,
    lookback: i64,
}

/// Points of series of numbers that are evaluated before they are aggregated.
const NUMBERS_BATCH: usize = 1 << 16;
/// Steps between two checks of the deadline.
const STEPS_UNCHECKED: usize = 64;

impl RangeFunctionEval<'_> {
    /// Reads and evaluates a pack of series, and appends the streams that have a value at any step.
    /// They are of the `retained` ones, and charged beside the samples.
    fn series(
        &self,
        evaluation: &mut Evaluation<'_>,
        pack: &[SeriesGroup],
        fetch: &SeriesFetch,
        range: &Range<i64>,
        (retained, made): (&AtomicUsize, &mut Vec<Stream>),
    ) -> Result<()> {
        let before = made.len();
        if let WindowFn::Growth(growth) = self.kernel.work
            && let [(labels, handles)] = pack
            && let Some(increments) = self.increments(evaluation, handles, range, growth)?
        {
            let held = increments.held_bytes() as u64 / SAMPLE_BYTES;
            evaluation.budget.charge_samples(held)?;
            let points = self.growth(evaluation, &increments, growth, &mut |_, value| value)?;
            evaluation.budget.release_samples(held);
            if let Some(points) = points {
                made.extend(self.stream(evaluation, labels.clone(), false, points));
                return evaluation.retain(&made[before..], self.steps, retained);
            }
        }
        let to_series =
            |evaluation: &mut Evaluation<'_>, samples| self.to_series(evaluation, samples);
        let read = (&self.call.input, fetch);
        let charged = evaluation.map_pack_samples(pack, read, range, made, &to_series)?;
        evaluation.retain(&made[before..], self.steps, retained)?;
        evaluation.budget.release_samples(charged);
        Ok(())
    }

    /// Evaluates a series; `None` if it has no value at any step.
    fn to_series(
        &self,
        evaluation: &mut Evaluation<'_>,
        mut samples: SeriesPoints,
    ) -> Result<Option<Stream>> {
        let function = self.kernel;
        let labels = std::mem::take(&mut samples.labels);
        let drops_name = samples.drops_name;
        let series = match function.work {
            WindowFn::Points(_) | WindowFn::Absent => SeriesSamples::with_samples(samples),
            WindowFn::Window(_) | WindowFn::Growth(_) => {
                let uses_starts = function.uses_starts && evaluation.settings.start_timestamps;
                SeriesSamples::split(samples, uses_starts)
            }
        };
        let mut warnings = SeriesWarnings::default();
        let mut points = Vec::with_capacity(self.steps.count);
        self.points(evaluation, &series, &mut warnings, &mut points)?;
        // Many series have one name, and one warning.
        let is_reported = || self.reported_name.get().is_some_and(|name| name == labels.name());
        if function.is_for_counters && !is_reported() {
            let types = evaluation.settings.type_and_unit_labels;
            let warning = check_counter_name(&labels, &points, types);
            if warning == Some(SeriesWarning::NoCounterName) {
                self.reported_name.get_or_init(|| labels.name().to_owned());
            }
            warnings.extend(warning);
        }
        warnings.emit(labels.name(), self.call.first_span(), &mut evaluation.warnings);
        Ok(self.stream(evaluation, labels, drops_name, points))
    }

    /// Result of a series; `None` if it has no value at any step.
    fn stream(
        &self,
        evaluation: &Evaluation<'_>,
        labels: LabelSet,
        drops_name: bool,
        points: Vec<Option<StepValue>>,
    ) -> Option<Stream> {
        let mut stream = Stream::new(labels, points);
        if stream.is_empty() {
            return None;
        }
        stream.drops_name = drops_name;
        if !self.kernel.keeps_name {
            evaluation.drop_name(&mut stream);
        }
        Some(stream)
    }

    /// Replaces `points` by the values at all steps.
    fn points(
        &self,
        evaluation: &Evaluation<'_>,
        series: &SeriesSamples,
        warnings: &mut SeriesWarnings,
        points: &mut Vec<Option<StepValue>>,
    ) -> Result<()> {
        points.clear();
        let shift = self.call.input.shift();
        // A fixed window is the same for all steps, but arguments may differ from step to step.
        let depends_on_step = self.call.function.step_dependence == StepDependence::Step;
        let is_fixed = shift.at.is_some() && !depends_on_step;
        let mut cursors = WindowCursors::default();
        let mut args: Vec<f64> = vec![0.0; self.numbers.len()];
        for (at, time) in self.steps.times().enumerate() {
            if at % STEPS_UNCHECKED == 0 {
                evaluation.budget.check_deadline()?;
            }
            let mut is_same = is_fixed && at > 0;
            for (arg, numbers) in args.iter_mut().zip(&self.numbers) {
                is_same &= arg.to_bits() == numbers[at].to_bits();
                *arg = numbers[at];
            }
            let point = match points.last() {
                Some(point) if is_same => point.clone(),
                _ => self.point(series, &mut cursors, time, &args, warnings)?,
            };
            points.push(point);
        }
        Ok(())
    }

    fn point(
        &self,
        series: &SeriesSamples,
        cursors: &mut WindowCursors,
        time: i64,
        args: &[f64],
        warnings: &mut SeriesWarnings,
    ) -> Result<Option<StepValue>> {
        let of = &self.call.input;
        let extension = of.extension();
        let end = of.shift().apply(time);
        let start = end.saturating_sub(of.range);
        let (after, until) = match extension {
            RangeExtension::None => (start, end),
            RangeExtension::Anchored => (start.saturating_sub(self.lookback), end),
            RangeExtension::Smoothed => {
                (start.saturating_sub(self.lookback), end.saturating_add(self.lookback))
            }
        };
        let (samples, floats, histograms) = cursors.advance(series, after, until);
        if samples.is_empty() && floats.is_empty() && histograms.is_empty() {
            return Ok(None);
        }
        let window = RangeWindow {
            span: self.span,
            time,
            start,
            end,
            range: of.range,
            extension,
            floats,
            histograms,
            is_running_total: series.is_running_total,
            args,
        };
        match self.kernel.work {
            WindowFn::Points(work) => Ok(Some(work(samples))),
            WindowFn::Window(work) => work(&window, warnings),
            WindowFn::Growth(growth) => Ok(rate::compute_growth(&window, growth, warnings)),
            WindowFn::Absent => Ok(None),
        }
    }
}

/// Whether a metric that was used as a counter does not look like one.
fn check_counter_name(
    labels: &LabelSet,
    points: &[Option<StepValue>],
    has_types: bool,
) -> Option<SeriesWarning> {
    let name = labels.name();
    let is_number = |value: &StepValue| value.number().is_some();
    if name.is_empty() || !points.iter().flatten().any(is_number) {
        return None;
    }
    if has_types {
        let kind = labels.get(TYPE);
        let is_counter = matches!(kind, "counter" | "histogram");
        return (!is_counter).then(|| SeriesWarning::NoCounterType(kind.to_owned()));
    }
    let ends = ["_total", "_sum", "_count", "_bucket"];
    (!ends.iter().any(|end| name.ends_with(end))).then_some(SeriesWarning::NoCounterName)
}

#[cfg(test)]
mod tests;
