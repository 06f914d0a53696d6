//! Whole traces in the shape of Tempo's HTTP API, for Grafana's Tempo data source and the page.
//!
//! Ids in JSON are hexadecimal digits, as OTLP has them; Tempo's own JSON has base64. Source:
//! <https://grafana.com/docs/tempo/latest/api_docs/>.

mod search;
mod span_filter;

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing;
use decode::spans::trace::{Trace, TraceProblems, id_text, parse_trace_id};
use http::{HeaderMap, HeaderValue, header};
use intake::TraceFate;
use model::TraceId;
use store::StoredTrace;

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::protobuf_writer::ProtobufWriter;
use crate::route::{ApiRoute, Parameter};
use crate::token::Scope;

const PROTOBUF: &str = "application/protobuf";
/// Memory of an answer per byte of stored spans: read, sorted, and as JSON.
const MEMORY_FACTOR: usize = 8;

const START: Parameter = Parameter::text("start", "start of the range in Unix seconds");
const END: Parameter = Parameter::text("end", "end of the range in Unix seconds; default: now");
const SEARCH: &[Parameter] = &[
    Parameter::text("tags", "attributes of a span or its resource: key=value, in logfmt"),
    Parameter::text("q", "conditions on a span: { name = \"a\" && duration > 10ms }"),
    Parameter::text("minDuration", "minimum duration of a trace, such as 100ms"),
    Parameter::text("maxDuration", "maximum duration of a trace"),
    Parameter::integer("limit", "maximum number of traces; default 20, at most 1,000"),
    Parameter::integer("spss", "maximum number of spans of a trace; default 3, at most 100"),
    START,
    END,
];
const ID: Parameter = Parameter::text("id", "trace id, up to 32 hexadecimal digits");
const TAG: Parameter =
    Parameter::text("tag", "name of an attribute, such as service.name; or name, kind, status");
const RANGE: &[Parameter] = &[START, END];
const TRACE: &[Parameter] = &[ID, START, END];
const VALUES: &[Parameter] = &[TAG, START, END];

pub(crate) const ROUTES: &[ApiRoute] = &[
    route("/api/traces/{id}", "Tempo API: a whole trace, as OTLP.", TRACE, || {
        routing::get(trace_v1)
    }),
    route(
        "/api/v2/traces/{id}",
        "Tempo API: a whole trace, and whether it is complete.",
        TRACE,
        || routing::get(trace_v2),
    ),
    route("/api/search", "Tempo API: searches traces.", SEARCH, || routing::get(search::search)),
    route("/api/search/tags", "Tempo API: names of attributes.", RANGE, || {
        routing::get(search::tags)
    }),
    route("/api/v2/search/tags", "Tempo API: names of attributes by scope.", RANGE, || {
        routing::get(search::tags_by_scope)
    }),
    route("/api/search/tag/{tag}/values", "Tempo API: values of an attribute.", VALUES, || {
        routing::get(search::values)
    }),
    route("/api/v2/search/tag/{tag}/values", "Tempo API: values of an attribute.", VALUES, || {
        routing::get(search::typed_values)
    }),
    route("/api/echo", "Tempo API: answers \"echo\".", &[], || routing::get(echo)).with_response(
        200,
        "text/plain",
        "echo",
    ),
];

const fn route(
    path: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
    handler: fn() -> routing::MethodRouter<Context>,
) -> ApiRoute {
    ApiRoute::get(path, about, parameters, handler).with_scope(Some(Scope::Exemplars))
}

async fn echo() -> &'static str {
    "echo"
}

async fn trace_v1(
    context: Context,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let is_protobuf = accepts_protobuf(&headers);
    with_trace(context, id, move |stored, active| {
        let trace = Trace::read(&stored.spans);
        match is_protobuf {
            true => Ok(protobuf(trace.to_protobuf())),
            false => json(active, |out| out.write_str(&trace.to_json())),
        }
    })
    .await
}

async fn trace_v2(
    context: Context,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let is_protobuf = accepts_protobuf(&headers);
    with_trace(context, id, move |stored, active| {
        let trace = Trace::read(&stored.spans);
        let problems = trace.problems();
        let message = incompleteness(stored.is_cut, problems.missing_parents.len());
        if is_protobuf {
            let answer = ProtobufWriter::default()
                .bytes(1, &trace.to_protobuf())
                .number(3, (!message.is_empty()).into())
                .bytes(4, message.as_bytes());
            return Ok(protobuf(answer.0));
        }
        json(active, |out| {
            let status = if message.is_empty() { "COMPLETE" } else { "PARTIAL" };
            write!(out, "{{\"trace\":{}", trace.to_json())?;
            write!(out, ",\"status\":\"{status}\",\"message\":\"{message}\"")?;
            write!(out, ",\"topdeck\":{{\"schema\":1,\"spans\":{}", trace.spans.len())?;
            write!(out, ",\"is_cut\":{}", stored.is_cut)?;
            write_problems(out, &problems)?;
            out.write_str("}}")
        })
    })
    .await
}

