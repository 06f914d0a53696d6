//! Maintenance: flush, rollups, compaction, retention and scrub, in this order, and their thread.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use journal::supervisor::catch_panic;
use model::Selector;

use crate::check::ScrubCursor;
use crate::error::{Error, Result};
use crate::inner::StoreInner;
use crate::mutex::lock;
use crate::quarantine::ATTEMPTS_MAX;
use crate::work_backoff::WorkBackoff;

/// Extent of a maintenance pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MaintenancePace {
    /// Everything that is due.
    Full,
    /// Only flushes of a full head or for a full journal.
    Limits,
}

/// Chooses the pace of the maintenance thread.
///
/// While batches arrive, a partition that is over gets more rows at once if they are old: a flush
/// now would be followed by another one, each with a part that the next rollup of the day reads and
/// rewrites. So closed partitions are flushed and rolled up when no batch arrived for a second, or
/// after a minute.
#[derive(Debug, Default)]
struct PaceChooser {
    /// End of the journal, and when it was first seen.
    last_batch: Option<(u64, Instant)>,
    limited_since: Option<Instant>,
}

impl PaceChooser {
    const QUIET: Duration = Duration::from_secs(1);
    const LIMITED_MAX: Duration = Duration::from_secs(60);

    /// The pace of the next pass, from the end of the journal.
    fn next(&mut self, end: u64, now: Instant) -> MaintenancePace {
        // What was in the journal at the start does not count as arriving.
        let (known_end, arrived) = self.last_batch.get_or_insert((end, now));
        let is_busy = if *known_end == end {
            now.duration_since(*arrived) < Self::QUIET && self.limited_since.is_some()
        } else {
            (*known_end, *arrived) = (end, now);
            true
        };
        let since = *self.limited_since.get_or_insert(now);
        if is_busy && now.duration_since(since) < Self::LIMITED_MAX {
            return MaintenancePace::Limits;
        }
        self.limited_since = None;
        MaintenancePace::Full
    }
}

impl StoreInner {
    /// Runs due maintenance; returns whether anything changed on disk.
    pub(crate) fn maintain(&self) -> Result<bool> {
        self.maintain_at(MaintenancePace::Full)
    }

    fn maintain_at(&self, pace: MaintenancePace) -> Result<bool> {
        let changed = self.maintain_rows(pace);
        // Batches with new series and queries do not wait for it.
        let merged = self.run_guarded("merging traces", || self.merge_traces());
        Ok(changed? | merged?)
    }

    fn maintain_rows(&self, pace: MaintenancePace) -> Result<bool> {
        let _work = lock(&self.work);
        self.check_running()?;
        let mut changed = self.drain_journal()?;
        let is_due = match pace {
            MaintenancePace::Full => self.is_flush_due(),
            MaintenancePace::Limits => self.is_head_full(),
        };
        if is_due || self.is_journal_half_full()? {
            self.catch_up()?;
            match self.flush_read() {
                // A day is rolled up only when all of it is flushed.
                Ok(flushed) if is_due && !flushed.is_complete => return Ok(true),
                Ok(flushed) => changed |= flushed.is_changed,
                // Another subscriber fills the journal, and nothing is due.
                Err(Error::Journal(journal::Error::Full(_))) if !is_due => {}
                Err(error) => return Err(error),
            }
        }
        let traces = self.run_guarded("writing traces", || self.maintain_traces());
        if pace == MaintenancePace::Limits {
            return Ok(traces? || changed);
        }
        // A failure of one task, such as an unreadable part, does not stop the others.
        let done = [self.run_due_rollups(), self.compact_parts(), self.drop_expired(), traces];
        self.remove_unreferenced();
        if matches!(done[2], Ok(true)) {
            self.run_guarded("removing series without rows", || {
                let all = self.index().select(&Selector::All);
                self.forget_empty_series(all).map(|series| series > 0)
            })?;
        }
        self.release_keys()?;
        for done in done {
            changed |= done?;
        }
        Ok(changed)
    }

