//! Evaluation of an own rule: a finding for each stream.

mod absence_watch;
mod query_rows;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use hist::Bracket;
use query::{LabelSet, Source, WindowSource};
use store::WindowRows;

use super::absence::{AbsenceState, ObservedArrivals, StreamAbsence, StreamArrivals};
use super::clock_step::EvaluationClock;
use super::criterion::{
    Criterion, CriterionOutcome, Measure, MeasuredValue, compare_age, compare_number, compare_texts,
};
use super::finding_cache::{CachedFinding, FindingCache, StreamFinding, WindowOutcome};
use super::forecast::compare_forecast;
use super::formula::Formula;
use super::read_recorder::{QueryReads, QuerySelectors, ReadRecorder};
use super::rule_absence::AbsentStreams;
use super::shape_change::{ShapeBaseline, has_shape};
use super::shared_windows::{SelectorWindows, SharedWindows};
use super::stream_reader::{
    ReadWindow, SelectedStream, StreamWindow, WindowValue, query_error, query_streams,
    select_streams,
};
use super::{OwnCondition, RuleSource};
use crate::alert_table::CriterionMatch;
use crate::evaluator::RuleQueryError;
use crate::overlay::SourceEvaluator;

const SECOND_NS: f64 = 1e9;
/// Age of a row up to which the time of a change is that of the row.
const ROW_AGE_MAX_NS: i64 = 120 * 1_000_000_000;

/// What an evaluation needs besides the condition.
pub(crate) struct OwnInputs<'a> {
    /// Text of the query.
    pub(crate) expression: &'a str,
    pub(crate) time_ns: i64,
    /// Interval of evaluations on schedule.
    pub(crate) interval_ns: i64,
    /// Streams that are silent since an earlier time are not watched: at a restart, streams that
    /// were silent before are no news.
    pub(crate) watched_from_ns: i64,
    /// Steps of the wall clock: what is measured of rows of before a step back besides others says
    /// nothing.
    pub(crate) clock: EvaluationClock,
    /// Series of active alerts: of others, only those that fire need to be known as retired.
    pub(crate) watched: &'a BTreeSet<LabelSet>,
    /// States of the rules of a formula, by name.
    pub(crate) operands: &'a BTreeMap<String, OperandState>,
    pub(crate) shared: &'a SharedWindows,
}

/// State of a rule that a formula reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperandState {
    /// Labels of the series of firing alerts.
    pub(crate) firing: Vec<LabelSet>,
    /// Labels of the series of unknown alerts.
    pub(crate) unknown: Vec<LabelSet>,
    /// Number of the last change of its alerts: by rows, in milliseconds.
    pub(crate) changed_ms: u64,
    /// Whether its evaluation failed.
    pub(crate) is_failing: bool,
}

/// A stream for which a criterion holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamElement {
    pub(crate) labels: LabelSet,
    pub(crate) matched: CriterionMatch,
}

/// Findings of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamFindings {
    pub(crate) elements: Vec<StreamElement>,
    /// Streams of which no criterion holds although not all are known not to.
    pub(crate) unknown: BTreeSet<LabelSet>,
    /// Times of the newest rows of streams that have an active alert, or an element. Only of rows
    /// that are recent: alerts of late ones are not those of the past.
    pub(crate) row_times: BTreeMap<LabelSet, i64>,
    /// Number of streams.
    pub(crate) stream_count: usize,
    /// Streams whose rows stopped.
    pub(crate) absence: AbsentStreams,
    /// First stream that cannot be evaluated, and why. It is unknown.
    pub(crate) failure: Option<String>,
}

