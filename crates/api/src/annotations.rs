//! Annotations: deploys, incidents and other events; and crashes, which are stored alike.
//!
//! An annotation is a text sample of the series `annotation`, with tags as labels: stored, copied
//! and forwarded like other samples. The sender is acknowledged when it is durable.

#[cfg(test)]
mod tests;

use decode::SeriesSink as _;
use http::StatusCode;
use intake::SeriesKeyEncoding;
use model::{Sample, SampleValue, Selector, Series, SeriesKind, selector};
use role::time_expr::{self, TIME_SYNTAX};
use serde_json::Value as JsonValue;
use store::ReadView;

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::blocking::blocking;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::json::Json::{self, Bool, Integer, List, Object, Text};
use crate::json::integer;
use crate::parameters::Parameters;
use crate::route::{ApiRoute, JSON, Parameter, SELECTOR, TIMEOUT};
use crate::routing;
use crate::token::Scope;
use report::document;

/// Name of the series of annotations.
pub const ANNOTATION_METRIC: &str = "annotation";
/// Name of the series of notices of crashes, which agents write.
const CRASH_METRIC: &str = "crash";
/// Maximum request size of an annotation, in bytes.
const BYTES_MAX: usize = 64 << 10;
/// Maximum duration of an annotation: a query reads this much time beyond its range.
const DURATION_MAX: i64 = 31 * store::DAY;
/// Default and maximum number of annotations in a response.
const LIMIT: usize = 1_000;
const LIMIT_MAX: usize = 100_000;
/// Maximum size of a response, tags included.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

const LIST_PARAMETERS: &[Parameter] = &[
    Parameter::text("from", "start of the range; default: a day before the end"),
    Parameter::text("to", "end of the range; default: now"),
    SELECTOR,
    Parameter::integer("limit", "maximum number of annotations, the latest; default: 1,000"),
    TIMEOUT,
];

const ADD: ApiRoute = ApiRoute {
    method: "post",
    body: Some((
        JSON,
        "{\"text\": …, \"time\": … or \"from\": … and \"to\": …, \"tags\": {…}}; default time: now",
    )),
    ..ApiRoute::get("/v1/annotations", "Adds an annotation.", &[], || routing::post(add))
}
.with_scope(Some(Scope::Ingest))
.with_response(201, JSON, "the annotation; stored durably");

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/annotations", "Annotations that overlap a range.", LIST_PARAMETERS, || {
        routing::get(list_annotations)
    }),
    ADD,
    ApiRoute::get(
        "/v1/crashes",
        "Crashes of programs in a range: labels as tags, and the notice as a JSON text.",
        LIST_PARAMETERS,
        || routing::get(list_crashes),
    ),
];

/// One annotation.
#[derive(Clone, Debug, PartialEq)]
struct Annotation {
    start: i64,
    end: i64,
    text: String,
    tags: Vec<(String, String)>,
}

