//! Live stream of new rows as server-sent events.
//!
//! ```text
//! : topdeck
//!
//! event: row
//! data: {"name":"latency","labels":{"host":"a"},"kind":"histogram","unit":"ms","start_ns":0,"end_ns":10000000000,"value":{…}}
//! ```
//!
//! A value is a number, a text, or a distribution as answers have it, with its cells. `event: gap`
//! says that something is known to be missing, whosever it is. `event: lagged` with `{"dropped":n}`
//! tells a client that was too slow how many events it was not sent: each has [`hub::EVENTS_MAX`]
//! events and [`hub::BYTES_MAX`] bytes that wait for it, and nobody waits for it. A comment comes
//! every [`body::HEARTBEAT`] if nothing else does. What is streamed is what was taken; it may not
//! be durable yet.

mod body;
mod event;
mod feed;
pub(crate) mod hub;
#[cfg(test)]
mod tests;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing;
use http::{HeaderValue, header};

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::context::Context;
use crate::parameters::Parameters;
use crate::route::{ApiRoute, Parameter, SELECTOR};

const STREAM: &[Parameter] = &[SELECTOR.many()];

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/stream",
    "Live stream of new rows: events row, gap and lagged.",
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
        // Proxies of nginx keep back what is no whole answer otherwise.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::new(events)).into_response())
}