/// Evaluates a condition.
pub(crate) fn evaluate_own(
    condition: &OwnCondition,
    evaluator: &SourceEvaluator<'_>,
    clocks: &mut Arc<StreamArrivals>,
    cache: &mut Arc<FindingCache>,
    selectors: &mut QuerySelectors,
    inputs: &OwnInputs<'_>,
) -> Result<StreamFindings, RuleQueryError> {
    let OwnInputs { time_ns, clock, expression, .. } = *inputs;
    let evaluation =
        |is_mixed| OwnEvaluation { condition, source: evaluator.source, inputs, is_mixed };
    match &condition.source {
        RuleSource::Selector(selector) => {
            let streams = select_streams(evaluator.source, selector, condition.by.as_deref())
                .map_err(query_error)?;
            let is_mixed = clock.is_mixed(time_ns, condition.window_ns);
            evaluation(is_mixed).selected(&streams, clocks, cache)
        }
        RuleSource::Query(language) => {
            let range = time_ns.saturating_sub(condition.window_ns)..time_ns;
            // What a query reads is known when it was read.
            let recorder = ReadRecorder::new(evaluator.source);
            let recorded = SourceEvaluator { source: &recorder, ..*evaluator };
            let windows = query_streams(&recorded, *language, expression, range);
            let QueryReads { ranges, series, selectors: read } = recorder.into_reads();
            // Also those of a query that failed: other rows may be its remedy.
            selectors.add(read);
            let windows = windows?;
            let is_mixed = ranges.iter().any(|range| clock.is_range_mixed(time_ns, range));
            let evaluation = evaluation(is_mixed);
            let mut findings = evaluation.queried(&windows);
            findings.row_times = evaluation.row_times_of_query(&findings, &series);
            // The result of the query is known, even if the newest samples cannot be read.
            if evaluation.watch_metrics(series, clocks, &mut findings).is_err() {
                findings.absence.is_uncertain = true;
            }
            Ok(findings)
        }
        RuleSource::Formula(formula) => Ok(evaluation(false).formula(formula)),
    }
}

/// Reads the windows of the streams of a rule.
struct WindowReads<'a> {
    range: Range<i64>,
    windows: Option<&'a dyn WindowSource>,
    /// Windows that another rule reads, too.
    shared: Option<&'a SelectorWindows>,
}

impl WindowReads<'_> {
    fn read(
        &self,
        stream: &SelectedStream,
        source: &dyn Source,
    ) -> Result<ReadWindow, RuleQueryError> {
        if let Some(read) = self.shared.and_then(|shared| shared.find(&stream.labels)) {
            return Ok(read);
        }
        let read = stream.window(source, self.windows, self.range.clone())?;
        if let Some(shared) = self.shared {
            shared.keep(&read);
        }
        Ok(read)
    }
}

struct OwnEvaluation<'a> {
    condition: &'a OwnCondition,
    source: &'a dyn Source,
    inputs: &'a OwnInputs<'a>,
    /// Whether what is read has rows of before the wall clock was set back besides others.
    is_mixed: bool,
}

