//! Example of an ingest format over HTTP: lines of `name;milliseconds`. The file has a route with a
//! parameter, a decoder, errors, and a test. The metrics of its requests follow from the route.

use axum::response::Response;
use decode::SeriesSink;
use http::StatusCode;
use model::{Sample, SampleValue, Series, SeriesKind};
use role::Parameter;
use serde_json::json;

use crate::{ApiRoute, ErrorResponse, IngestFormat, IngestOutcome, IngestRequest, json_response};

const PARAMETERS: &[Parameter] = &[Parameter::text("prefix", "what all names begin with")];

/// A request with laps.
pub(crate) struct LapFormat {
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

    fn parse_request(request: &mut IngestRequest) -> Result<LapFormat, ErrorResponse> {
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
        json_response(StatusCode::OK, &json!({ "laps": outcome.summary }))
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

#[cfg(test)]
mod tests {
    use decode::VecSeriesSink;

    use super::*;

    #[test]
    fn a_lap_is_a_row_in_milliseconds() {
        let mut rows = VecSeriesSink::default();
        assert_eq!(read_laps("race_", "first;12.5\n", 7, &mut rows).unwrap(), 1);
        let (series, sample) = &rows.rows[0];
        assert_eq!((series.name(), sample.end), ("race_first", 7));
        let error = read_laps("", "first", 7, &mut rows).unwrap_err().to_string();
        assert_eq!(error, "cannot read line 1: no semicolon; send name;milliseconds");
    }
}
