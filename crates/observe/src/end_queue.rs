//! Hand-over of measured requests from the threads that capture to the thread that reports them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::EndRecords;

/// Requests and handshakes that wait, about 100 bytes each.
const RECORDS_MAX: usize = 256 << 10;
/// Time in which what is in the queue is delivered after it was closed.
const CLOSING_TIME: Duration = Duration::from_secs(3);

/// The queue. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndQueue(Arc<(Mutex<QueueState>, Condvar)>);

#[derive(Default)]
struct QueueState {
    waiting: Vec<EndRecords>,
    /// Requests and handshakes of `waiting`.
    records: usize,
    /// Requests beyond [`RECORDS_MAX`].
    dropped_requests: u64,
    /// When delivery ends, of a closed queue.
    deadline: Option<Instant>,
}

impl std::fmt::Debug for QueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueState").field("records", &self.records).finish_non_exhaustive()
    }
}

/// What was in the queue.
pub(crate) struct TakenRecords {
    pub(crate) records: Vec<EndRecords>,
    pub(crate) dropped_requests: u64,
    /// Whether nothing follows.
    pub(crate) is_last: bool,
}

impl EndQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds records; those that do not fit are counted.
    pub(crate) fn push(&self, records: EndRecords) {
        let mut state = self.state();
        match state.records + records.records() <= RECORDS_MAX {
            true => {
                state.records += records.records();
                state.waiting.push(records);
            }
            false => state.dropped_requests += records.requests(),
        }
    }

    /// Nothing follows.
    pub(crate) fn close(&self) {
        self.state().deadline.get_or_insert_with(|| Instant::now() + CLOSING_TIME);
        self.0.1.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().deadline.is_some()
    }

    /// Whether the queue was closed so long ago that nothing more is delivered.
    pub(crate) fn is_over(&self) -> bool {
        self.state().deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits for `delay`, or until the queue is closed.
    pub(crate) fn wait(&self, delay: Duration) {
        let is_open = |state: &mut QueueState| state.deadline.is_none();
        let waited = self.0.1.wait_timeout_while(self.state(), delay, is_open);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes all records after `delay`, or at once if the queue is closed.
    pub(crate) fn take_after(&self, delay: Duration) -> TakenRecords {
        self.wait(delay);
        let mut state = self.state();
        state.records = 0;
        TakenRecords {
            records: std::mem::take(&mut state.waiting),
            dropped_requests: std::mem::take(&mut state.dropped_requests),
            is_last: state.deadline.is_some(),
        }
    }
}