impl Annotation {
    fn parse(body: &[u8], now: i64) -> Result<Annotation, ApiError> {
        let bad = |what: String| ApiError::BadRequest(format!("invalid annotation: {what}"));
        let read: JsonValue =
            serde_json::from_slice(body).map_err(|error| bad(format!("invalid JSON: {error}")))?;
        let JsonValue::Object(fields) = read else {
            return Err(bad("expected an object such as {\"text\":\"deployed 1.2\"}".to_owned()));
        };
        let mut annotation =
            Annotation { start: now, end: now, text: String::new(), tags: Vec::new() };
        let (mut time, mut from, mut to) = (None, None, None);
        for (name, value) in fields {
            let timestamp = || {
                let written = match &value {
                    JsonValue::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let at = time_expr::parse_time_parameter(&written, now);
                at.map(Some)
                    .ok_or_else(|| ApiError::invalid_parameter(&name, &written, TIME_SYNTAX))
            };
            match (name.as_str(), &value) {
                ("time", _) => time = timestamp()?,
                ("from", _) => from = timestamp()?,
                ("to", _) => to = timestamp()?,
                ("text", JsonValue::String(text)) => annotation.text = text.clone(),
                ("tags", JsonValue::Object(tags)) => {
                    for (tag, value) in tags {
                        let JsonValue::String(value) = value else {
                            let expected = "tags: an object of strings";
                            return Err(ApiError::invalid_parameter(
                                tag,
                                &value.to_string(),
                                expected,
                            ));
                        };
                        annotation.tags.push((tag.clone(), value.clone()));
                    }
                }
                ("text", other) => {
                    return Err(ApiError::invalid_parameter(
                        "text",
                        &other.to_string(),
                        "a string",
                    ));
                }
                ("tags", other) => {
                    let expected = "tags: an object of strings";
                    return Err(ApiError::invalid_parameter("tags", &other.to_string(), expected));
                }
                _ => {
                    let known = "time, from, to, text, tags";
                    return Err(bad(format!("unknown field {name:?}; allowed: {known}")));
                }
            }
        }
        if annotation.text.is_empty() {
            return Err(bad("text is missing".to_owned()));
        }
        (annotation.start, annotation.end) = match (time, from, to) {
            (None, None, None) => (now, now),
            (Some(time), None, None) => (time, time),
            (None, Some(from), Some(to)) => (from, to),
            _ => return Err(bad("expected time, or from and to".to_owned())),
        };
        match annotation.end.checked_sub(annotation.start) {
            Some(length) if (0..=DURATION_MAX).contains(&length) => Ok(annotation),
            _ => Err(bad("to is before from, or more than 31 days after it".to_owned())),
        }
    }

    /// Size in memory.
    fn memory_bytes(&self) -> usize {
        let tag = |(name, value): &(String, String)| {
            size_of::<(String, String)>() + name.len() + value.len()
        };
        size_of::<Annotation>() + self.text.len() + self.tags.iter().map(tag).sum::<usize>()
    }

    fn series(&self) -> model::Result<Series> {
        let series = Series::new(ANNOTATION_METRIC, SeriesKind::Text);
        let with =
            |series: Series, (name, value): &(String, String)| series.with_label(name, value);
        self.tags.iter().fold(series, with).validate()
    }

    fn to_json(&self) -> Json {
        let tags = self.tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Object(vec![
            ("start_ns", Integer(self.start.into())),
            ("end_ns", Integer(self.end.into())),
            ("text", Text(self.text.clone())),
            ("tags", document::labels(tags)),
        ])
    }
}

async fn add(
    context: Context,
    body: axum::body::Body,
) -> Result<(StatusCode, JsonBody), ErrorResponse> {
    let body = axum::body::to_bytes(body, BYTES_MAX).await.map_err(|error| {
        let what = format!(
            "cannot read the annotation: {error}; the size limit is {BYTES_MAX} \
                            bytes"
        );
        ErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, what)
    })?;
    let annotation = Annotation::parse(&body, context.intake.now())?;
    let series =
        annotation.series().map_err(|error| ErrorResponse::bad_request(error.to_string()))?;
    let value = SampleValue::Text(annotation.text.clone());
    let sample = Sample { start: annotation.start, end: annotation.end, value };
    let intake = context.intake.clone();
    // The append may wait for the disk.
    let supervisor = context.intake.supervisor().clone();
    let appended = blocking(&supervisor, move || {
        let producer = intake.producer("annotations");
        producer.disable_absence_monitor();
        let mut writer = intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
        writer.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
        writer.sample(&sample)?;
        intake.append(&producer, writer)
    });
    let bug = |what| ErrorResponse::new(StatusCode::INTERNAL_SERVER_ERROR, what);
    let pending_ack = appended.await.map_err(bug)??;
    pending_ack.until_durable().await?;
    let json = Object(vec![("schema", integer(1)), ("annotation", annotation.to_json())]);
    Ok((StatusCode::CREATED, context.queries.json_response(&json)?))
}

