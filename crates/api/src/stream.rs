//! Live stream of new points as server-sent events.
//!
//! ```text
//! : topdeck
//!
//! event: sample
//! data: {"name":"latency","labels":{"host":"a"},"kind":"delta-histogram","unit":"ms","start_ns":0,"end_ns":10000000000,"value":{…}}
//! ```
//!
//! A value is a number, a text, or a distribution with its cells, as in query responses. `event:
//! gap` reports a gap of any producer. `event: lagged` with `{"dropped":n}` is the number of events
//! that a slow client missed: at most [`hub::EVENTS_MAX`] events and [`hub::BYTES_MAX`] bytes are
//! queued per client, and the sender never waits. A comment is sent every [`body::HEARTBEAT`] if
//! nothing else is. The stream has accepted points, which may not be durable yet.

mod body;
mod event;
mod feed;
pub(crate) mod hub;
#[cfg(test)]
mod tests;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::context::Context;
use crate::parameters::Parameters;
use crate::route::{ApiRoute, Parameter, SELECTOR};
use crate::routing;
pub(crate) use body::EventStream;

const STREAM: &[Parameter] = &[SELECTOR.many()];

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/stream",
    "Live stream of samples: events sample, gap, lagged and error.",
    STREAM,
    || routing::get(stream),
)
.with_response(200, "text/event-stream", "server-sent events, unending")];

async fn stream(context: Context, parameters: Parameters) -> Result<Response, ApiError> {
    let (parameters, hub) = (parameters.reject_unknown(STREAM)?, context.queries.hub.clone());
    let work = move |_: &ActiveQuery| hub.subscribe(parameters.selectors("selector")?);
    let events = context.run_light("stream", None, work).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Disables response buffering in nginx.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::new(events)).into_response())
}
