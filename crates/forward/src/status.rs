//! Status of a remote.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::Journal;

/// Status of a remote. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Since when there is a connection to it, if there is one.
    pub connected: Option<i64>,
    /// The journal's position up to which the site has everything durably.
    pub position: u64,
    /// Records that it does not have yet.
    pub lag: u64,
    /// When the oldest of them was appended, as far as it was read; nothing when there is none.
    pub oldest: Option<i64>,
    /// When the site acknowledged last.
    pub acknowledged: Option<i64>,
    /// The last failure, and when it was; nothing once the site has taken something since.
    pub last_error: Option<(i64, String)>,
    /// Bytes that went out since the process began, compressed, with what was sent again.
    pub sent_bytes: u64,
    /// Records that were acknowledged since the process began.
    pub records: u64,
    /// Records that were missing in the journal, and that the site was told of, since the process
    /// began.
    pub missing: u64,
    /// Batches that were set aside since the process began.
    pub dead_lettered: u64,
    /// What was found wrong with the book of what it has, when the process began.
    pub warning: Option<String>,
}

/// Subscriber of a removed remote; it still blocks retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedSubscriber {
    /// The site's name.
    pub name: String,
    /// Up to where it got everything.
    pub position: u64,
    /// When that last changed, in nanoseconds since the Unix epoch.
    pub committed: i64,
    /// Records it keeps from being freed.
    pub lag: u64,
}

/// A status that is written by one and read by all.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusCell(Arc<Mutex<RemoteStatus>>);

impl StatusCell {
    pub(crate) fn new(status: RemoteStatus) -> StatusCell {
        StatusCell(Arc::new(Mutex::new(status)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, RemoteStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the lag as it is now: the journal grows while a site is silent.
    pub(crate) fn snapshot(&self, journal: &Journal) -> RemoteStatus {
        let status = self.lock().clone();
        RemoteStatus { lag: journal.watermarks().end.saturating_sub(status.position), ..status }
    }
}
