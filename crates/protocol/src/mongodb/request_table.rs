//! Requests in flight, and cursors that wait.

use std::collections::VecDeque;

use crate::observer::{NotMeasuredReason, OperationSink, PacketTime};
use crate::text_pool::TextPool;

/// Requests in flight, at most. Drivers have one per connection.
const REQUESTS_MAX: usize = 256;

/// Ids that are remembered of requests that were counted before their response, and of cursors.
const COUNTED_MAX: usize = 256;
const CURSORS_MAX: usize = 64;

/// A request that was seen.
pub(super) struct MongoRequest {
    pub(super) id: i32,
    pub(super) command: &'static str,
    pub(super) namespace: String,
    pub(super) is_wait: bool,
    /// Whether its cursor waits for new documents.
    pub(super) opens_waiting_cursor: bool,
    pub(super) is_complete: bool,
    /// Whether it is not measured: bytes were not captured, or it only confirms a position.
    pub(super) has_gap: bool,
    pub(super) start: PacketTime,
    pub(super) end: PacketTime,
    pub(super) bytes: u64,
}

/// Requests in flight of a connection.
#[derive(Default)]
pub(super) struct RequestTable {
    requests: VecDeque<MongoRequest>,
    pub(super) texts: TextPool,
    counted: VecDeque<i32>,
    waiting_cursors: VecDeque<i64>,
    /// Id of a response that another response follows, without a request.
    pub(super) exhaust_id: Option<i32>,
    /// Whether a request may not have been captured.
    pub(super) may_miss_requests: bool,
}

impl RequestTable {
    /// Adds a request. Returns false beyond the limit.
    pub(super) fn push(
        &mut self,
        id: i32,
        command: &'static str,
        start: PacketTime,
        bytes: u64,
        sink: &mut dyn OperationSink,
    ) -> bool {
        if self.requests.len() == REQUESTS_MAX {
            sink.not_measured(1, NotMeasuredReason::Limit);
            self.count(id);
            return false;
        }
        let namespace = self.texts.take();
        self.requests.push_back(MongoRequest {
            id,
            command,
            namespace,
            is_wait: false,
            opens_waiting_cursor: false,
            is_complete: false,
            has_gap: false,
            start,
            end: start,
            bytes,
        });
        true
    }

    /// The newest request, if it has this id.
    pub(super) fn newest(&mut self, id: i32) -> Option<&mut MongoRequest> {
        self.requests.back_mut().filter(|request| request.id == id)
    }

    /// Gives the newest request its collection, and the database before it.
    pub(super) fn set_namespace(&mut self, id: i32, database: &str, collection: &str) {
        let Some(request) = self.requests.back_mut().filter(|request| request.id == id) else {
            return;
        };
        for text in [database, if database.is_empty() { "" } else { "." }, collection] {
            self.texts.push(&mut request.namespace, text);
        }
    }

    /// Removes a request.
    pub(super) fn take(&mut self, id: i32) -> Option<MongoRequest> {
        let at = self.requests.iter().position(|request| request.id == id)?;
        self.requests.remove(at)
    }

    /// Whether a response to this id is expected.
    pub(super) fn is_known(&self, id: i32) -> bool {
        self.exhaust_id == Some(id)
            || self.counted.contains(&id)
            || self.requests.iter().any(|request| request.id == id)
    }

    /// Whether the request with this id was counted before its response. Forgets it.
    pub(super) fn take_counted(&mut self, id: i32) -> bool {
        let at = self.counted.iter().position(|counted| *counted == id);
        at.is_some_and(|at| self.counted.remove(at).is_some())
    }

    fn count(&mut self, id: i32) {
        if self.counted.len() == COUNTED_MAX {
            self.counted.pop_front();
        }
        self.counted.push_back(id);
    }

    /// Removes all requests, whose responses may still arrive, and returns their number.
    pub(super) fn drain(&mut self) -> u64 {
        let requests = self.requests.len() as u64;
        while let Some(request) = self.requests.pop_front() {
            self.count(request.id);
            self.texts.put_back(request.namespace);
        }
        requests
    }

    pub(super) fn add_waiting_cursor(&mut self, cursor: i64) {
        if self.waiting_cursors.len() == CURSORS_MAX {
            self.waiting_cursors.pop_front();
        }
        self.waiting_cursors.push_back(cursor);
    }

    pub(super) fn is_waiting_cursor(&self, cursor: i64) -> bool {
        self.waiting_cursors.contains(&cursor)
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &MongoRequest> {
        self.requests.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        let namespaces: usize = self.requests.iter().map(|one| one.namespace.capacity()).sum();
        self.requests.capacity() * size_of::<MongoRequest>()
            + namespaces
            + self.texts.memory()
            + self.counted.capacity() * size_of::<i32>()
            + self.waiting_cursors.capacity() * size_of::<i64>()
    }
}
