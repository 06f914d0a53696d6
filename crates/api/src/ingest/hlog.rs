//! `POST /v1/hlog?metric=NAME&label.host=a`: an interval log of HdrHistogram. All of a body or nothing is taken.
//!
//! A log whose times count from its own beginning needs `start`, in seconds since the Unix epoch.

use std::ops::ControlFlow;

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use collect::place::{Placed, Placing, Rules};
use collect::{Place, Reading, Sink, Trouble};
use http::StatusCode;
use intake::{Way, Writer};
use serde_json::json;

use crate::context::Context;
use crate::ingest::posted::{Posted, json};
use crate::ingest::record::whole;
use crate::ingest::{LABELS, METRIC, START};
use crate::openapi::{Parameter, Route};
use crate::problem::Problem;

const PARAMETERS: &[Parameter] = &[METRIC.required(), START, LABELS];

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/v1/hlog",
    "Takes a log of HdrHistogram.",
    PARAMETERS,
    ("text/plain", "a log of HdrHistogram"),
)];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/v1/hlog", post(hlog))
}

async fn hlog(posted: Posted) -> Result<Response, Problem> {
    posted.only(PARAMETERS)?;
    if posted.parameter("metric").is_none_or(str::is_empty) {
        return Err(Problem::bad("what was measured? name it: /v1/hlog?metric=NAME"));
    }
    let start = start(&posted)?;
    let taken = posted.take("hlog", Way::Placed, move |posted, body, _, rows| {
        whole(read(posted, start, body, rows))
    });
    let taken = taken.await?;
    let answer = json!({
        "intervals": taken.found.readings,
        "values": taken.values,
        "repeated": taken.is_repeated,
    });
    Ok(json(StatusCode::OK, &answer))
}

/// The parameter `start`, in nanoseconds.
pub(crate) fn start(posted: &Posted) -> Result<Option<i64>, Problem> {
    let Some(text) = posted.parameter("start") else { return Ok(None) };
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..9e9).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        Problem::bad(format!("start={text}: expected seconds since 1970, as in 1794906565.5"))
    })?;
    Ok(Some((seconds * 1e6).round() as i64 * 1000))
}

/// Reads a log.
pub(crate) fn read(posted: &Posted, start: Option<i64>, body: &[u8], rows: &mut Writer) -> Placed {
    let labels = posted.labels();
    let metric = posted.parameter("metric");
    let rules = Rules { metric, labels: &labels, unit: None, time: None };
    let mut sink = FromStart { sink: Placing::new(rules, rows), start };
    collect::hlog::read(&mut &body[..], &mut sink).expect("BUG: memory does not fail to be read");
    sink.sink.finish()
}

/// Puts times that count from a beginning where they belong.
struct FromStart<S> {
    sink: S,
    start: Option<i64>,
}

impl<S: Sink> Sink for FromStart<S> {
    fn number(&mut self, value: f64) {
        self.sink.number(value);
    }

    fn reading(&mut self, mut reading: Reading) {
        if !collect::hlog::date(&mut reading, self.start) {
            let trouble = Trouble {
                place: Place::Line(1),
                expected: "times since 1970, or ?start= to say when the log began".into(),
                found: "times that count from the log's beginning".to_owned(),
                is_absurd: false,
            };
            let _ = self.sink.trouble(trouble);
            return;
        }
        self.sink.reading(reading);
    }

    fn skipped(&mut self, what: &'static str) {
        self.sink.skipped(what);
    }

    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
        self.sink.trouble(trouble)
    }
}
