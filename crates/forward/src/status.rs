//! How it is with a site.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::Journal;

/// A site as it is now. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
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
    pub trouble: Option<(i64, String)>,
    /// Bytes that went out since the process began, compressed, with what was sent again.
    pub sent_bytes: u64,
    /// Records that were acknowledged since the process began.
    pub records: u64,
    /// Records that were missing in the journal, and that the site was told of, since the process began.
    pub missing: u64,
    /// Batches that were set aside since the process began.
    pub set_aside: u64,
    /// What was found wrong with the book of what it has, when the process began.
    pub note: Option<String>,
}

/// A place in the journal whose site is in the settings no more. It goes on holding what the site did not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The site's name.
    pub name: String,
    /// Up to where it got everything.
    pub position: u64,
    /// When that last changed, in nanoseconds since the Unix epoch.
    pub moved: i64,
    /// Records it keeps from being freed.
    pub lag: u64,
}

/// A status that is written by one and read by all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board(Arc<Mutex<Status>>);

impl Board {
    pub(crate) fn new(status: Status) -> Board {
        Board(Arc::new(Mutex::new(status)))
    }

    pub(crate) fn set(&self) -> MutexGuard<'_, Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the lag as it is now: the journal grows while a site is silent.
    pub(crate) fn now(&self, journal: &Journal) -> Status {
        let status = self.set().clone();
        Status { lag: journal.marks().end.saturating_sub(status.position), ..status }
    }
}