impl OwnEvaluation<'_> {
    fn selected(
        &self,
        streams: &[SelectedStream],
        clocks: &mut Arc<StreamArrivals>,
        cache: &mut Arc<FindingCache>,
    ) -> Result<StreamFindings, RuleQueryError> {
        let time_ns = self.inputs.time_ns;
        let mut walk = self.condition.follows_rows().then(|| {
            let clocks = Arc::make_mut(clocks);
            clocks.begin(time_ns, self.inputs.interval_ns, streams.len())
        });
        let mut findings =
            StreamFindings { stream_count: streams.len(), ..StreamFindings::default() };
        let range = time_ns.saturating_sub(self.condition.window_ns)..time_ns;
        let windows = self.source.windows(range.clone());
        let reads = WindowReads {
            range,
            windows: windows.as_deref(),
            shared: self.inputs.shared.of_rule(self.inputs.expression, self.condition),
        };
        // What others read than the rows of the window may change without them.
        let is_cached =
            !self.is_mixed && self.condition.criteria.iter().all(Criterion::reads_window_only);
        let mut cached_now = FindingCache::default();
        for (at, stream) in streams.iter().enumerate() {
            let is_watched = self.inputs.watched.contains(&stream.labels);
            let cached = reads
                .windows
                .filter(|_| is_cached)
                .and_then(|windows| cache.find(at, is_watched, windows, &stream.series()));
            let mut clock = walk.as_mut().map(|walk| walk.take(&stream.labels));
            let cached = match cached {
                Some(CachedFinding { rows, finding, .. }) => {
                    self.add(&stream.labels, finding.clone(), Some(rows), &mut findings);
                    self.watch(stream, Some(rows), clock.as_mut(), &mut findings)?;
                    cached.cloned()
                }
                None => self.read(stream, &reads, clock.as_mut(), &mut findings)?,
            };
            if let (Some(walk), Some(clock)) = (&mut walk, &clock) {
                walk.keep(clock);
            }
            if is_cached {
                cached_now.push(cached);
            }
        }
        *cache = Arc::new(cached_now);
        findings.absence.watched = streams.len();
        findings.note_time_of_absence();
        Ok(findings)
    }

    /// Reads a stream and adds its finding. Returns the finding for later evaluations, if it is
    /// known until when it holds.
    fn read(
        &self,
        stream: &SelectedStream,
        reads: &WindowReads<'_>,
        mut clock: Option<&mut ObservedArrivals>,
        findings: &mut StreamFindings,
    ) -> Result<Option<CachedFinding>, RuleQueryError> {
        let ReadWindow { window, rows } = match reads.read(stream, self.source) {
            Ok(read) => read,
            Err(error) => {
                findings.fail(&stream.labels, error.0);
                // Nobody knows whether it is absent still.
                findings.absence.is_uncertain |= self.condition.absence.is_some();
                return Ok(None);
            }
        };
        let time_ns = self.inputs.time_ns;
        let is_watched = self.inputs.watched.contains(&stream.labels);
        let is_missing = window.value == WindowValue::Missing;
        let has_absence = self.condition.criteria.iter().any(Criterion::is_absence);
        let is_retired = || stream.is_retired(self.source, time_ns).map_err(query_error);
        let finding = match (is_watched || (has_absence && is_missing)) && is_retired()? {
            true => StreamFinding::Retired,
            false => {
                if let Some(clock) = clock.as_deref_mut().filter(|_| has_absence) {
                    stream.add_rows(self.source, clock, time_ns).map_err(query_error)?;
                }
                match self.criteria(&window, Some(stream), clock.as_deref()) {
                    // The window may have the rows before the retirement.
                    Ok(WindowOutcome::Holds(_)) if !is_watched && is_retired()? => {
                        StreamFinding::Retired
                    }
                    measured => StreamFinding::Measured(measured),
                }
            }
        };
        self.add(&stream.labels, finding.clone(), rows.as_ref(), findings);
        let newest_ns =
            clock.as_deref().filter(|_| has_absence).and_then(ObservedArrivals::newest_ns);
        if let Some(newest_ns) = newest_ns.filter(|_| is_missing) {
            // Of an absence: whoever sees it later sees the same row.
            findings.row_times.insert(stream.labels.clone(), newest_ns);
        }
        self.watch(stream, rows.as_ref(), clock, findings)?;
        // Without rows there is little to read, and the end of a stream may be one of long ago.
        let rows = rows.filter(|_| !is_missing);
        Ok(rows.map(|rows| CachedFinding { rows, is_watched, finding }))
    }

    /// Adds the finding of a stream, and the time of its newest row where it may matter.
    fn add(
        &self,
        labels: &LabelSet,
        finding: StreamFinding,
        rows: Option<&WindowRows>,
        findings: &mut StreamFindings,
    ) {
        let is_element = matches!(finding, StreamFinding::Measured(Ok(WindowOutcome::Holds(_))));
        if is_element || self.inputs.watched.contains(labels) {
            let newest_ns = rows.and_then(WindowRows::newest_end);
            let row_times = newest_ns.and_then(|newest_ns| self.row_time(newest_ns));
            findings.row_times.extend(row_times.map(|row_ns| (labels.clone(), row_ns)));
        }
        findings.add(labels, finding);
    }

    /// The time of a row, unless it is old or later than the evaluation.
    fn row_time(&self, row_ns: i64) -> Option<i64> {
        let age_ns = self.inputs.time_ns.saturating_sub(row_ns);
        (0..=ROW_AGE_MAX_NS).contains(&age_ns).then_some(row_ns)
    }

    fn queried(&self, windows: &[StreamWindow]) -> StreamFindings {
        let mut findings =
            StreamFindings { stream_count: windows.len(), ..StreamFindings::default() };
        for window in windows {
            let finding = StreamFinding::Measured(self.criteria(window, None, None));
            findings.add(&window.labels, finding);
        }
        // A stream that the result lacks may have no data: it does not resolve.
        let known: BTreeSet<&LabelSet> = windows.iter().map(|window| &window.labels).collect();
        let absent = self.inputs.watched.iter().filter(|labels| !known.contains(labels));
        findings.unknown.extend(absent.cloned());
        findings
    }

    /// The first criterion that holds; `None` if none does.
    fn criteria(
        &self,
        window: &StreamWindow,
        stream: Option<&SelectedStream>,
        clock: Option<&ObservedArrivals>,
    ) -> Result<WindowOutcome, String> {
        let mut is_known = true;
        for (index, criterion) in self.condition.criteria.iter().enumerate() {
            match self.criterion(criterion, window, stream, clock)? {
                CriterionOutcome::Holds(measured) => {
                    return Ok(WindowOutcome::Holds(Box::new(criterion_match(
                        index, criterion, measured,
                    ))));
                }
                CriterionOutcome::Clear => {}
                CriterionOutcome::Unknown => is_known = false,
            }
        }
        Ok(if is_known { WindowOutcome::Clear } else { WindowOutcome::Unknown })
    }

    fn criterion(
        &self,
        criterion: &Criterion,
        window: &StreamWindow,
        stream: Option<&SelectedStream>,
        clock: Option<&ObservedArrivals>,
    ) -> Result<CriterionOutcome, String> {
        if let Measure::Absence(after_ns) = criterion.measure {
            let silence = clock.and_then(|clock| clock.silence(after_ns, self.inputs.time_ns));
            return Ok(absence_outcome(silence));
        }
        if self.is_mixed || window.value.count() < self.condition.min_count {
            return Ok(CriterionOutcome::Unknown);
        }
        let (time_ns, window_ns) = (self.inputs.time_ns, self.condition.window_ns);
        match &criterion.measure {
            Measure::Number(measure, comparison) => {
                let seconds = window_ns as f64 / SECOND_NS;
                compare_number(measure, comparison, window, seconds)
            }
            Measure::UsersAbove(users) => {
                let (WindowValue::Distribution(_), Some(stream)) = (&window.value, stream) else {
                    return Err("cannot count users: the stream has no distributions".into());
                };
                let range = time_ns.saturating_sub(window_ns)..time_ns;
                users.compare(stream, self.source, range, &window.unit)
            }
            Measure::TextMatch(_) | Measure::TextChange => {
                Ok(compare_texts(&criterion.measure, window))
            }
            Measure::ShapeChange { baseline_ns, min_shift } => {
                let WindowValue::Distribution(mixture) = &window.value else {
                    return Err("cannot compare shapes: the stream has no distributions".into());
                };
                let Some(stream) = stream else {
                    return Err("cannot compare shapes: the rule has no selector".into());
                };
                if !has_shape(mixture) {
                    return Ok(CriterionOutcome::Unknown);
                }
                let before_ns = time_ns.saturating_sub(*baseline_ns);
                let windows =
                    stream.baseline(self.source, before_ns, window_ns).map_err(|error| error.0)?;
                let baseline = ShapeBaseline::new(&windows)?;
                Ok(baseline.map_or(CriterionOutcome::Unknown, |baseline| {
                    baseline.compare(mixture, *min_shift)
                }))
            }
            Measure::SavedShape { baseline, min_shift } => {
                let WindowValue::Distribution(mixture) = &window.value else {
                    return Err("cannot compare shapes: the stream has no distributions".into());
                };
                baseline.compare((&window.labels, &window.unit), mixture, *min_shift)
            }
            Measure::OldestInFlight(least) => {
                let (WindowValue::Gauge(_), Some(stream)) = (&window.value, stream) else {
                    return Err("cannot tell the age of operations: the stream is no gauge".into());
                };
                let range = time_ns.saturating_sub(window_ns)..time_ns;
                let age = stream.newest_number(self.source, range).map_err(|error| error.0)?;
                compare_age(age, least, &window.unit)
            }
            Measure::Forecast(forecast) => {
                let (WindowValue::Gauge(_), Some(stream)) = (&window.value, stream) else {
                    return Err("cannot forecast: the stream is no gauge".into());
                };
                let points = stream
                    .extremes(self.source, time_ns, window_ns, forecast.is_rise())
                    .map_err(|error| error.0)?;
                compare_forecast(forecast, &window.unit, window_ns, &points)
            }
            Measure::Absence(_) | Measure::Formula => Ok(CriterionOutcome::Unknown),
        }
    }

    /// A finding for each set of values of the labels of `by`.
    fn formula(&self, formula: &Formula) -> StreamFindings {
        let by = self.condition.by.as_deref().unwrap_or_default();
        let project = |labels: &LabelSet| labels.filter(|name| by.iter().any(|by| by == name));
        let project_all = |all: &[LabelSet]| all.iter().map(project).collect::<BTreeSet<_>>();
        let operand = |(name, state): (&String, &OperandState)| {
            let (firing, unknown) = (project_all(&state.firing), project_all(&state.unknown));
            (name.clone(), ProjectedOperand { firing, unknown, is_failing: state.is_failing })
        };
        let operands: BTreeMap<String, ProjectedOperand> =
            model::sort::map(self.inputs.operands.iter().map(operand));
        let found = operands.values().flat_map(|state| state.firing.iter().chain(&state.unknown));
        let mut streams: BTreeSet<LabelSet> = found.cloned().collect();
        streams.extend(self.inputs.watched.iter().cloned());
        if by.is_empty() {
            streams.insert(LabelSet::default());
        }
        let mut findings =
            StreamFindings { stream_count: streams.len(), ..StreamFindings::default() };
        let changed_ms = self.inputs.operands.values().map(|state| state.changed_ms).max();
        let changed_ns = changed_ms.and_then(|ms| i64::try_from(ms).ok()?.checked_mul(1_000_000));
        let row_ns = changed_ns.and_then(|changed_ns| self.row_time(changed_ns));
        for labels in streams {
            findings.row_times.extend(row_ns.map(|row_ns| (labels.clone(), row_ns)));
            let is_firing = |name: &str| operands.get(name)?.is_firing(&labels);
            match formula.value(&is_firing) {
                Some(true) => {
                    let value = Bracket::exact(1.0);
                    let measured = MeasuredValue { value, threshold: None, unit: String::new() };
                    let matched = criterion_match(0, &self.condition.criteria[0], measured);
                    findings.elements.push(StreamElement { labels, matched });
                }
                Some(false) => {}
                None => drop(findings.unknown.insert(labels)),
            }
        }
        findings
    }
}

