//! What has been read for the overview; the next request reads only what is new.
//!
//! One request at a time reads on. It publishes a snapshot after each portion, from which all
//! requests answer: none waits until another one has read. Only before the first portion there is
//! nothing to answer from. A snapshot shares its rows with what is read on; what is changed since
//! is in memory twice until the next one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::Duration;

use query::overview::{MEMORY_BYTES_MAX, Overview, OverviewTimes, RowGroup};
use store::SECOND;

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;

/// A complete overview is answered from memory for this time.
const FRESH: i64 = 5 * SECOND;
/// How often a request looks whether the first snapshot is there.
const FIRST_SNAPSHOT_POLL: Duration = Duration::from_millis(5);

/// What has been read for the overview of each group, in the order of [`RowGroup::ALL`].
#[derive(Debug)]
pub(crate) struct OverviewCache(Vec<GroupOverview>);

/// The overview of a group.
#[derive(Debug)]
pub(crate) struct GroupOverview {
    working: Mutex<Overview>,
    published: RwLock<Option<Arc<OverviewSnapshot>>>,
}

/// What requests answer from.
#[derive(Debug)]
pub(crate) struct OverviewSnapshot {
    pub(crate) overview: Overview,
    today_start: i64,
    is_complete: AtomicBool,
}

/// What a request answers from, or the right to read on.
pub(crate) enum OverviewAccess<'a> {
    Snapshot(Arc<OverviewSnapshot>),
    Working(MutexGuard<'a, Overview>),
}

impl Default for OverviewCache {
    fn default() -> OverviewCache {
        let of = |(group, _): &(RowGroup, &str)| GroupOverview {
            working: Mutex::new(Overview::new(*group, MEMORY_BYTES_MAX)),
            published: RwLock::default(),
        };
        OverviewCache(RowGroup::ALL.iter().map(of).collect())
    }
}

impl OverviewCache {
    pub(crate) fn group(&self, group: RowGroup) -> &GroupOverview {
        let at = RowGroup::ALL.iter().position(|(known, _)| *known == group);
        &self.0[at.expect("BUG: a group is not in the table")]
    }
}

impl GroupOverview {
    /// A snapshot that is fresh, or that another request is about to replace; else the right to
    /// read on.
    pub(crate) fn access(
        &self,
        times: OverviewTimes,
        active: &ActiveQuery,
    ) -> Result<OverviewAccess<'_>, ApiError> {
        loop {
            active.check_cancelled()?;
            let published = self.published.read().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(fresh) = published.as_ref().filter(|snapshot| snapshot.is_fresh(times)) {
                return Ok(OverviewAccess::Snapshot(Arc::clone(fresh)));
            }
            match (self.working.try_lock(), published) {
                (Ok(working), _) => return Ok(OverviewAccess::Working(working)),
                (Err(TryLockError::Poisoned(poisoned)), _) => {
                    return Ok(OverviewAccess::Working(poisoned.into_inner()));
                }
                (Err(TryLockError::WouldBlock), Some(published)) => {
                    return Ok(OverviewAccess::Snapshot(published));
                }
                (Err(TryLockError::WouldBlock), None) => std::thread::sleep(FIRST_SNAPSHOT_POLL),
            }
        }
    }

    /// Publishes what has been read.
    pub(crate) fn publish(&self, working: &Overview, today_start: i64) -> Arc<OverviewSnapshot> {
        let snapshot = Arc::new(OverviewSnapshot {
            overview: working.clone(),
            today_start,
            is_complete: AtomicBool::new(false),
        });
        let published = Some(Arc::clone(&snapshot));
        // The one before is dropped after the lock.
        let _before = std::mem::replace(
            &mut *self.published.write().unwrap_or_else(PoisonError::into_inner),
            published,
        );
        snapshot
    }
}

impl OverviewSnapshot {
    fn is_fresh(&self, OverviewTimes { now, today_start }: OverviewTimes) -> bool {
        self.is_complete.load(Ordering::Relaxed)
            && self.today_start == today_start
            && (0..FRESH).contains(&(now - self.overview.refreshed_at()))
    }

    /// Whether nothing was left to read for a page.
    pub(crate) fn set_complete(&self, is_complete: bool) {
        self.is_complete.store(is_complete, Ordering::Relaxed);
    }

    /// For readers whose today begins at a time, if that is another one.
    pub(crate) fn of_other_day(&self, today_start: i64) -> Option<Overview> {
        (self.today_start != today_start).then(|| self.overview.clone().of_day(today_start))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::test_server::{NOW, TestServer};

    /// `topdeck overview` may read for 30 s, and the page of everybody else stood still.
    #[tokio::test]
    async fn request_is_answered_while_another_one_reads() {
        let server = TestServer::new();
        server.json("/v1/overview?budget=10s").await;
        let queries = Arc::clone(&server.context.queries);
        let (begin, has_begun) = mpsc::channel();
        let (end, is_over) = mpsc::channel::<()>();
        let reader = thread::spawn(move || {
            let _working = queries.overviews.group(RowGroup::Services).working.lock().unwrap();
            begin.send(()).unwrap();
            let _ = is_over.recv();
        });
        has_begun.recv().unwrap();
        // Of another day there is nothing to answer from: it is unknown until it is read.
        for (parameters, is_known) in [("", true), ("&today_from=-1h", false)] {
            let uri = format!("/v1/overview?threshold=latency=550ms{parameters}");
            let answer = tokio::time::timeout(Duration::from_secs(60), server.json(&uri));
            let answer = answer.await.expect("it waited for the other request");
            let row = &answer["rows"][0];
            assert_eq!(row["above_now"]["estimate"], 25);
            assert_eq!(row["above_today"].is_null(), !is_known, "{row}");
            assert_eq!(answer["incomplete"], u8::from(!is_known));
        }
        drop(end);
        reader.join().unwrap();
        let answer = server.json("/v1/overview?today_from=-1h&budget=10s").await;
        assert_eq!((&answer["incomplete"], &answer["now_ns"]), (&0.into(), &NOW.into()));
    }
}
