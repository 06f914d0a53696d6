//! Server-sent events of a route, for clients that accept `text/event-stream`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::json::Json;
use crate::route::{RouteError, RouteQuery};

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteEvent {
    /// Field `event`.
    pub name: &'static str,
    /// Field `id`: what a client that reconnects sends as `Last-Event-ID`.
    pub id: u64,
    /// Field `data`.
    pub data: Json,
}

/// Events, and where they end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventBatch {
    /// In order.
    pub events: Vec<RouteEvent>,
    /// Id from which the next batch goes on.
    pub last_id: u64,
    /// State that the events belong to.
    pub revision: u64,
}

type RouteEventReader =
    Arc<dyn Fn(&RouteQuery, Option<u64>) -> Result<EventBatch, RouteError> + Send + Sync>;
type RouteEventWait = Arc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Events of a route.
#[derive(Clone)]
pub struct RouteEvents {
    read: RouteEventReader,
    wait: RouteEventWait,
}

impl RouteEvents {
    /// `read` returns the events after an id, without one the current state, on a thread that may
    /// block. `wait` ends when the revision is another one.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        read: impl Fn(&RouteQuery, Option<u64>) -> Result<EventBatch, RouteError>
        + Send
        + Sync
        + 'static,
        wait: impl Fn(u64) -> F + Send + Sync + 'static,
    ) -> RouteEvents {
        RouteEvents {
            read: Arc::new(read),
            wait: Arc::new(move |revision| Box::pin(wait(revision))),
        }
    }

    /// Events after an id.
    pub fn read(&self, query: &RouteQuery, after: Option<u64>) -> Result<EventBatch, RouteError> {
        (self.read)(query, after)
    }

    /// Waits until the revision is another one.
    pub fn wait(&self, revision: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        (self.wait)(revision)
    }
}

impl fmt::Debug for RouteEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteEvents").finish_non_exhaustive()
    }
}
