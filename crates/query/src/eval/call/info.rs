//! `info`: adds labels of the matching info series, such as `target_info`.
//!
//! An info series matches a stream if both have the same `instance` and `job`. It is looked up at
//! the timestamp of the stream's samples if that is the same for all of them at each step.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::Selector;
use model::selector::Pattern;

use crate::error::{Error, Result};
use crate::eval::select::{advance, is_stale_marker};
use crate::eval::{Evaluation, merge_equal_labels};
use crate::labels::{LabelSet, NAME};
use crate::plan::{
    OperandKind, PlanNode, PlanOp, RangeExtension, RangeSource, SeriesFetch, TimeShift,
};
use crate::promql::{MatchOp, Matcher, ValueType};
use crate::stream::{StepGrid, Stream};

use super::{FunctionCall, unwrap_once};

/// Labels that identify the info series of a stream.
const IDENTITY_LABELS: [&str; 2] = ["instance", "job"];
/// Default info series.
const TARGET_INFO: &str = "target_info";
/// Maximum number of values of a label in a selector; above this, all series are read and filtered
/// by label.
const VALUES_MAX: usize = 64;

pub(crate) fn info(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let selection = InfoSelection::new(call.args.get(1));
    let streams = evaluation.streams(&call.args[0], call.steps)?;
    let sample_count = super::samples(&streams);
    let fetch = SeriesFetch {
        selector: Selector::and(vec![
            selection.selector.clone(),
            select_same_identity(&streams, &selection),
        ]),
        matchers: Vec::new(),
        shift: shared_shift(&call.args[0]).unwrap_or_default(),
        extension: RangeExtension::None,
        detects_resets: false,
        span: call.span,
    };
    let are_any = streams.iter().any(|stream| selection.identity(stream).is_some());
    let infos = if are_any { evaluation.infos(&fetch, call.steps)? } else { Vec::new() };
    let mut enriched = Vec::with_capacity(streams.len());
    for stream in streams {
        evaluation.budget.check_deadline()?;
        match selection.identity(&stream) {
            Some(identity) => selection.enrich(stream, &identity, &infos, call, &mut enriched)?,
            None if selection.is_info(&stream) => enriched.push(stream),
            None => {
                selection.enrich(stream, &[""; 2].map(str::to_owned), &[], call, &mut enriched)?
            }
        }
    }
    evaluation.replace_streams(sample_count, &mut enriched)?;
    merge_equal_labels(enriched, call.span)
}

/// Values of [`IDENTITY_LABELS`].
type InfoIdentity = [String; 2];

/// Info series with the timestamp of its latest sample at each step.
struct InfoSeries {
    labels: LabelSet,
    times: Vec<Option<i64>>,
}

/// Selection of info series and labels.
struct InfoSelection {
    selector: Selector,
    names: Vec<Matcher>,
    /// Labels to copy; all if empty.
    labels: BTreeSet<String>,
    /// Whether streams without an info series are kept.
    may_lack: bool,
}

impl InfoSelection {
    fn new(selection: Option<&PlanNode>) -> InfoSelection {
        let (selector, matchers) = match selection.map(|node| &unwrap_once(node).op) {
            Some(PlanOp::Latest(fetch)) => (fetch.selector.clone(), fetch.matchers.clone()),
            _ => (Selector::All, Vec::new()),
        };
        let (mut names, others): (Vec<Matcher>, Vec<Matcher>) =
            matchers.into_iter().partition(|matcher| matcher.name == NAME);
        let is_positive = |matcher: &Matcher| matches!(matcher.op, MatchOp::Equal | MatchOp::Regex);
        let mut selectors = vec![selector];
        if names.is_empty() {
            names.push(Matcher::label_equals(NAME, TARGET_INFO));
            selectors.push(Selector::tag(NAME, Pattern::Exact(TARGET_INFO.to_owned())));
        } else if !names.iter().any(is_positive) {
            let any_info = Matcher::new(NAME, MatchOp::Regex, ".+_info");
            names.push(any_info.expect("BUG: the regex is valid"));
            selectors.push(Selector::tag(NAME, Pattern::Glob("?*_info".to_owned())));
        }
        InfoSelection {
            selector: Selector::and(selectors),
            names,
            may_lack: others.iter().all(|matcher| matcher.matches("")),
            labels: others.into_iter().map(|matcher| matcher.name).collect(),
        }
    }

    /// Whether a stream is itself an info series, which is returned unchanged.
    fn is_info(&self, stream: &Stream) -> bool {
        self.names.iter().all(|matcher| matcher.matches(stream.labels.name()))
    }

    /// Identity of a stream for the lookup; `None` if it has none.
    fn identity(&self, stream: &Stream) -> Option<InfoIdentity> {
        let identity = identity_of(&stream.labels);
        let is_known = identity.iter().any(|value| !value.is_empty());
        (is_known && !self.is_info(stream)).then_some(identity)
    }