async fn list_annotations(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    list(context, parameters, ANNOTATION_METRIC, "annotations").await
}

async fn list_crashes(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    list(context, parameters, CRASH_METRIC, "crashes").await
}

/// Texts of the series with a name, as a list with another.
async fn list(
    context: Context,
    parameters: Parameters,
    metric: &str,
    name: &'static str,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(LIST_PARAMETERS)?;
    let now = context.intake.now();
    let to = parameters.time("to", now)?.unwrap_or(now);
    let from = parameters.time("from", now)?.unwrap_or(to.saturating_sub(store::DAY));
    let (timeout, limit) = (parameters.timeout()?, parameters.integer("limit", LIMIT, LIMIT_MAX)?);
    let named = vec![
        Selector::label_equals(selector::NAME, metric),
        Selector::label_equals(selector::KIND, "text"),
    ];
    let queries = context.queries.clone();
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let own = parameters.selector("selector")?.unwrap_or(Selector::All);
        let wanted = Selector::and(named.into_iter().chain([own]).collect());
        let mut found = LatestAnnotations::new(limit, RESPONSE_BYTES_MAX);
        // A long annotation that overlaps the range may end after it.
        let until = to.saturating_add(DURATION_MAX).saturating_add(1);
        for series in view.select(&wanted) {
            let Some(extent) = view.time_range(std::slice::from_ref(&series))? else { continue };
            let tags = series.series.labels();
            let mut start = from.saturating_sub(1).max(extent.start.saturating_sub(1));
            let end = until.min(extent.end.saturating_add(1));
            // In pieces, so that a cancelled query ends soon.
            while start < end {
                active.check_cancelled()?;
                let piece = start..end.min(start.saturating_add(DURATION_MAX));
                start = piece.end;
                let gaps = view.samples(&series, piece, &mut |sample| {
                    let Sample { start, end, value: SampleValue::Text(text) } = sample else {
                        return;
                    };
                    if start <= to && end >= from {
                        found.push(Annotation { start, end, text, tags: tags.to_vec() });
                    }
                })?;
                drop(gaps);
            }
        }
        let (found, is_cut) = found.finish();
        let annotations = found.iter().map(Annotation::to_json).collect();
        queries.json_response(&Object(vec![
            ("schema", integer(2)),
            ("truncated", Bool(is_cut)),
            (name, List(annotations)),
        ]))
    };
    context.run_light_with_view(name, timeout, work).await
}

/// The latest annotations up to a count and size; holds at most twice as many plus one.
struct LatestAnnotations {
    found: Vec<Annotation>,
    bytes: usize,
    limit: usize,
    bytes_max: usize,
    is_truncated: bool,
}

impl LatestAnnotations {
    fn new(limit: usize, bytes_max: usize) -> LatestAnnotations {
        LatestAnnotations { found: Vec::new(), bytes: 0, limit, bytes_max, is_truncated: false }
    }

    fn push(&mut self, annotation: Annotation) {
        self.bytes += annotation.memory_bytes();
        self.found.push(annotation);
        if self.found.len() > 2 * self.limit || self.bytes > 2 * self.bytes_max {
            self.truncate();
        }
    }

    /// Keeps the latest, ordered by time.
    fn truncate(&mut self) {
        model::sort::by(&mut self.found, |a, b| {
            (a.start, a.end, &a.text).cmp(&(b.start, b.end, &b.text))
        });
        let (mut kept, mut bytes) = (0, 0);
        for annotation in self.found.iter().rev().take(self.limit) {
            if bytes + annotation.memory_bytes() > self.bytes_max {
                break;
            }
            bytes += annotation.memory_bytes();
            kept += 1;
        }
        let more = self.found.len() - kept;
        self.is_truncated |= more > 0;
        self.found.drain(..more);
        self.bytes = bytes;
    }

    /// The annotations ordered by time, and whether the limit was exceeded.
    fn finish(mut self) -> (Vec<Annotation>, bool) {
        self.truncate();
        (self.found, self.is_truncated)
    }
}
