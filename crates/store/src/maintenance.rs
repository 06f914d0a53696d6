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

impl StoreInner {
    /// Runs due maintenance; returns whether anything changed on disk.
    pub(crate) fn maintain(&self) -> Result<bool> {
        let _work = lock(&self.work);
        self.check_running()?;
        let mut changed = self.drain_journal()?;
        let is_due = self.is_seal_due();
        if is_due || self.is_journal_nearly_full()? {
            self.catch_up()?;
            match self.seal_read() {
                // A day is rolled up only when all of it is flushed.
                Ok(sealed) if is_due && !sealed.is_complete => return Ok(true),
                Ok(sealed) => changed |= sealed.is_changed,
                // Another subscriber fills the journal, and nothing is due.
                Err(Error::Journal(journal::Error::Full(_))) if !is_due => {}
                Err(error) => return Err(error),
            }
        }
        // A failure of one task, such as an unreadable part, does not stop the others.
        let done = [self.run_due_rollups(), self.compact_parts(), self.drop_expired()];
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
            supervisor.fault_point(format_args!("store {name}"));
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
        while !self.stop.load(Ordering::Relaxed) {
            self.supervisor().fault_point("store");
            if let Err(error) = self.maintain() {
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

    use crate::options::Options;
    use crate::store::Store;

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
