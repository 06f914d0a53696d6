//! Evaluation of an own rule: a finding for each stream.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use hist::Bracket;
use query::{LabelSet, Source};

use super::absence::{RowAge, StreamClocks};
use super::criterion::{
    Criterion, CriterionOutcome, Measure, MeasuredValue, compare_age, compare_number, compare_texts,
};
use super::forecast::compare_forecast;
use super::formula::Formula;
use super::shape_change::compare_shapes;
use super::shared_windows::SharedWindows;
use super::stream_reader::{
    SelectedStream, StreamWindow, WindowValue, query_error, query_streams, select_streams,
};
use super::{OwnCondition, RuleSource};
use crate::alert_table::CriterionHit;
use crate::evaluator::RuleQueryError;
use crate::overlay::SourceEvaluator;

const SECOND_NS: f64 = 1e9;

/// What an evaluation needs besides the condition.
pub(crate) struct OwnInputs<'a> {
    /// Text of the query.
    pub(crate) expression: &'a str,
    pub(crate) time_ns: i64,
    /// Interval of evaluations on schedule.
    pub(crate) interval_ns: i64,
    /// Series of active alerts: only they need to be known as retired.
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
    /// Whether its evaluation failed.
    pub(crate) is_failing: bool,
}

/// A stream for which a criterion holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamElement {
    pub(crate) labels: LabelSet,
    pub(crate) hit: CriterionHit,
}

/// Findings of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamFindings {
    pub(crate) elements: Vec<StreamElement>,
    /// Streams of which no criterion holds although not all are known not to.
    pub(crate) unknown: BTreeSet<LabelSet>,
    /// Number of streams.
    pub(crate) stream_count: usize,
    /// First stream that cannot be evaluated, and why. It is unknown.
    pub(crate) failure: Option<String>,
}

/// Evaluates a condition.
pub(crate) fn evaluate_own(
    condition: &OwnCondition,
    evaluator: &SourceEvaluator<'_>,
    clocks: &mut Arc<StreamClocks>,
    inputs: &OwnInputs<'_>,
) -> Result<StreamFindings, RuleQueryError> {
    let evaluation = OwnEvaluation { condition, source: evaluator.source, inputs };
    let range = inputs.time_ns.saturating_sub(condition.window_ns)..inputs.time_ns;
    match &condition.source {
        RuleSource::Selector(selector) => {
            let streams = select_streams(evaluator.source, selector, condition.by.as_deref())
                .map_err(query_error)?;
            evaluation.selected(&streams, clocks)
        }
        RuleSource::Query(language) => {
            let windows = query_streams(evaluator, *language, inputs.expression, range)?;
            Ok(evaluation.queried(&windows))
        }
        RuleSource::Formula(formula) => Ok(evaluation.formula(formula)),
    }
}

struct OwnEvaluation<'a> {
    condition: &'a OwnCondition,
    source: &'a dyn Source,
    inputs: &'a OwnInputs<'a>,
}

