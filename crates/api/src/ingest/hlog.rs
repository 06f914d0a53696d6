//! `POST /v1/hlog?metric=NAME&label.host=a`: an interval log of HdrHistogram. All of a body or nothing is taken.
//!
//! A log whose times count from its own beginning needs `start`, in seconds since the Unix epoch.

use std::ops::ControlFlow;

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use collect::mapper::{MapSummary, MappingDefaults, RowMapper};
use collect::{DecodedSample, InputError, InputPosition, SampleSink};
use http::StatusCode;
use intake::{IngestWriter, SeriesKeyEncoding};
use serde_json::json;

use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::ingest_request::{IngestRequest, json_response};
use crate::ingest::record::reject_partial;
use crate::ingest::{LABELS, METRIC, START};
use crate::openapi::{Parameter, Route};

const PARAMETERS: &[Parameter] = &[METRIC.required(), START, LABELS];

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/v1/hlog",
    "Ingests an HdrHistogram interval log.",
    PARAMETERS,
    ("text/plain", "an HdrHistogram interval log"),
)];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/v1/hlog", post(ingest_hlog))
}

async fn ingest_hlog(posted: IngestRequest) -> Result<Response, ErrorResponse> {
    posted.reject_unknown_parameters(PARAMETERS)?;
    if posted.parameter("metric").is_none_or(str::is_empty) {
        return Err(ErrorResponse::bad_request("what was measured? name it: /v1/hlog?metric=NAME"));
    }
    let start = start_parameter(&posted)?;
    let taken = posted.ingest("hlog", SeriesKeyEncoding::Generic, move |posted, body, _, rows| {
        reject_partial(read_log(posted, start, body, rows))
    });
    let taken = taken.await?;
    let answer = json!({
        "intervals": taken.result.samples,
        "values": taken.values,
        "duplicate": taken.is_duplicate,
    });
    Ok(json_response(StatusCode::OK, &answer))
}

/// The parameter `start`, in nanoseconds.
pub(crate) fn start_parameter(posted: &IngestRequest) -> Result<Option<i64>, ErrorResponse> {
    let Some(text) = posted.parameter("start") else { return Ok(None) };
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..9e9).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        ErrorResponse::bad_request(format!(
            "start={text}: expected seconds since 1970, as in 1794906565.5"
        ))
    })?;
    Ok(Some((seconds * 1e6).round() as i64 * 1000))
}

/// Reads a log.
pub(crate) fn read_log(
    posted: &IngestRequest,
    start: Option<i64>,
    body: &[u8],
    rows: &mut IngestWriter,
) -> MapSummary {
    let labels = posted.labels();
    let metric = posted.parameter("metric");
    let rules = MappingDefaults { metric, labels: &labels, unit: None, time: None };
    let mut sink = RelativeTimeSink { sink: RowMapper::new(rules, rows), start };
    collect::hlog::read(&mut &body[..], &mut sink).expect("BUG: memory does not fail to be read");
    sink.sink.finish()
}

/// Sink that turns relative log times into absolute ones.
struct RelativeTimeSink<S> {
    sink: S,
    start: Option<i64>,
}

impl<S: SampleSink> SampleSink for RelativeTimeSink<S> {
    fn number(&mut self, value: f64) {
        self.sink.number(value);
    }

    fn sample(&mut self, mut reading: DecodedSample) {
        if !collect::hlog::make_absolute(&mut reading, self.start) {
            let trouble = InputError {
                position: InputPosition::Line(1),
                expected: "times since 1970, or ?start= to say when the log began".into(),
                actual: "times that count from the log's beginning".to_owned(),
                is_semantic: false,
            };
            let _ = self.sink.error(trouble);
            return;
        }
        self.sink.sample(reading);
    }

    fn skipped(&mut self, what: &'static str) {
        self.sink.skipped(what);
    }

    fn error(&mut self, trouble: InputError) -> ControlFlow<()> {
        self.sink.error(trouble)
    }
}
