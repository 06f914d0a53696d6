//! `POST /v1/record?metric=NAME&unit=ms&label.host=a`: numbers, one per line, into one histogram.
//!
//! A body is stored as a whole or not at all. The content type is ignored: `curl -d 12.5` sends a
//! form type.

use axum::response::Response;
use decode::mapper::{MapSummary, MappingDefaults, RowMapper};
use decode::{InputFormat, SeriesSink, Unit};
use http::StatusCode;
use intake::SeriesKeyEncoding;
use serde_json::json;

use crate::error_response::ErrorResponse;
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{
    IngestOutcome, IngestRequest, LABELS, METRIC, UNIT, json_response,
};
use crate::route::{ApiRoute, Parameter};

const PARAMETERS: &[Parameter] = &[METRIC.required(), UNIT, LABELS];

/// A request with numbers of one metric.
pub(crate) struct NumbersFormat {
    samples: SampleDefaults,
}

impl IngestFormat for NumbersFormat {
    const NAME: &'static str = "record";
    const REJECTS_OTHER_UNITS: bool = true;
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::ingest(
        "/v1/record",
        "Records raw values: a number per line.",
        PARAMETERS,
        ("text/plain", "a number per line"),
    )];

    type Summary = MapSummary;

    fn parse_request(request: &mut IngestRequest) -> Result<NumbersFormat, ErrorResponse> {
        request.reject_unknown_parameters(PARAMETERS)?;
        if request.parameter("metric").is_none_or(str::is_empty) {
            return Err(ErrorResponse::bad_request(
                "parameter metric is missing: use /v1/record?metric=NAME&unit=ms",
            ));
        }
        Ok(NumbersFormat { samples: SampleDefaults::from_request(request)? })
    }

    fn key_encoding(&self) -> SeriesKeyEncoding {
        SeriesKeyEncoding::GENERIC
    }

    fn decode(
        &self,
        body: &[u8],
        now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<MapSummary, ErrorResponse> {
        if let Some(error) =
            decode::plain_numbers::find_non_finite(body, self.samples.unit.as_ref())
        {
            return Err(ErrorResponse::bad_request(format!(
                "{error}; the whole body is rejected: send latencies as finite numbers"
            )));
        }
        if body.trim_ascii().is_empty() {
            return Err(ErrorResponse::bad_request("the body is empty; send a number per line"));
        }
        reject_partial(self.samples.read(InputFormat::Numbers, body, now, sink))
    }

    fn response(&self, outcome: IngestOutcome<MapSummary>) -> Response {
        let answer = json!({ "values": outcome.values, "duplicate": outcome.is_duplicate });
        json_response(StatusCode::OK, &answer)
    }
}

/// Defaults from the URL for samples without metric, labels or unit.
pub(crate) struct SampleDefaults {
    pub(crate) metric: Option<String>,
    pub(crate) unit: Option<Unit>,
    pub(crate) labels: Vec<(String, String)>,
}

impl SampleDefaults {
    pub(crate) fn from_request(request: &IngestRequest) -> Result<SampleDefaults, ErrorResponse> {
        let metric = request.parameter("metric").map(str::to_owned);
        Ok(SampleDefaults { metric, unit: request.unit()?, labels: request.labels() })
    }

    /// Decodes a body in `format`.
    pub(crate) fn read(
        &self,
        format: InputFormat,
        body: &[u8],
        now: i64,
        sink: &mut dyn SeriesSink,
    ) -> MapSummary {
        let unit = self.unit.as_ref();
        // Numbers with a time unit are converted to nanoseconds.
        let is_scaled = format == InputFormat::Numbers
            && !matches!(unit, None | Some(Unit::Bytes | Unit::Other(_)));
        let stored_unit = if is_scaled { Some(&Unit::Nanoseconds) } else { unit };
        let defaults = MappingDefaults {
            metric: self.metric.as_deref(),
            labels: &self.labels,
            unit: stored_unit,
            time: Some(now),
        };
        let mut sink = RowMapper::new(defaults, sink);
        decode::read(format, &mut &body[..], unit, &mut sink)
            .expect("BUG: reading from memory failed");
        sink.finish()
    }
}

/// Rejects a body of which a part is invalid.
pub(crate) fn reject_partial(summary: MapSummary) -> Result<MapSummary, ErrorResponse> {
    if summary.rejected == 0 {
        return Ok(summary);
    }
    let more = summary.rejected - 1;
    let mut what = summary.errors.into_iter().next().unwrap_or_default();
    if more > 0 {
        what.push_str(&format!("; {more} more errors"));
    }
    Err(ErrorResponse::bad_request(format!("{what}; the whole body is rejected")))
}
