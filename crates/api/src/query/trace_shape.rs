//! `/v1/breakdown/trace-shape`: in which operations the traces of a selection spend more time than
//! the others, estimated from the traces of exemplars by their weights.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{ControlFlow, Range};

use decode::spans::trace::{Trace, TraceSpan};
use model::TraceId;
use query::trace_shape::{OperationGrowth, TRACES_MIN, TraceShape, compare_shapes};
use store::{HOUR, ReadView, Store};

use super::exemplars::ExemplarSeries;
use super::{TRACE_SHAPE, selection};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Integer, List, Object, Text};
use crate::json::{integer, number};
use crate::parameters::{Parameters, SELECTOR_SYNTAX};

/// Exemplars of a side that are looked at.
const EXEMPLARS_MAX: usize = 1000;
/// Traces of a side that are read.
const TRACES_MAX: usize = 100;
/// Spans of a trace that are read: further ones are left out.
const TRACE_BYTES_MAX: usize = 4 << 20;
/// Memory of a trace that is read, per byte.
const READ_FACTOR: usize = 4;
/// Operations in an answer.
const OPERATIONS_MAX: usize = 50;

/// A weighted sample of traces.
type TraceWeights = Vec<(TraceId, f64)>;

pub(super) async fn trace_shape(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(TRACE_SHAPE)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let timeout = parameters.timeout()?;
    parameters.required("selector", SELECTOR_SYNTAX)?;
    let range = time_range(&parameters, ("from", "to"), now, None)?;
    let baseline =
        time_range(&parameters, ("baseline_from", "baseline_to"), now, Some(range.clone()))?;
    let store = queries.store()?;
    let (requested, estimated) = (parameters.clone(), baseline.clone());
    let estimate = move |view: &ReadView, _: &ActiveQuery| {
        let ends = (Some(estimated.start), Some(estimated.end));
        let rows = |selector| selection::estimate_rows(view, &selector, ends, 1);
        requested.selectors("selector").map_or(0, rows)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let series_max = queries.settings.limits.series;
        let selected = ExemplarSeries::find(&parameters, view, (series_max, active))?;
        let (above, up_to) = (selected.above, selected.up_to);
        let all = (f64::NEG_INFINITY, f64::INFINITY);
        let place = (view, &*store, active);
        let inside = selected.select(place, &range, (above, up_to), EXEMPLARS_MAX)?.0;
        let outside = selected.select(place, &baseline, all, EXEMPLARS_MAX)?.0;
        let inside = weights(
            inside
                .exemplars
                .iter()
                .map(|one| (one.exemplar.trace_id, one.exemplar.value, one.weight)),
        );
        let ids: HashSet<TraceId> = inside.iter().map(|(trace_id, _)| *trace_id).collect();
        let others = outside.exemplars.iter().filter(|one| {
            let of = &one.exemplar;
            let is_within = range.contains(&of.time) && of.value > above && of.value <= up_to;
            !is_within && !ids.contains(&of.trace_id)
        });
        let outside =
            weights(others.map(|one| (one.exemplar.trace_id, one.exemplar.value, one.weight)));
        let exemplars = [inside.len(), outside.len()];
        let mut operations = BTreeMap::new();
        let inside = read_shapes(&store, &inside, &mut operations, active)?;
        let outside = read_shapes(&store, &outside, &mut operations, active)?;
        let found = document(&operations, (&inside, &outside), exemplars);
        let mut fields = vec![
            ("schema", integer(1)),
            ("source", Text("trace-shape".to_owned())),
            ("selector", Text(selected.selector.clone())),
            ("start_ns", Integer(range.start.into())),
            ("end_ns", Integer(range.end.into())),
            ("baseline_start_ns", Integer(baseline.start.into())),
            ("baseline_end_ns", Integer(baseline.end.into())),
        ];
        fields.extend(found);
        active.json_response(&Object(fields))
    };
    context.run_query("trace_shape", timeout, estimate, work).await
}