    /// Runs a maintenance task, named for users. A panic is reported as an error, and the task is
    /// deferred for a minute, then twice as long each time, so that it does not block other tasks.
    /// Returns `false` while it is deferred. From the third panic on it is reported as quarantined,
    /// until it succeeds.
    pub(crate) fn run_guarded(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        const WAIT: Duration = Duration::from_secs(60);
        const WAIT_MAX: Duration = Duration::from_secs(3600);
        let (supervisor, now) = (self.supervisor(), self.supervisor().now());
        let rest = lock(&self.deferred_work).get(name).copied();
        if rest.is_some_and(|rest| !rest.has_elapsed(now)) {
            return Ok(false);
        }
        let work = || {
            supervisor.failpoint(format_args!("store {name}"));
            work()
        };
        match catch_panic(work) {
            Ok(done) => {
                if lock(&self.deferred_work).remove(name).is_some() {
                    supervisor.release(name);
                }
                done
            }
            Err(message) => {
                let wait = rest.map_or(WAIT, |rest| rest.wait.saturating_mul(2).min(WAIT_MAX));
                let panics = rest.map_or(0, |rest| rest.panics).saturating_add(1);
                let rest = WorkBackoff { since: now, wait, panics };
                lock(&self.deferred_work).insert(name.to_owned(), rest);
                if panics >= ATTEMPTS_MAX {
                    supervisor.quarantine(name, &*message);
                }
                let seconds = wait.as_secs();
                Err(Error::MaintenancePanicked { action: name.to_owned(), message, seconds })
            }
        }
    }

    /// Loop of the maintenance thread.
    pub(crate) fn run(&self) {
        const PAUSE: Duration = Duration::from_millis(100);
        const IDLE_PAUSE: Duration = Duration::from_secs(1);
        let (mut round, mut looked) = (ScrubCursor::default(), Instant::now());
        let mut pace = PaceChooser::default();
        while !self.stop.load(Ordering::Relaxed) {
            self.supervisor().failpoint("store");
            let position = self.journal.watermarks().end;
            if let Err(error) = self.maintain_at(pace.next(position, Instant::now())) {
                if matches!(error, Error::Closing) {
                    return;
                }
                self.add_warning(format!("maintenance: {error}"));
                if self.check_running().is_err() {
                    return;
                }
            }
            let now = Instant::now();
            let elapsed = now.duration_since(looked);
            looked = now;
            self.scrub_step_or_skip(&mut round, elapsed);
            // Not at every batch: readers catch up on their own; this only bounds the lag of the
            // head.
            std::thread::sleep(PAUSE);
            let woken = lock(&self.wake.0);
            let waited = self.wake.1.wait_timeout_while(woken, IDLE_PAUSE, |woken| !*woken);
            *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use disk::Disk;
    use sim::SimDisk;

    use super::*;
    use crate::options::Options;
    use crate::store::Store;

    #[test]
    fn closed_partitions_are_flushed_when_no_batch_arrives_or_after_a_minute() {
        let (mut chooser, began) = (PaceChooser::default(), Instant::now());
        let mut check = |ms: u64, end: u64, expected: MaintenancePace| {
            let now = began + Duration::from_millis(ms);
            assert_eq!(chooser.next(end, now), expected, "{ms} ms");
        };
        check(0, 3, MaintenancePace::Full);
        check(100, 5, MaintenancePace::Limits);
        check(1_000, 9, MaintenancePace::Limits);
        check(1_900, 9, MaintenancePace::Limits);
        check(2_000, 9, MaintenancePace::Full);
        check(2_100, 9, MaintenancePace::Full);
        check(4_000, 10, MaintenancePace::Limits);
        check(63_900, 11, MaintenancePace::Limits);
        check(64_000, 12, MaintenancePace::Full);
        check(64_100, 13, MaintenancePace::Limits);
    }

    #[test]
    fn panicking_work_is_deferred() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        Store::create(&disk, Path::new("/store"), &journal::Settings::default()).unwrap();
        let store = Store::open(disk, Path::new("/store"), &Options::default()).unwrap();
        let panics =
            || store.inner().run_guarded("rolling up day 7", || panic!("a count overflows"));
        let error = panics().unwrap_err().to_string();
        let expected = "rolling up day 7 panicked and is retried in 60 s, please report this bug: a count overflows";
        assert_eq!(error, expected);
        assert!(!panics().unwrap(), "it is left alone");
        assert!(store.inner().run_guarded("rolling up day 8", || Ok(true)).unwrap());
        assert!(!store.inner().deferred_work.lock().unwrap().contains_key("rolling up day 8"));
    }
}
