//! Search of traces, and names and values of attributes: the stored spans of a range are read, the
//! latest first.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use decode::spans::trace::{Trace, TraceSpan, id_text};
use model::{TraceId, TraceSpans};
use prometheus_json::write_list;
use store::{HOUR, Store, TraceSearchStep};

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
/// Traces that are read as a whole at a time, at first.
const COMPLETED: usize = 64;
/// Memory of a trace that was looked at: its id, and its start if it is a candidate.
const INSPECTED_BYTES: usize = 128;
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
    let (store, intake) = (context.queries.store()?, Arc::clone(&context.intake));
    let work = move |active: &ActiveQuery| {
        let candidates = search.find(&store, active)?;
        let (inspected, bytes) = (candidates.inspected.len(), candidates.bytes);
        let (matches, next_end) = search.page(candidates);
        json(active, |out| {
            out.write_str("{\"traces\":")?;
            write_list(out, &matches, |out, (trace_id, trace)| write_found(out, trace_id, trace))?;
            write!(
                out,
                ",\"metrics\":{{\"inspectedTraces\":{inspected},\"inspectedBytes\":\"{bytes}\"}}"
            )?;
            write!(out, ",\"topdeck\":{{\"schema\":1,\"is_complete\":{}", next_end.is_none())?;
            if let Some(end) = next_end {
                let (seconds, rest) = (end / 1_000_000_000, end % 1_000_000_000);
                write!(out, ",\"next_end\":\"{seconds}.{rest:09}\"")?;
            }
            let [kept, dropped, evicted] = intake.trace_counts();
            write!(out, ",\"kept\":{kept},\"dropped\":{dropped},\"evicted\":{evicted}}}}}")
        })
    };
    context.run_heavy("trace_search", None, work).await
}

/// Found traces, the latest first.
type TraceMatches = Vec<(TraceId, FoundTrace)>;

/// Traces with a span that meets the conditions, of the parts that were read.
#[derive(Debug, Default)]
struct TraceCandidates {
    /// When the first and the last of the spans that were read together with such a span started
    /// and ended: the trace did not start later. Of traces that were not read as a whole.
    known: HashMap<TraceId, Range<u64>>,
    /// Traces that were read as a whole, and those of them that are found.
    completed: HashSet<TraceId>,
    matches: TraceMatches,
    /// Whether those that started last are enough: others after `before` are not read as a whole.
    is_full: bool,
    /// All others started at this time or before, in nanoseconds since the Unix epoch.
    before: Option<u64>,
    inspected: HashSet<TraceId>,
    bytes: u64,
}

impl TraceCandidates {
    /// Number of matches that started after a time.
    fn matches_after(&self, time: u64) -> usize {
        self.matches.iter().filter(|(_, trace)| trace.start > time).count()
    }
}

impl TraceSearch {
    /// Reads parts, the latest first, until there are enough traces, or half of the time is over.
    fn find(&self, store: &Store, active: &ActiveQuery) -> Result<TraceCandidates, ApiError> {
        let mut found = TraceCandidates::default();
        scan(store, &self.range, active, &mut |step| {
            let spans = match step {
                TraceSearchStep::Spans(spans) => spans,
                TraceSearchStep::Before(before) => {
                    let before = before.max(0).unsigned_abs();
                    let is_enough = self.is_enough(store, active, &mut found, before)?;
                    found.before = is_enough.then_some(before);
                    return Ok(!is_enough);
                }
            };
            found.bytes += spans.spans.len() as u64;
            if found.inspected.insert(spans.trace_id) {
                active.reserve(INSPECTED_BYTES)?;
            }
            if found.completed.contains(&spans.trace_id) {
                return Ok(true);
            }
            let trace = Trace::read(spans.spans);
            if trace.spans.iter().any(|span| self.filter.is_met(span)) {
                let start = trace.spans.iter().map(|span| span.start).min().unwrap_or(0);
                let end = trace.spans.iter().map(|span| span.end).max().unwrap_or(0);
                let known = found.known.entry(spans.trace_id).or_insert(start..end);
                *known = start.min(known.start)..end.max(known.end);
            }
            Ok(true)
        })?;
        if found.before.is_none() {
            self.complete(store, active, &mut found, None)?;
        }
        Ok(found)
    }

    /// Whether the answer has enough traces without those that started at a time or before.
    fn is_enough(
        &self,
        store: &Store,
        active: &ActiveQuery,
        found: &mut TraceCandidates,
        before: u64,
    ) -> Result<bool, ApiError> {
        let range = [self.range.start, self.range.end].map(|end| end.max(0).unsigned_abs());
        // As far as it is known: all spans count, in whichever part they are.
        let seems_found = |known: &&Range<u64>| {
            (known.start > before && known.start <= range[1] && known.end >= range[0])
                && self.durations.contains(&known.end.saturating_sub(known.start))
        };
        let seem_found = found.known.values().filter(seems_found).count();
        // The next search has the rest of the range, and as much time.
        let is_late = before < range[1] && active.started.elapsed() > active.timeout / 2;
        if !is_late && found.matches_after(before) + seem_found < self.limit {
            return Ok(false);
        }
        self.complete(store, active, found, Some(before))?;
        Ok(is_late || found.matches_after(before) >= self.limit)
    }