    /// Stream with the labels of its info series, which may change from step to step.
    fn enrich(
        &self,
        mut stream: Stream,
        identity: &InfoIdentity,
        infos: &[InfoSeries],
        call: &FunctionCall<'_>,
        enriched: &mut Vec<Stream>,
    ) -> Result<()> {
        let mut info_labels: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, info) in infos.iter().enumerate() {
            if identity_of(&info.labels) == *identity {
                info_labels.entry(info.labels.name()).or_default().push(at);
            }
        }
        // Index in `enriched` of the stream with the labels of these info series; `None` if the
        // stream is dropped.
        let mut indexes: HashMap<Vec<usize>, Option<usize>> = HashMap::new();
        for step in 0..stream.points.len() {
            let Some(value) = stream.points[step].take() else { continue };
            let found = info_labels.values().map(|of_name| latest_info(of_name, infos, step, call));
            let found: Vec<usize> = found.filter_map(Result::transpose).collect::<Result<_>>()?;
            let index = match indexes.get(&found) {
                Some(index) => *index,
                None => {
                    let labels = self.labels_with(&stream.labels, &found, infos, call)?;
                    let index = labels.map(|labels| {
                        let points = vec![None; stream.points.len()];
                        let drops_name = stream.drops_name;
                        enriched.push(Stream { labels, drops_name, points });
                        enriched.len() - 1
                    });
                    indexes.insert(found, index);
                    index
                }
            };
            if let Some(index) = index {
                enriched[index].points[step] = Some(value);
            }
        }
        Ok(())
    }

    /// Labels of a stream and its info series.
    fn labels_with(
        &self,
        base: &LabelSet,
        found: &[usize],
        infos: &[InfoSeries],
        call: &FunctionCall<'_>,
    ) -> Result<Option<LabelSet>> {
        if found.is_empty() && !self.may_lack {
            return Ok(None);
        }
        let mut more: BTreeMap<&str, &str> = BTreeMap::new();
        for (label, value) in found.iter().flat_map(|at| infos[*at].labels.iter()) {
            let is_wanted = self.labels.is_empty() || self.labels.contains(label);
            if label == NAME || !is_wanted || !base.get(label).is_empty() {
                continue;
            }
            if more.insert(label, value).is_some_and(|other| other != value) {
                let message = format!("conflicting label: {label}");
                return Err(Error::Execution { span: call.span, message });
            }
        }
        Ok(Some(LabelSet::new(base.iter().chain(more))))
    }
}

fn identity_of(labels: &LabelSet) -> InfoIdentity {
    IDENTITY_LABELS.map(|label| labels.get(label).to_owned())
}

/// For each info metric name, the series with the latest sample at a step.
fn latest_info(
    of_name: &[usize],
    infos: &[InfoSeries],
    step: usize,
    call: &FunctionCall<'_>,
) -> Result<Option<usize>> {
    let mut latest: Option<(i64, usize)> = None;
    for &at in of_name {
        let Some(time) = infos[at].times[step] else { continue };
        match latest {
            Some((other_time, other)) if other_time == time => {
                let (existing, new) = (&infos[other].labels, &infos[at].labels);
                let millis = time / 1_000_000;
                let message = format!(
                    "found duplicate series for info metric: existing {existing} @ {millis}, \
                     new {new} @ {millis}"
                );
                return Err(Error::Execution { span: call.span, message });
            }
            Some((other_time, _)) if other_time > time => {}
            _ => latest = Some((time, at)),
        }
    }
    Ok(latest.map(|(_, at)| at))
}

/// Selector of a superset of the series that have the identity of some stream.
fn select_same_identity(streams: &[Stream], selection: &InfoSelection) -> Selector {
    // Grouped by the identity labels that are present: an absent label must be absent in the info
    // series too.
    let mut kinds: BTreeMap<[bool; 2], [BTreeSet<String>; 2]> = BTreeMap::new();
    for identity in streams.iter().filter_map(|stream| selection.identity(stream)) {
        let kind = [!identity[0].is_empty(), !identity[1].is_empty()];
        let values = kinds.entry(kind).or_default();
        let [instance, job] = identity;
        values[0].insert(instance);
        values[1].insert(job);
    }
    let of_label = |(label, values): (&str, BTreeSet<String>)| match values.len() {
        ..=VALUES_MAX => {
            let equal = |value| Selector::tag(label, Pattern::Exact(value));
            Selector::or(values.into_iter().map(equal).collect())
        }
        _ => Selector::tag(label, Pattern::Glob("*".to_owned())),
    };
    let of_kind = |values: [BTreeSet<String>; 2]| {
        Selector::and(IDENTITY_LABELS.into_iter().zip(values).map(of_label).collect())
    };
    Selector::or(kinds.into_values().map(of_kind).collect())
}

