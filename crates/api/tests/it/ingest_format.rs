//! A worked example: an ingest format over HTTP, lines of `name;milliseconds`. This file is the
//! whole format: a route with a parameter, a decoder, an error, and tests. A row in `src/ingest.rs`
//! would add it to a node. CONTRIBUTING.md refers to this file.

use api::{ApiRoute, ErrorResponse, IngestFormat, IngestFormatRow, IngestOutcome, IngestRequest};
use axum::response::Response;
use collect::SeriesSink;
use http::StatusCode;
use model::{Sample, SampleValue, Series, SeriesKind};
use role::Parameter;
use serde_json::json;

use crate::fixture::ServerFixture;

const PARAMETERS: &[Parameter] = &[Parameter::text("prefix", "what all names begin with")];

/// A request with laps.
struct LapFormat {
    prefix: String,
}

#[derive(Debug, thiserror::Error)]
enum LapError {
    #[error("cannot read line {line}: no semicolon; send name;milliseconds")]
    NoSemicolon { line: usize },
    #[error("cannot read line {line}: no number after the semicolon; send name;milliseconds")]
    NoNumber { line: usize },
    #[error("cannot store line {line}: {source}; rename the lap")]
    Series { line: usize, source: model::Error },
}

impl IngestFormat for LapFormat {
    const NAME: &'static str = "laps";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::ingest(
        "/v1/laps",
        "Takes times of laps.",
        PARAMETERS,
        ("text/plain", "name;milliseconds, one in a line"),
    )];

    /// Number of stored laps.
    type Summary = usize;

    fn read_head(request: &mut IngestRequest) -> Result<LapFormat, ErrorResponse> {
        request.reject_unknown_parameters(PARAMETERS)?;
        Ok(LapFormat { prefix: request.parameter("prefix").unwrap_or_default().to_owned() })
    }

    fn decode(
        &self,
        body: &[u8],
        now: i64,
        rows: &mut dyn SeriesSink,
    ) -> Result<usize, ErrorResponse> {
        let read = read_laps(&self.prefix, &String::from_utf8_lossy(body), now, rows);
        read.map_err(|error| ErrorResponse::bad_request(error.to_string()))
    }

    fn response(&self, outcome: IngestOutcome<usize>) -> Response {
        api::json_response(StatusCode::OK, &json!({ "laps": outcome.summary }))
    }
}

fn read_laps(
    prefix: &str,
    body: &str,
    now: i64,
    rows: &mut dyn SeriesSink,
) -> Result<usize, LapError> {
    for (line, text) in (1..).zip(body.lines()) {
        let (name, time) = text.split_once(';').ok_or(LapError::NoSemicolon { line })?;
        let time = time.parse::<f64>().map_err(|_| LapError::NoNumber { line })?;
        let series = || Series::new(format!("{prefix}{name}"), SeriesKind::Gauge).with_unit("ms");
        let key = [prefix, "\n", name].concat();
        let taken = rows.series(key.as_bytes(), &mut || series().validate()).and_then(|()| {
            rows.sample(&Sample { start: now, end: now, value: SampleValue::Number(time) })
        });
        taken.map_err(|source| LapError::Series { line, source })?;
    }
    Ok(body.lines().count())
}

const FORMATS: &[IngestFormatRow] = &[IngestFormatRow::of::<LapFormat>()];

#[test]
fn its_requests_are_stored() {
    let mut server = ServerFixture::with_formats(FORMATS);
    let taken = server.post("/v1/laps?prefix=race_", "", "first;12.5\nsecond;7.5\n");
    assert_eq!((taken.status, taken.text().as_str()), (200, "{\"laps\":2}\n"));
    let rows = server.rows("race_second");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].1.value, SampleValue::Number(7.5));
    // Its producer, its route and its metric.
    let audit = server.intake.audit().unwrap();
    assert!(audit.producers.iter().any(|account| account.name == "laps"));
    let measured = server.intake.meter().snapshot();
    let is_route = |(name, value): &(String, String)| name == "route" && value == "/v1/laps";
    assert!(measured.iter().any(|one| {
        one.name == "topdeck_http_request_duration" && one.labels.iter().any(is_route)
    }));
    let document = server.request("GET", "/v1/openapi.json", "", b"").text();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["paths"]["/v1/laps"]["post"]["summary"], "Takes times of laps.");
    assert!(server.stop());
}

#[track_caller]
fn check(path: &str, body: &str, expected: &str) {
    let server = ServerFixture::with_formats(FORMATS);
    server.post(path, "", body).check(400, expected);
    assert!(server.rows("first").is_empty(), "nothing of the body is taken");
}

#[test]
fn errors_have_a_response() {
    let no_semicolon = "cannot read line 2: no semicolon; send name;milliseconds";
    check("/v1/laps", "first;1\nsecond", no_semicolon);
    check("/v1/laps", "first;1\nsecond;x", "cannot read line 2: no number after the semicolon");
    check("/v1/laps", "first;1\n;2", "cannot store line 2: ");
    check("/v1/laps?prefx=a", "first;1", "; allowed: prefix");
}
