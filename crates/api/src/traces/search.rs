//! Search of traces, and names and values of attributes: the stored spans of a range are read, the
//! latest first.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::{ControlFlow, Range};

use axum::extract::Path;
use axum::response::Response;
use decode::spans::trace::{Trace, TraceSpan, id_text};
use model::{TraceId, TraceSpans};
use prometheus_json::write_list;
use store::{HOUR, Store};

use super::json;
use super::span_filter::{SpanFilter, each_value};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::context::Context;
use crate::json::write_text;
use crate::parameters::Parameters;

const LIMIT: usize = 20;
const LIMIT_MAX: usize = 1000;
const SPANS: usize = 3;
const SPANS_MAX: usize = 100;
/// Names or values of attributes in an answer.
const NAMES_MAX: usize = 1000;
/// Stored spans that are read for names and values, uncompressed.
const NAMES_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of a service and of a name in an answer; a longer text is cut.
const TEXT_BYTES_MAX: usize = 256;
/// Longer names and values of attributes are left out: only lists and the like are longer.
const VALUE_BYTES_MAX: usize = 2048;
/// Memory of a trace while traces are searched, with the texts.
const FOUND_BYTES: usize = 256 + 2 * TEXT_BYTES_MAX;
/// Memory of the id of a span that meets the conditions.
const MATCHED_BYTES: usize = 24;
/// Memory of a trace's spans while they are looked at, per byte.
const READ_FACTOR: usize = 4;
/// Tempo's text for a trace without its root.
const NO_ROOT: &str = "<root span not yet received>";
const INTRINSICS: [&str; 4] = ["duration", "kind", "name", "status"];

/// What was found of a trace.
#[derive(Debug, Default)]
struct FoundTrace {
    start: u64,
    end: u64,
    /// Rank, service and name of the root: a span without a parent is the first.
    root: Option<((bool, u64), String, String)>,
    /// Ids and kinds of spans that meet the conditions: a span may come twice.
    matched: HashSet<([u8; 8], u8)>,
    /// Id, start and duration.
    spans: Vec<([u8; 8], u64, u64)>,
}

impl FoundTrace {
    fn add(&mut self, trace: &Trace<'_>, filter: &SpanFilter, spans_max: usize) {
        for span in &trace.spans {
            let is_first = self.end == 0;
            self.start = if is_first { span.start } else { self.start.min(span.start) };
            self.end = self.end.max(span.end);
            let is_new = filter.is_met(span) && self.matched.insert((span.span_id, span.kind));
            if is_new && self.spans.len() < spans_max {
                let duration = span.end.saturating_sub(span.start);
                self.spans.push((span.span_id, span.start, duration));
            }
        }
        let Some(root) = trace.root() else { return };
        let rank = (root.parent_id.is_some(), root.start);
        if self.root.as_ref().is_none_or(|known| rank < known.0) {
            self.root = Some((rank, cut(&root.service()), cut(root.name)));
        }
    }

    fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The beginning of a text.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

/// Parameters of a search.
struct TraceSearch {
    filter: SpanFilter,
    durations: Range<u64>,
    limit: usize,
    spans_max: usize,
    range: Range<i64>,
}

impl TraceSearch {
    fn parse(parameters: &Parameters, now: i64) -> Result<TraceSearch, ApiError> {
        let tags = SpanFilter::from_tags(parameters.get("tags").unwrap_or_default())?;
        let filter = match parameters.get("q") {
            Some(text) => tags.and(SpanFilter::from_traceql(text)?),
            None => tags,
        };
        let duration = |name: &str| -> Result<Option<u64>, ApiError> {
            Ok(parameters.duration(name)?.map(i64::unsigned_abs))
        };
        let longest =
            duration("maxDuration")?.map_or(u64::MAX, |longest| longest.saturating_add(1));
        Ok(TraceSearch {
            filter,
            durations: duration("minDuration")?.unwrap_or(0)..longest,
            limit: parameters.integer("limit", LIMIT, LIMIT_MAX)?.max(1),
            spans_max: parameters.integer("spss", SPANS, SPANS_MAX)?,
            range: time_range(parameters, now)?,
        })
    }