impl Evaluation<'_> {
    /// Info series and the timestamps of their samples.
    fn infos(&mut self, fetch: &SeriesFetch, steps: StepGrid) -> Result<Vec<InfoSeries>> {
        let lookback = self.settings.lookback;
        let timestamps = || steps.times().map(|time| fetch.shift.apply(time));
        let start = timestamps().min().unwrap_or_default().saturating_sub(lookback);
        let end = timestamps().max().unwrap_or_default();
        let mut infos = Vec::new();
        for (labels, handles) in self.series(fetch, &(start..end))? {
            let samples = self.samples(&handles, start..end)?;
            let mut next = 0;
            let mut times = Vec::with_capacity(steps.count);
            for timestamp in timestamps() {
                next = advance(&samples, next, timestamp);
                let latest = next.checked_sub(1).map(|at| &samples[at]);
                let latest = latest.filter(|reading| {
                    reading.time > timestamp.saturating_sub(lookback)
                        && !is_stale_marker(&reading.value)
                });
                if latest.is_some_and(|sample| sample.value.is_distribution()) {
                    let message =
                        format!("this should be an info metric, with float samples: {labels}");
                    return Err(Error::Execution { span: fetch.span, message });
                }
                times.push(latest.map(|sample| sample.time));
            }
            infos.push(InfoSeries { labels, times });
        }
        Ok(infos)
    }
}

/// Time shift of a vector's samples against the step; `None` if selectors differ, or if a part of
/// the vector has no selector. Selectors within scalars are ignored.
fn shared_shift(node: &PlanNode) -> Option<TimeShift> {
    let mut search = ShiftSearch { shared: None, is_uniform: true };
    search.inspect(node, &mut Vec::new());
    search.shared.filter(|_| search.is_uniform)
}

struct ShiftSearch {
    shared: Option<TimeShift>,
    is_uniform: bool,
}

impl ShiftSearch {
    /// Whether the node contains a selector.
    fn inspect(&mut self, node: &PlanNode, subqueries: &mut Vec<TimeShift>) -> bool {
        if is_scalar(node) {
            return false;
        }
        let found = match &node.op {
            PlanOp::Latest(fetch) => return self.selector(fetch.shift, subqueries),
            PlanOp::Exact(exact) => return self.selector(exact.fetch.shift, subqueries),
            PlanOp::Once(inner) | PlanOp::Negate(inner) => return self.inspect(inner, subqueries),
            PlanOp::Shared(shared) => return self.inspect(&shared.node, subqueries),
            PlanOp::RangeFunction(over) => match &over.input.source {
                RangeSource::Series(fetch) => return self.selector(fetch.shift, subqueries),
                RangeSource::Subquery { inner, shift, .. } => {
                    subqueries.push(*shift);
                    let found = self.inspect(inner, subqueries);
                    subqueries.pop();
                    found
                }
            },
            PlanOp::Call { function, args } if function.label_matchers_arg.is_some() => {
                return self.inspect(&args[0], subqueries);
            }
            PlanOp::Call { args, .. } => self.inspect_any(args.iter(), subqueries),
            PlanOp::Aggregate(aggregate) => {
                self.inspect_any([&aggregate.input].into_iter(), subqueries)
            }
            PlanOp::Binary(binary) => {
                self.inspect_any([&binary.left.1, &binary.right.1].into_iter(), subqueries)
            }
            PlanOp::Number(_)
            | PlanOp::Duration(_)
            | PlanOp::Text(_)
            | PlanOp::RangeSelection(_)
            | PlanOp::Stage(_) => false,
        };
        self.is_uniform &= found;
        found
    }

    fn inspect_any<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a PlanNode>,
        subqueries: &mut Vec<TimeShift>,
    ) -> bool {
        // All nodes are inspected, whatever the result for the others.
        nodes.filter(|node| self.inspect(node, subqueries)).count() > 0
    }

    fn selector(&mut self, mut shift: TimeShift, subqueries: &[TimeShift]) -> bool {
        // Enclosing subqueries add their shifts, up to a fixed timestamp.
        for outer in subqueries.iter().rev() {
            if shift.at.is_none() {
                shift.offset = shift.offset.saturating_add(outer.offset);
                shift.at = outer.at;
            }
        }
        let is_same = |other: TimeShift| match (shift.at, other.at) {
            (None, None) => shift.offset == other.offset,
            (Some(_), Some(_)) => shift.apply(0) == other.apply(0),
            _ => false,
        };
        match self.shared {
            None => self.shared = Some(shift),
            Some(other) => self.is_uniform &= is_same(other),
        }
        true
    }
}

/// Whether a node is a scalar or a string.
fn is_scalar(node: &PlanNode) -> bool {
    match &node.op {
        PlanOp::Number(_) | PlanOp::Duration(_) | PlanOp::Text(_) => true,
        PlanOp::Once(inner) | PlanOp::Negate(inner) => is_scalar(inner),
        PlanOp::Shared(shared) => is_scalar(&shared.node),
        PlanOp::Call { function, .. } => function.returns == ValueType::Scalar,
        PlanOp::Binary(binary) => {
            matches!((binary.left.0, binary.right.0), (OperandKind::Scalar, OperandKind::Scalar))
        }
        _ => false,
    }
}