/// State of a rule that a formula reads, by the values of the labels of `by`.
struct ProjectedOperand {
    firing: BTreeSet<LabelSet>,
    unknown: BTreeSet<LabelSet>,
    is_failing: bool,
}

impl ProjectedOperand {
    fn is_firing(&self, labels: &LabelSet) -> Option<bool> {
        match (self.firing.contains(labels), self.unknown.contains(labels) || self.is_failing) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        }
    }
}

impl StreamFindings {
    fn add(&mut self, labels: &LabelSet, finding: StreamFinding) {
        let labels = labels.clone();
        match finding {
            StreamFinding::Retired | StreamFinding::Measured(Ok(WindowOutcome::Clear)) => {}
            StreamFinding::Measured(Ok(WindowOutcome::Holds(matched))) => {
                self.elements.push(StreamElement { labels, matched: *matched });
            }
            StreamFinding::Measured(Ok(WindowOutcome::Unknown)) => {
                self.unknown.insert(labels);
            }
            StreamFinding::Measured(Err(cause)) => self.fail(&labels, cause),
        }
    }

    fn fail(&mut self, labels: &LabelSet, cause: String) {
        self.unknown.insert(labels.clone());
        self.failure.get_or_insert_with(|| format!("stream {labels}: {cause}"));
    }
}

fn criterion_match(index: usize, criterion: &Criterion, measured: MeasuredValue) -> CriterionMatch {
    CriterionMatch {
        criterion: index,
        severity: criterion.severity,
        value: measured.value,
        threshold: measured.threshold,
        unit: measured.unit,
    }
}

fn absence_outcome(silence: Option<StreamAbsence>) -> CriterionOutcome {
    let Some(StreamAbsence { state, age_ns, absent_after_ns }) = silence else {
        return CriterionOutcome::Unknown;
    };
    let seconds = |ns: i64| ns as f64 / SECOND_NS;
    match state {
        AbsenceState::Absent => CriterionOutcome::Holds(MeasuredValue {
            value: Bracket::exact(seconds(age_ns)),
            threshold: Some(seconds(absent_after_ns)),
            unit: "s".to_owned(),
        }),
        AbsenceState::Uncertain => CriterionOutcome::Unknown,
        AbsenceState::Present => CriterionOutcome::Clear,
    }
}
