//! `POST /v1/hlog?metric=NAME&label.host=a`: an HdrHistogram interval log. A body is stored as a
//! whole or not at all.
//!
//! A log with times relative to its start needs `start`, in seconds since the Unix epoch.

use std::ops::ControlFlow;

use axum::response::Response;
use decode::mapper::{MapSummary, MappingDefaults, RowMapper};
use decode::{DecodedSample, InputError, InputPosition, SampleSink, SeriesSink};
use http::StatusCode;
use intake::SeriesKeyEncoding;
use serde_json::json;

use crate::error_response::ErrorResponse;
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{
    IngestOutcome, IngestRequest, LABELS, METRIC, START, json_response,
};
use crate::ingest::record::{SampleDefaults, reject_partial};
use crate::route::{ApiRoute, Parameter};

const PARAMETERS: &[Parameter] = &[METRIC.required(), START, LABELS];

/// A request with a log of one metric.
pub(crate) struct HlogFormat {
    samples: SampleDefaults,
    start: Option<i64>,
}

impl IngestFormat for HlogFormat {
    const NAME: &'static str = "hlog";
    const SENDS_REGULARLY: bool = false;
    const REJECTS_OTHER_UNITS: bool = true;
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::ingest(
        "/v1/hlog",
        "Ingests an HdrHistogram interval log.",
        PARAMETERS,
        ("text/plain", "an HdrHistogram interval log"),
    )];

    type Summary = MapSummary;

    fn parse_request(request: &mut IngestRequest) -> Result<HlogFormat, ErrorResponse> {
        request.reject_unknown_parameters(PARAMETERS)?;
        if request.parameter("metric").is_none_or(str::is_empty) {
            return Err(ErrorResponse::bad_request(
                "parameter metric is missing: use /v1/hlog?metric=NAME",
            ));
        }
        let start = start_parameter(request)?;
        Ok(HlogFormat { samples: SampleDefaults::from_request(request)?, start })
    }

    fn key_encoding(&self) -> SeriesKeyEncoding {
        SeriesKeyEncoding::GENERIC
    }

    fn decode(
        &self,
        body: &[u8],
        _now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<MapSummary, ErrorResponse> {
        reject_partial(read_log(&self.samples, self.start, body, sink))
    }

    fn response(&self, outcome: IngestOutcome<MapSummary>) -> Response {
        let answer = json!({
            "intervals": outcome.summary.samples,
            "values": outcome.values,
            "duplicate": outcome.is_duplicate,
        });
        json_response(StatusCode::OK, &answer)
    }
}

/// The parameter `start`, in nanoseconds.
pub(crate) fn start_parameter(request: &IngestRequest) -> Result<Option<i64>, ErrorResponse> {
    let Some(text) = request.parameter("start") else { return Ok(None) };
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..9e9).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        ErrorResponse::bad_request(format!(
            "start={text}: expected seconds since the Unix epoch, as in 1794906565.5"
        ))
    })?;
    Ok(Some((seconds * 1e6).round() as i64 * 1000))
}

/// Reads a log.
pub(crate) fn read_log(
    samples: &SampleDefaults,
    start: Option<i64>,
    body: &[u8],
    sink: &mut dyn SeriesSink,
) -> MapSummary {
    let SampleDefaults { metric, labels, .. } = samples;
    let rules = MappingDefaults { metric: metric.as_deref(), labels, unit: None, time: None };
    let mut sink = AbsoluteTimeSink { sink: RowMapper::new(rules, sink), start };
    decode::hlog::read(&mut &body[..], &mut sink).expect("BUG: reading from memory failed");
    sink.sink.finish()
}

/// Sink that turns relative log times into absolute ones.
struct AbsoluteTimeSink<S> {
    sink: S,
    start: Option<i64>,
}

impl<S: SampleSink> SampleSink for AbsoluteTimeSink<S> {
    fn number(&mut self, value: f64) {
        self.sink.number(value);
    }

    fn sample(&mut self, mut reading: DecodedSample) {
        if !decode::hlog::make_absolute(&mut reading, self.start) {
            let error = InputError {
                position: InputPosition::Line(1),
                expected: "absolute times, or ?start= with the start of the log".into(),
                actual: "times relative to the start of the log".to_owned(),
                is_invalid_value: false,
            };
            let _ = self.sink.error(error);
            return;
        }
        self.sink.sample(reading);
    }

    fn skipped(&mut self, what: &'static str) {
        self.sink.skipped(what);
    }

    fn error(&mut self, error: InputError) -> ControlFlow<()> {
        self.sink.error(error)
    }
}