/// What was found, from the numbers of traces with exemplars of both sides.
fn document(
    operations: &BTreeMap<(String, String), usize>,
    (inside, outside): (&[TraceShape], &[TraceShape]),
    exemplars: [usize; 2],
) -> Vec<(&'static str, Json)> {
    let mut names: Vec<_> = operations.iter().collect();
    names.sort_unstable_by_key(|(_, number)| **number);
    let mut growth = compare_shapes(names.len(), inside, outside);
    growth.truncate(OPERATIONS_MAX);
    let bracket = |of: hist::Bracket<f64>| {
        Object(vec![
            ("lower", number(of.lower)),
            ("estimate", number(of.estimate)),
            ("upper", number(of.upper)),
        ])
    };
    let operation = |of: &OperationGrowth| {
        let name = names.get(of.operation).map(|(name, _)| *name);
        let (service, name) = name.cloned().unwrap_or_default();
        Object(vec![
            ("service", Text(service)),
            ("name", Text(name)),
            ("inside", bracket(of.inside)),
            ("outside", bracket(of.outside)),
        ])
    };
    let side = |exemplars: usize, shapes: &[TraceShape]| {
        let stored = integer(shapes.len() as u64);
        Object(vec![("exemplars", integer(exemplars as u64)), ("stored", stored)])
    };
    vec![
        ("unit", Text("ns".to_owned())),
        ("inside", side(exemplars[0], inside)),
        ("outside", side(exemplars[1], outside)),
        ("traces_min", integer(TRACES_MIN as u64)),
        ("operations", List(growth.iter().map(operation).collect())),
    ]
}

/// A range; by default another one, or the last hour.
fn time_range(
    parameters: &Parameters,
    (from, to): (&'static str, &'static str),
    now: i64,
    default: Option<Range<i64>>,
) -> Result<Range<i64>, ApiError> {
    let given = (parameters.time(from, now)?, parameters.time(to, now)?);
    let end = given.1.unwrap_or(default.as_ref().map_or(now, |range| range.end));
    let start = given.0.unwrap_or(default.map_or(end.saturating_sub(HOUR), |range| range.start));
    match start < end && end.checked_sub(start).is_some() {
        true => Ok(start..end),
        false => {
            let found = parameters.get(from).unwrap_or("");
            Err(ApiError::invalid_parameter(from, found, "a time before the end of its range"))
        }
    }
}

/// Weights by trace: one may have several exemplars. At most [`TRACES_MAX`] of all sizes.
fn weights(exemplars: impl Iterator<Item = (TraceId, f64, Option<f64>)>) -> TraceWeights {
    let mut exemplars: Vec<_> = exemplars.filter(|(trace_id, ..)| *trace_id != [0; 16]).collect();
    exemplars.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let (mut order, mut sums) = (Vec::new(), HashMap::new());
    for (trace_id, _, weight) in exemplars {
        *sums.entry(trace_id).or_insert_with(|| {
            order.push(trace_id);
            0.0
        }) += weight.unwrap_or(1.0);
    }
    let step = (order.len() as f64 / TRACES_MAX as f64).max(1.0);
    let chosen = (0..order.len().min(TRACES_MAX)).filter_map(|at| {
        let trace_id = order.get((at as f64 * step) as usize)?;
        Some((*trace_id, *sums.get(trace_id)?))
    });
    chosen.collect()
}

/// The shapes of the traces that are stored. Operations are service and name, with their numbers.
fn read_shapes(
    store: &Store,
    traces: &[(TraceId, f64)],
    operations: &mut BTreeMap<(String, String), usize>,
    active: &ActiveQuery,
) -> Result<Vec<TraceShape>, ApiError> {
    let mut ids: Vec<TraceId> = traces.iter().map(|(trace_id, _)| *trace_id).collect();
    ids.sort_unstable();
    let (mut found, mut failure) = (HashMap::<TraceId, Vec<u8>>::new(), None);
    store.traces(&ids, &mut |spans| {
        let of = found.entry(spans.trace_id).or_default();
        let reserve = || active.reserve(spans.spans.len().saturating_mul(READ_FACTOR));
        match active.check_cancelled().and_then(|()| reserve()) {
            Ok(()) if of.len() + spans.spans.len() <= TRACE_BYTES_MAX => {
                of.extend_from_slice(spans.spans);
            }
            Ok(()) => {}
            Err(error) => failure = Some(error),
        }
        if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    failure.map_or(Ok(()), Err)?;
    let mut shapes = Vec::new();
    for (trace_id, weight) in traces {
        active.check_cancelled()?;
        let Some(spans) = found.get(trace_id).filter(|spans| !spans.is_empty()) else { continue };
        let trace = Trace::read(spans);
        let mut self_times: BTreeMap<usize, f64> = BTreeMap::new();
        let mut own = trace.self_times().into_iter();
        for spans in trace.by_resource() {
            let service = spans.first().map(TraceSpan::service).unwrap_or_default();
            let mut numbers = HashMap::new();
            for (span, own) in spans.iter().zip(own.by_ref()) {
                let number = *numbers.entry(span.name).or_insert_with(|| {
                    let next = operations.len();
                    let operation = (service.clone(), span.name.to_owned());
                    *operations.entry(operation).or_insert(next)
                });
                *self_times.entry(number).or_default() += own as f64;
            }
        }
        shapes.push(TraceShape { weight: *weight, self_times });
    }
    Ok(shapes)
}