    fn is_match(&self, trace: &FoundTrace) -> bool {
        let is_in_range = trace.end >= self.range.start.max(0).unsigned_abs()
            && trace.start <= self.range.end.max(0).unsigned_abs();
        !trace.matched.is_empty() && self.durations.contains(&trace.duration()) && is_in_range
    }
}

/// The range: the last hour by default.
fn time_range(parameters: &Parameters, now: i64) -> Result<Range<i64>, ApiError> {
    let end = parameters.time("end", now)?.unwrap_or(now);
    let start = parameters.time("start", now)?.unwrap_or_else(|| end.saturating_sub(HOUR));
    match start <= end {
        true => Ok(start..end),
        false => {
            let found = parameters.get("start").unwrap_or_default();
            Err(ApiError::invalid_parameter("start", found, "a time before end"))
        }
    }
}

pub(super) async fn search(context: Context, parameters: Parameters) -> Result<Response, ApiError> {
    let search = TraceSearch::parse(&parameters, context.intake.now())?;
    let store = context.queries.store()?;
    let work = move |active: &ActiveQuery| {
        let mut found: HashMap<TraceId, FoundTrace> = HashMap::new();
        let mut bytes = 0;
        scan(&store, &search.range, active, &mut |spans| {
            let Some(spans) = spans else {
                let matches = found.values().filter(|trace| search.is_match(trace)).count();
                return Ok(matches < search.limit);
            };
            bytes += spans.spans.len() as u64;
            if !found.contains_key(&spans.trace_id) {
                active.reserve(FOUND_BYTES + search.spans_max * 24)?;
            }
            let trace = found.entry(spans.trace_id).or_default();
            let before = trace.matched.len();
            trace.add(&Trace::read(spans.spans), &search.filter, search.spans_max);
            active.reserve((trace.matched.len() - before) * MATCHED_BYTES)?;
            Ok(true)
        })?;
        let inspected = found.len();
        let mut matches: Vec<(TraceId, FoundTrace)> =
            found.into_iter().filter(|(_, trace)| search.is_match(trace)).collect();
        matches
            .sort_unstable_by_key(|(trace_id, trace)| (std::cmp::Reverse(trace.start), *trace_id));
        matches.truncate(search.limit);
        json(active, |out| {
            out.write_str("{\"traces\":")?;
            write_list(out, &matches, |out, (trace_id, trace)| write_found(out, trace_id, trace))?;
            write!(
                out,
                ",\"metrics\":{{\"inspectedTraces\":{inspected},\"inspectedBytes\":\"{bytes}\"}}}}"
            )
        })
    };
    context.run_heavy("trace_search", None, work).await
}

fn write_found(
    out: &mut dyn std::fmt::Write,
    trace_id: &TraceId,
    trace: &FoundTrace,
) -> std::fmt::Result {
    let (service, name) = match &trace.root {
        Some(((false, _), service, name)) => (service.as_str(), name.as_str()),
        _ => (NO_ROOT, ""),
    };
    write!(out, "{{\"traceID\":\"{}\",\"rootServiceName\":", id_text(trace_id))?;
    write_text(out, service)?;
    out.write_str(",\"rootTraceName\":")?;
    write_text(out, name)?;
    write!(out, ",\"startTimeUnixNano\":\"{}\"", trace.start)?;
    write!(out, ",\"durationMs\":{},\"spanSets\":[{{\"spans\":", trace.duration() / 1_000_000)?;
    write_list(out, &trace.spans, |out, (span_id, start, duration)| {
        write!(out, "{{\"spanID\":\"{}\",\"startTimeUnixNano\":\"{start}\"", id_text(span_id))?;
        write!(out, ",\"durationNanos\":\"{duration}\"}}")
    })?;
    write!(out, ",\"matched\":{}}}]}}", trace.matched.len())
}

/// Reads the stored spans of a range until `each` returns `false`; `None` comes before each part.
fn scan(
    store: &Store,
    range: &Range<i64>,
    active: &ActiveQuery,
    each: &mut dyn FnMut(Option<TraceSpans<'_>>) -> Result<bool, ApiError>,
) -> Result<(), ApiError> {
    let mut failure = None;
    let (mut count, mut largest) = (0_u64, 0);
    // Those in memory are copied.
    active.reserve(usize::try_from(store.trace_stat().head_bytes).unwrap_or(usize::MAX))?;
    store.search_traces(range, &mut |spans| {
        count += 1;
        let mut checked = if count % 64 == 1 { active.check_cancelled() } else { Ok(()) };
        let length = spans.map_or(0, |spans| spans.spans.len());
        if length > largest {
            let more = (length - largest).saturating_mul(READ_FACTOR);
            checked = checked.and_then(|()| active.reserve(more));
            largest = length;
        }
        match checked.and_then(|()| each(spans)) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    failure.map_or(Ok(()), Err)
}

/// Runs `each` on the spans of a range, as many as are read for names and values.
async fn with_spans<T: Default + Send + 'static>(
    context: Context,
    parameters: Parameters,
    each: impl Fn(&TraceSpan<'_>, &mut T) + Send + 'static,
    answer: impl FnOnce(&T, &mut dyn std::fmt::Write) -> std::fmt::Result + Send + 'static,
) -> Result<Response, ApiError> {
    let range = time_range(&parameters, context.intake.now())?;
    let store = context.queries.store()?;
    let work = move |active: &ActiveQuery| {
        active.reserve(2 * NAMES_MAX * VALUE_BYTES_MAX)?;
        let (mut found, mut bytes) = (T::default(), 0);
        scan(&store, &range, active, &mut |spans| {
            if let Some(spans) = spans {
                bytes += spans.spans.len() as u64;
                Trace::read(spans.spans).spans.iter().for_each(|span| each(span, &mut found));
            }
            Ok(bytes < NAMES_BYTES_MAX)
        })?;
        json(active, |out| answer(&found, out))
    };
    context.run_heavy("trace_tags", None, work).await
}

/// Names of attributes by scope: of spans, and of resources.
type TagNames = [BTreeSet<String>; 2];

fn add_names(span: &TraceSpan<'_>, names: &mut TagNames) {
    let [of_span, of_resource] = names;
    let add = |all: &mut BTreeSet<String>, name: String| {
        if all.len() < NAMES_MAX && name.len() <= VALUE_BYTES_MAX {
            all.insert(name);
        }
    };
    span.attributes().for_each(|(name, _)| add(of_span, name));
    span.resource_attributes().for_each(|(name, _)| add(of_resource, name));
}

pub(super) async fn tags(context: Context, parameters: Parameters) -> Result<Response, ApiError> {
    with_spans(context, parameters, add_names, |names, out| {
        out.write_str("{\"tagNames\":")?;
        let all: BTreeSet<&String> = names.iter().flatten().collect();
        write_list(out, all, |out, name| write_text(out, name))?;
        out.write_char('}')
    })
    .await
}

pub(super) async fn tags_by_scope(
    context: Context,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    with_spans(context, parameters, add_names, |names, out| {
        let intrinsics: BTreeSet<String> = INTRINSICS.map(str::to_owned).into();
        let scopes = [("span", &names[0]), ("resource", &names[1]), ("intrinsic", &intrinsics)];
        out.write_str("{\"scopes\":")?;
        write_list(out, scopes, |out, (scope, names)| {
            write!(out, "{{\"name\":\"{scope}\",\"tags\":")?;
            write_list(out, names, |out, name| write_text(out, name))?;
            out.write_char('}')
        })?;
        out.write_char('}')
    })
    .await
}

pub(super) async fn values(
    context: Context,
    tag: Path<String>,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    with_values(context, tag, parameters, |out, value| write_text(out, value)).await
}

pub(super) async fn typed_values(
    context: Context,
    tag: Path<String>,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let keyword = matches!(tag.as_str(), "status" | "kind");
    let kind = if keyword { "keyword" } else { "string" };
    with_values(context, tag, parameters, move |out, value| {
        write!(out, "{{\"type\":\"{kind}\",\"value\":")?;
        write_text(out, value)?;
        out.write_char('}')
    })
    .await
}

async fn with_values(
    context: Context,
    Path(tag): Path<String>,
    parameters: Parameters,
    write: impl Fn(&mut dyn std::fmt::Write, &str) -> std::fmt::Result + Send + 'static,
) -> Result<Response, ApiError> {
    let add = move |span: &TraceSpan<'_>, values: &mut BTreeMap<String, ()>| {
        each_value(&tag, span, &mut |value| {
            let is_listed = values.len() < NAMES_MAX && value.len() <= VALUE_BYTES_MAX;
            if is_listed && !values.contains_key(value) {
                values.insert(value.to_owned(), ());
            }
        });
    };
    with_spans(context, parameters, add, move |values, out| {
        out.write_str("{\"tagValues\":")?;
        write_list(out, values.keys(), |out, value| write(out, value))?;
        out.write_char('}')
    })
    .await
}