impl OwnEvaluation<'_> {
    fn selected(
        &self,
        streams: &[SelectedStream],
        clocks: &mut Arc<StreamClocks>,
    ) -> Result<StreamFindings, RuleQueryError> {
        let time_ns = self.inputs.time_ns;
        let is_absence = |criterion: &Criterion| matches!(criterion.measure, Measure::Absence(_));
        let has_absence = self.condition.criteria.iter().any(is_absence);
        if has_absence {
            let clocks = Arc::make_mut(clocks);
            clocks.begin(time_ns, self.inputs.interval_ns);
            let labels: BTreeSet<&LabelSet> = streams.iter().map(|stream| &stream.labels).collect();
            clocks.retain(|known| labels.contains(known));
        }
        let mut findings =
            StreamFindings { stream_count: streams.len(), ..StreamFindings::default() };
        let windows = self.windows(streams, &mut findings);
        for (stream, window) in streams.iter().zip(windows) {
            let Some(window) = window else { continue };
            let is_watched = self.inputs.watched.contains(&stream.labels)
                || (has_absence && window.value == WindowValue::Missing);
            if is_watched && stream.is_retired(self.source, time_ns).map_err(query_error)? {
                continue;
            }
            if has_absence {
                let clock = Arc::make_mut(clocks).stream(&stream.labels);
                stream.add_rows(self.source, clock, time_ns).map_err(query_error)?;
            }
            let outcome = self.criteria(&window, Some(stream), clocks);
            findings.add(&window, outcome);
        }
        Ok(findings)
    }

    /// Window of each stream; `None` for those that cannot be read.
    fn windows(
        &self,
        streams: &[SelectedStream],
        findings: &mut StreamFindings,
    ) -> Vec<Option<Rc<StreamWindow>>> {
        let OwnInputs { expression, time_ns, shared, .. } = *self.inputs;
        if let Some(windows) = shared.find(expression, self.condition, streams) {
            return windows.into_iter().map(Some).collect();
        }
        let range = time_ns.saturating_sub(self.condition.window_ns)..time_ns;
        let mut read = |stream: &SelectedStream| {
            let window = stream.window(self.source, range.clone());
            window.map(Rc::new).map_err(|error| findings.fail(&stream.labels, error.0)).ok()
        };
        let windows: Vec<Option<Rc<StreamWindow>>> = streams.iter().map(&mut read).collect();
        shared.keep(expression, self.condition, &windows);
        windows
    }

    fn queried(&self, windows: &[StreamWindow]) -> StreamFindings {
        let mut findings =
            StreamFindings { stream_count: windows.len(), ..StreamFindings::default() };
        let clocks = StreamClocks::default();
        for window in windows {
            findings.add(window, self.criteria(window, None, &clocks));
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
        clocks: &StreamClocks,
    ) -> Result<FirstHit, String> {
        let mut is_known = true;
        for (index, criterion) in self.condition.criteria.iter().enumerate() {
            match self.criterion(criterion, window, stream, clocks)? {
                CriterionOutcome::Holds(measured) => {
                    return Ok(FirstHit::Holds(hit(index, criterion, measured)));
                }
                CriterionOutcome::Clear => {}
                CriterionOutcome::Unknown => is_known = false,
            }
        }
        Ok(if is_known { FirstHit::Clear } else { FirstHit::Unknown })
    }

    fn criterion(
        &self,
        criterion: &Criterion,
        window: &StreamWindow,
        stream: Option<&SelectedStream>,
        clocks: &StreamClocks,
    ) -> Result<CriterionOutcome, String> {
        if let Measure::Absence(after_ns) = criterion.measure {
            let age = clocks.age(&window.labels, after_ns, self.inputs.time_ns);
            return Ok(absence_outcome(age));
        }
        if window.value.count() < self.condition.min_count {
            return Ok(CriterionOutcome::Unknown);
        }
        match &criterion.measure {
            Measure::Number(measure, comparison) => {
                let seconds = self.condition.window_ns as f64 / SECOND_NS;
                compare_number(measure, comparison, window, seconds)
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
                let before_ns = self.inputs.time_ns.saturating_sub(*baseline_ns);
                let baseline = stream
                    .baseline(self.source, before_ns, self.condition.window_ns)
                    .map_err(|error| error.0)?;
                compare_shapes(mixture, &baseline, *min_shift)
            }
            Measure::OldestInFlight(least) => {
                let (WindowValue::Gauge(_), Some(stream)) = (&window.value, stream) else {
                    return Err("cannot tell the age of operations: the stream is no gauge".into());
                };
                let (time_ns, window_ns) = (self.inputs.time_ns, self.condition.window_ns);
                let range = time_ns.saturating_sub(window_ns)..time_ns;
                let age = stream.newest_number(self.source, range).map_err(|error| error.0)?;
                compare_age(age, least, &window.unit)
            }
            Measure::Forecast(forecast) => {
                let (WindowValue::Gauge(_), Some(stream)) = (&window.value, stream) else {
                    return Err("cannot forecast: the stream is no gauge".into());
                };
                let (time_ns, window_ns) = (self.inputs.time_ns, self.condition.window_ns);
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
            self.inputs.operands.iter().map(operand).collect();
        let found = operands.values().flat_map(|state| state.firing.iter().chain(&state.unknown));
        let mut streams: BTreeSet<LabelSet> = found.cloned().collect();
        streams.extend(self.inputs.watched.iter().cloned());
        if by.is_empty() {
            streams.insert(LabelSet::default());
        }
        let mut findings =
            StreamFindings { stream_count: streams.len(), ..StreamFindings::default() };
        for labels in streams {
            let is_firing = |name: &str| operands.get(name)?.is_firing(&labels);
            match formula.value(&is_firing) {
                Some(true) => {
                    let value = Bracket::exact(1.0);
                    let measured = MeasuredValue { value, threshold: None, unit: String::new() };
                    let hit = hit(0, &self.condition.criteria[0], measured);
                    findings.elements.push(StreamElement { labels, hit });
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

/// The first criterion that holds for a stream.
enum FirstHit {
    Holds(CriterionHit),
    Clear,
    Unknown,
}

impl StreamFindings {
    fn add(&mut self, window: &StreamWindow, outcome: Result<FirstHit, String>) {
        let labels = window.labels.clone();
        match outcome {
            Ok(FirstHit::Holds(hit)) => self.elements.push(StreamElement { labels, hit }),
            Ok(FirstHit::Clear) => {}
            Ok(FirstHit::Unknown) => drop(self.unknown.insert(labels)),
            Err(cause) => self.fail(&labels, cause),
        }
    }

    fn fail(&mut self, labels: &LabelSet, cause: String) {
        self.unknown.insert(labels.clone());
        self.failure.get_or_insert_with(|| format!("stream {labels}: {cause}"));
    }
}

fn hit(index: usize, criterion: &Criterion, measured: MeasuredValue) -> CriterionHit {
    CriterionHit {
        criterion: index,
        severity: criterion.severity,
        value: measured.value,
        threshold: measured.threshold,
        unit: measured.unit,
    }
}

fn absence_outcome(age: Option<RowAge>) -> CriterionOutcome {
    let Some(RowAge { age_ns, watched_ns, absent_after_ns }) = age else {
        return CriterionOutcome::Unknown;
    };
    let seconds = |ns: i64| ns as f64 / SECOND_NS;
    match (age_ns >= absent_after_ns, watched_ns >= absent_after_ns) {
        (true, true) => CriterionOutcome::Holds(MeasuredValue {
            value: Bracket::exact(seconds(age_ns)),
            threshold: Some(seconds(absent_after_ns)),
            unit: "s".to_owned(),
        }),
        // Senders have not had the time to come back since the start.
        (true, false) => CriterionOutcome::Unknown,
        (false, _) => CriterionOutcome::Clear,
    }
}
