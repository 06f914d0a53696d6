//! Server-sent events of the routes of roles.
//!
//! ```text
//! : topdeck
//!
//! id: 17
//! event: transition
//! data: {"number":17,…}
//! ```
//!
//! A client that reconnects sends the last id as `Last-Event-ID`. A task per client waits for
//! changes; it holds one event, so a slow client delays only itself.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use role::{EventBatch, RouteEvent, RouteEvents, RouteQuery};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::api_error::{ApiError, RETRY_AFTER_BUSY};
use crate::context::Context;
use crate::stream::EventStream;

/// Maximum number of clients of a route: each has a connection and a task.
const CLIENTS_MAX: usize = 256;

/// Clients of the events of a route.
#[derive(Clone, Debug)]
pub(crate) struct EventClients(Arc<Semaphore>);

impl Default for EventClients {
    fn default() -> EventClients {
        EventClients(Arc::new(Semaphore::new(CLIENTS_MAX)))
    }
}

/// Whether a client asks for events.
pub(crate) fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    let mut kinds = accepted.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    kinds.any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    })
}

/// Id that a client saw last. One that is no number is that of another server.
fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok()
}

/// What the task of a client needs.
struct EventFollower {
    events: RouteEvents,
    name: &'static str,
    context: Context,
    query: RouteQuery,
    sender: mpsc::Sender<Arc<str>>,
    queued_bytes: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

/// Response with the events from now on, or after those that the client saw.
pub(crate) async fn respond(
    events: RouteEvents,
    name: &'static str,
    clients: EventClients,
    context: Context,
    query: RouteQuery,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let permit = clients.0.try_acquire_owned().map_err(|_| ApiError::TooManyRequests {
        message: format!("limit of {CLIENTS_MAX} clients of events reached; retry later"),
        retry_after: RETRY_AFTER_BUSY,
    })?;
    let (sender, receiver) = mpsc::channel(1);
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let body = EventStream::new(receiver, Arc::clone(&queued_bytes));
    let follower =
        EventFollower { events, name, context, query, sender, queued_bytes, _permit: permit };
    // Errors of the request are the response.
    let first = follower.read(last_event_id(headers)).await?;
    tokio::spawn(follower.follow(first));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Disables response buffering in nginx.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::new(body)).into_response())
}

impl EventFollower {
    async fn read(&self, after: Option<u64>) -> Result<EventBatch, ApiError> {
        let (events, query) = (self.events.clone(), self.query.clone());
        let work = move |_: &_| events.read(&query, after).map_err(ApiError::from);
        self.context.run_light(self.name, None, work).await
    }

    /// Sends events until the client or the server ends. After an error the client reconnects.
    async fn follow(self, first: EventBatch) {
        let mut batch = first;
        loop {
            for event in &batch.events {
                let text: Arc<str> = event_text(event).into();
                self.queued_bytes.fetch_add(text.len(), Ordering::Relaxed);
                if self.sender.send(text).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = self.events.wait(batch.revision) => {}
                () = self.context.queries.stopped() => return,
                () = self.sender.closed() => return,
            }
            let Ok(next) = self.read(Some(batch.last_id)).await else { return };
            batch = next;
        }
    }
}

fn event_text(RouteEvent { name, id, data }: &RouteEvent) -> String {
    let mut text = String::new();
    // Writing to a string does not fail. The dense form of JSON has no line feed.
    _ = write!(text, "id: {id}\nevent: {name}\ndata: {data:#}\n\n");
    text
}

#[cfg(test)]
mod tests {
    use role::json::integer;

    use super::*;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        let name = header::HeaderName::from_static(name);
        [(name, HeaderValue::from_static(value))].into_iter().collect()
    }

    #[test]
    fn clients_ask_for_events_by_accept() {
        let check = |value: &'static str, expected| {
            assert_eq!(accepts_events(&headers("accept", value)), expected, "{value}");
        };
        check("text/event-stream", true);
        check("application/json, Text/Event-Stream;q=0.5", true);
        check("*/*", false);
        check("application/json", false);
        assert!(!accepts_events(&HeaderMap::new()));
    }

    #[test]
    fn last_id_is_a_number() {
        let check = |value: &'static str, expected| {
            assert_eq!(last_event_id(&headers("last-event-id", value)), expected, "{value}");
        };
        check("17", Some(17));
        check("x", None);
        check("-1", None);
        assert_eq!(last_event_id(&HeaderMap::new()), None);
    }

    #[test]
    fn an_event_has_an_id_a_name_and_a_line_of_data() {
        let data = role::json::Json::Object(vec![("number", integer(17))]);
        let text = event_text(&RouteEvent { name: "transition", id: 17, data });
        assert_eq!(text, "id: 17\nevent: transition\ndata: {\"number\":17}\n\n");
    }
}
