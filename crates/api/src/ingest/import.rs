//! `POST /v1/import`: files in the formats of `topdeck hist`, detected by content. A body is stored
//! as a whole or not at all.

use axum::response::Response;
use decode::mapper::MapSummary;
use decode::{InputFormat, SeriesSink};
use http::StatusCode;
use intake::SeriesKeyEncoding;
use serde_json::json;

use crate::error_response::ErrorResponse;
use crate::ingest::hlog;
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{
    IngestOutcome, IngestRequest, LABELS, METRIC, START, UNIT, json_response,
};
use crate::ingest::record::{SampleDefaults, reject_partial};
use crate::route::{ApiRoute, Parameter};

const PARAMETERS: &[Parameter] = &[
    METRIC,
    UNIT,
    Parameter::text("format", "name of the format; default: detected from the content"),
    START,
    LABELS,
];

/// A request with a file.
pub(crate) struct ImportFormat {
    samples: SampleDefaults,
    /// Detected by content if absent.
    format: Option<InputFormat>,
    start: Option<i64>,
}

impl IngestFormat for ImportFormat {
    const NAME: &'static str = "import";
    const SENDS_REGULARLY: bool = false;
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::ingest(
        "/v1/import",
        "Ingests a file in one of the formats of `topdeck hist`; `topdeck import` reads more.",
        PARAMETERS,
        ("application/octet-stream", "the file"),
    )];

    type Summary = (InputFormat, MapSummary);

    fn parse_request(request: &mut IngestRequest) -> Result<ImportFormat, ErrorResponse> {
        request.reject_unknown_parameters(PARAMETERS)?;
        let samples = SampleDefaults::from_request(request)?;
        let format = request.parameter("format").map(format).transpose()?;
        Ok(ImportFormat { samples, format, start: hlog::start_parameter(request)? })
    }

    fn key_encoding(&self) -> SeriesKeyEncoding {
        SeriesKeyEncoding::GENERIC
    }

    fn decode(
        &self,
        body: &[u8],
        now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<Self::Summary, ErrorResponse> {
        let found = self.format.map_or_else(|| decode::detect(body), Ok);
        let format = found.map_err(|error| ErrorResponse::bad_request(error.to_string()))?;
        let placed = match format {
            InputFormat::Hlog => hlog::read_log(&self.samples, self.start, body, sink),
            _ => self.samples.read(format, body, now, sink),
        };
        Ok((format, reject_partial(placed)?))
    }

    fn response(&self, outcome: IngestOutcome<Self::Summary>) -> Response {
        let (format, placed) = outcome.summary;
        let answer = json!({
            "format": format.name(),
            "samples": placed.samples,
            "values": outcome.values,
            "skipped": placed.skipped,
            "duplicate": outcome.is_duplicate,
        });
        json_response(StatusCode::OK, &answer)
    }
}

fn format(name: &str) -> Result<InputFormat, ErrorResponse> {
    InputFormat::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
        let known: Vec<&str> = InputFormat::ALL.into_iter().map(InputFormat::name).collect();
        ErrorResponse::bad_request(format!("format={name}: expected one of {}", known.join(", ")))
    })
}