    /// Reads all spans of the candidates that may have started after a time, the latest first,
    /// until no other one can precede what was found.
    fn complete(
        &self,
        store: &Store,
        active: &ActiveQuery,
        found: &mut TraceCandidates,
        before: Option<u64>,
    ) -> Result<(), ApiError> {
        let after =
            found.known.iter().filter(|(_, known)| before.is_none_or(|at| known.start > at));
        let mut rest: Vec<(u64, TraceId)> =
            after.map(|(trace_id, known)| (known.start, *trace_id)).collect();
        rest.sort_unstable();
        let mut size = COMPLETED.max(2 * self.limit);
        loop {
            let last = found.matches.get(self.limit - 1).map(|(_, trace)| trace.start);
            let next = rest.last().map(|(start, _)| *start);
            found.is_full = next.is_some_and(|next| last.is_some_and(|last| last > next));
            if rest.is_empty() || found.is_full {
                return Ok(());
            }
            let of = rest.split_off(rest.len().saturating_sub(size));
            let mut ids: Vec<TraceId> = of.into_iter().map(|(_, trace_id)| trace_id).collect();
            ids.sort_unstable();
            let all = self.read(store, active, &ids)?;
            for trace_id in ids {
                found.known.remove(&trace_id);
                found.completed.insert(trace_id);
            }
            found.matches.extend(all.into_iter().filter(|(_, trace)| self.is_match(trace)));
            found.matches.sort_unstable_by_key(|(trace_id, trace)| {
                (std::cmp::Reverse(trace.start), *trace_id)
            });
            size *= 2;
        }
    }

    /// The matches, and if there may be more, the end of the range that has them.
    fn page(&self, found: TraceCandidates) -> (TraceMatches, Option<u64>) {
        let TraceCandidates { mut matches, is_full, before, .. } = found;
        let mut next_end = before;
        if let Some(before) = before {
            matches.retain(|(_, trace)| trace.start > before);
        }
        // Those that started at the same time come together.
        let start = |at: usize| matches.get(at).map(|(_, trace)| trace.start);
        let cut = start(self.limit).filter(|cut| start(self.limit - 1) == Some(*cut));
        let length = match cut {
            Some(cut) => matches.partition_point(|(_, trace)| trace.start > cut),
            None => self.limit,
        };
        let length = if length == 0 { self.limit } else { length };
        if matches.len() > length || is_full {
            matches.truncate(length);
            let last = matches.last().map(|(_, trace)| trace.start.saturating_sub(1));
            next_end = last.or(before);
        }
        (matches, next_end)
    }

    /// Traces, whose ids ascend, as a whole.
    fn read(
        &self,
        store: &Store,
        active: &ActiveQuery,
        trace_ids: &[TraceId],
    ) -> Result<HashMap<TraceId, FoundTrace>, ApiError> {
        active.reserve(trace_ids.len() * (FOUND_BYTES + self.spans_max * 24))?;
        let (mut found, mut failure) = (HashMap::<TraceId, FoundTrace>::new(), None);
        let mut add = |spans: TraceSpans<'_>| {
            active.check_cancelled()?;
            let trace = found.entry(spans.trace_id).or_default();
            let before = trace.matched.len();
            trace.add(&Trace::read(spans.spans), &self.filter, self.spans_max);
            active.reserve((trace.matched.len() - before) * MATCHED_BYTES)
        };
        store.traces(trace_ids, &mut |spans| match add(spans) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        });
        failure.map_or(Ok(found), Err)
    }
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

/// Reads the stored spans of a range until `each` returns `false`.
fn scan(
    store: &Store,
    range: &Range<i64>,
    active: &ActiveQuery,
    each: &mut dyn FnMut(TraceSearchStep<'_>) -> Result<bool, ApiError>,
) -> Result<(), ApiError> {
    let mut failure = None;
    let (mut count, mut largest) = (0_u64, 0);
    // Those in memory are copied.
    active.reserve(usize::try_from(store.trace_stat().head_bytes).unwrap_or(usize::MAX))?;
    store.search_traces(range, &mut |step| {
        count += 1;
        let mut checked = if count % 64 == 1 { active.check_cancelled() } else { Ok(()) };
        let length = match step {
            TraceSearchStep::Spans(spans) => spans.spans.len(),
            TraceSearchStep::Before(_) => 0,
        };
        if length > largest {
            let more = (length - largest).saturating_mul(READ_FACTOR);
            checked = checked.and_then(|()| active.reserve(more));
            largest = length;
        }
        match checked.and_then(|()| each(step)) {
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
        scan(&store, &range, active, &mut |step| {
            if let TraceSearchStep::Spans(spans) = step {
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