/// Why a trace is not complete, as a sentence; empty if it is.
fn incompleteness(is_cut: bool, missing_parents: usize) -> String {
    let mut text = String::new();
    if is_cut {
        text.push_str(
            "spans were left out: the trace exceeds its size limit, or cannot be read as a whole",
        );
    }
    if missing_parents > 0 {
        let separator = if is_cut { "; " } else { "" };
        let (are, s) = if missing_parents == 1 { ("is", "") } else { ("are", "s") };
        let _ = write!(
            text,
            "{separator}the parent{s} of {missing_parents} span{s} {are} elsewhere: not received, \
             or received before the trace was kept"
        );
    }
    text
}

fn write_problems(out: &mut dyn std::fmt::Write, problems: &TraceProblems) -> std::fmt::Result {
    let list = |entries: Vec<String>| format!("[{}]", entries.join(","));
    let ids = |span: &[u8; 8], parent: &[u8; 8]| {
        format!("\"span_id\":\"{}\",\"parent_span_id\":\"{}\"", id_text(span), id_text(parent))
    };
    let missing =
        problems.missing_parents.iter().map(|(span, parent)| format!("{{{}}}", ids(span, parent)));
    let cycles = problems.cycles.iter().map(|span| format!("\"{}\"", id_text(span)));
    let skewed = problems.clock_skew.iter().map(|(span, parent, before, after)| {
        let ids = ids(span, parent);
        format!("{{{ids},\"starts_before_ns\":{before},\"ends_after_ns\":{after}}}")
    });
    write!(out, ",\"missing_parents\":{}", list(missing.collect()))?;
    write!(out, ",\"cycles\":{}", list(cycles.collect()))?;
    write!(out, ",\"clock_skew\":{}", list(skewed.collect()))
}

/// Answers with a trace, or says that it is not here.
async fn with_trace(
    context: Context,
    id: String,
    answer: impl FnOnce(&StoredTrace, &ActiveQuery) -> Result<Response, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let trace_id: TraceId = parse_trace_id(&id).ok_or_else(|| {
        ApiError::invalid_parameter("id", &id, "a trace id of up to 32 hexadecimal digits")
    })?;
    let (store, intake) = (context.queries.store()?, Arc::clone(&context.intake));
    let work = move |active: &ActiveQuery| {
        let (mut reserved, mut failure) = (0, None);
        // A block, and what is copied of it.
        let mut reserve = |block: usize, spans: usize| {
            let bytes = spans.saturating_mul(MEMORY_FACTOR).saturating_add(2 * block);
            let more = bytes.saturating_sub(reserved);
            reserved += more;
            match active.check_cancelled().and_then(|()| active.reserve(more)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let stored = store.trace(&trace_id, &mut reserve)?;
        failure.map_or(Ok(()), Err)?;
        let stored = stored.ok_or_else(|| {
            let reason = match intake.trace_fate(&trace_id) {
                Some(TraceFate::Waiting) => {
                    "it was received, and its spans wait for one that is kept as an exemplar"
                }
                Some(TraceFate::Dropped) => {
                    "it was received and not kept: none of its spans is among the slowest, or the \
                     sample of the others"
                }
                Some(TraceFate::Evicted) => {
                    "it was received and dropped before its time, because `max_buffer` of \
                     [traces] was reached"
                }
                Some(TraceFate::Kept) | None => {
                    "its spans are elsewhere, were not kept, or are older than the retention; an \
                     exemplar of it may exist all the same"
                }
            };
            ApiError::NotFound(format!("trace {} is not stored: {reason}", id_text(&trace_id)))
        })?;
        answer(&stored, active)
    };
    context.run_light("trace", None, work).await
}

fn accepts_protobuf(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains(PROTOBUF))
}

fn protobuf(bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF))], bytes).into_response()
}

fn json(
    active: &ActiveQuery,
    write: impl FnOnce(&mut dyn std::fmt::Write) -> std::fmt::Result,
) -> Result<Response, ApiError> {
    let mut out = active.response_buffer();
    match write(&mut out) {
        Ok(()) => Ok(JsonBody(out.text).into_response()),
        Err(_) => Err(out.into_error()),
    }
}
