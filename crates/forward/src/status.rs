//! Status of a remote.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::Journal;

/// Status of a remote. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteStatus {
    /// Remote name.
    pub name: String,
    /// Remote URL.
    pub url: String,
    /// Time at which the current connection was established; `None` if disconnected.
    pub connected: Option<i64>,
    /// Journal position before which the remote has everything durably.
    pub position: u64,
    /// Records that the remote has not acknowledged.
    pub lag: u64,
    /// Append time of the oldest unacknowledged record, as far as read; `None` if there is none.
    pub oldest: Option<i64>,
    /// Time of the last acknowledgement.
    pub acknowledged: Option<i64>,
    /// Time and text of the last failure; `None` after the next success.
    pub last_error: Option<(i64, String)>,
    /// Compressed bytes sent since the process started, retries included.
    pub sent_bytes: u64,
    /// Records acknowledged since the process started.
    pub records: u64,
    /// Records missing in the journal and reported to the remote as gaps, since the process
    /// started.
    pub missing: u64,
    /// Batches dead-lettered since the process started.
    pub dead_lettered: u64,
    /// Problem found with the remote's ledger when the process started.
    pub warning: Option<String>,
}

/// Subscriber of a removed remote; it still prevents deletion of what it has not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedSubscriber {
    /// Remote name.
    pub name: String,
    /// Acknowledged position.
    pub position: u64,
    /// Time of the last change of the position, in nanoseconds since the Unix epoch.
    pub committed_at: i64,
    /// Records retained for it.
    pub lag: u64,
}

/// Status with one writer and many readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusCell(Arc<Mutex<RemoteStatus>>);

impl StatusCell {
    pub(crate) fn new(status: RemoteStatus) -> StatusCell {
        StatusCell(Arc::new(Mutex::new(status)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, RemoteStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Status with the current lag: the journal grows while a remote is disconnected.
    pub(crate) fn snapshot(&self, journal: &Journal) -> RemoteStatus {
        let status = self.lock().clone();
        RemoteStatus { lag: journal.watermarks().end.saturating_sub(status.position), ..status }
    }
}
