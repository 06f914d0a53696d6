//! `POST /v1/record?metric=NAME&unit=ms&label.host=a`: numbers, one per line, into one histogram.
//!
//! All of a body or nothing is taken. What the body is said to be does not matter: `curl -d 12.5` calls it a form.

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use collect::place::{Placed, Placing, Rules};
use collect::{Format, Unit};
use http::StatusCode;
use intake::{Way, Writer};
use serde_json::json;

use crate::context::Context;
use crate::ingest::posted::{Posted, json};
use crate::ingest::{LABELS, METRIC, UNIT};
use crate::openapi::{Parameter, Route};
use crate::problem::Problem;

const PARAMETERS: &[Parameter] = &[METRIC.required(), UNIT, LABELS];

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/v1/record",
    "Records raw values: numbers, one in a line.",
    PARAMETERS,
    ("text/plain", "numbers, one in a line"),
)];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/v1/record", post(record))
}

async fn record(posted: Posted) -> Result<Response, Problem> {
    posted.only(PARAMETERS)?;
    if posted.parameter("metric").is_none_or(str::is_empty) {
        return Err(Problem::bad("what was measured? name it: /v1/record?metric=NAME&unit=ms"));
    }
    let unit = posted.unit()?;
    let taken = posted.take("record", Way::Placed, move |posted, body, now, rows| {
        whole(read(posted, Format::Numbers, unit, body, now, rows))
    });
    let taken = taken.await?;
    let answer = json!({ "values": taken.values, "repeated": taken.is_repeated });
    Ok(json(StatusCode::OK, &answer))
}

/// Reads a body as `format`, with what the address says.
pub(crate) fn read(
    posted: &Posted,
    format: Format,
    unit: Option<Unit>,
    body: &[u8],
    now: i64,
    rows: &mut Writer,
) -> Placed {
    let labels = posted.labels();
    // Numbers with a unit of time become nanoseconds as they are read.
    let is_scaled =
        format == Format::Numbers && !matches!(unit, None | Some(Unit::Bytes | Unit::Other(_)));
    let placed_as = if is_scaled { Some(Unit::Nanoseconds) } else { unit.clone() };
    let rules = Rules {
        metric: posted.parameter("metric"),
        labels: &labels,
        unit: placed_as.as_ref(),
        time: Some(now),
    };
    let mut sink = Placing::new(rules, rows);
    collect::read(format, &mut &body[..], unit.as_ref(), &mut sink)
        .expect("BUG: memory does not fail to be read");
    sink.finish()
}

/// Refuses a body of which something could not be taken.
pub(crate) fn whole(placed: Placed) -> Result<Placed, Problem> {
    if placed.refused == 0 {
        return Ok(placed);
    }
    let more = placed.refused - 1;
    let mut what = placed.troubles.into_iter().next().unwrap_or_default();
    if more > 0 {
        what.push_str(&format!(", and {more} more"));
    }
    Err(Problem::bad(format!("{what}; nothing of the body was taken")))
}
