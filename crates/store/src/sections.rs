//! Batches with sections, such as exemplars: the manifest says whether the journal may have some.
//!
//! A release that does not read sections rejects a batch that has one as a whole, samples included,
//! and it would find a gap in place of acknowledged samples. The manifest's version keeps such a
//! release from opening the store: it is raised before the first batch with a section is appended,
//! and lowered by [`Store::flush`](crate::Store::flush), after which no such batch is read again.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

use model::Batch;

use crate::change::StoreChange;
use crate::error::Result;
use crate::inner::StoreInner;

/// Timeout of a batch behind maintenance, such as a compaction. It is needed once in the life of a
/// store. Batches after one that has waited in vain do not wait: each would be as late.
const WORK_TIMEOUT: Duration = Duration::from_secs(2);
const WORK_PAUSE: Duration = Duration::from_millis(1);

impl StoreInner {
    /// Shares the admission; returns the batch as it is appended. If the manifest cannot say that
    /// there are sections, it is the batch without them: samples are stored anyway.
    pub(crate) fn admit<'a>(
        &self,
        batch: &'a Batch,
    ) -> Result<(RwLockReadGuard<'_, ()>, Cow<'a, Batch>)> {
        let share = || self.admission.read().unwrap_or_else(PoisonError::into_inner);
        if !batch.has_sections() {
            return Ok((share(), Cow::Borrowed(batch)));
        }
        let announced = self.announce_sections();
        let admission = share();
        // A flush may have lowered the version meanwhile.
        if self.state().manifest.has_sections {
            return Ok((admission, Cow::Borrowed(batch)));
        }
        self.check_running()?;
        let reason = announced.err().unwrap_or_else(|| "the store is being flushed".to_owned());
        self.add_warning(format!("exemplars of a batch are not stored: {reason}"));
        Ok((admission, Cow::Owned(batch.without_sections()?)))
    }

    /// Returns why the manifest cannot say it.
    fn announce_sections(&self) -> Result<(), String> {
        if self.state().manifest.has_sections {
            return Ok(());
        }
        let is_late = self.is_announcement_late.load(Ordering::Relaxed);
        let work = self.work_within(if is_late { Duration::ZERO } else { WORK_TIMEOUT });
        // Relaxed: it only decides how long to wait.
        self.is_announcement_late.store(work.is_none(), Ordering::Relaxed);
        let _work = work.ok_or("maintenance takes long")?;
        let change = StoreChange::new(self).map_err(|error| error.to_string())?;
        if change.base_manifest.has_sections {
            return Ok(());
        }
        change.commit(|manifest| manifest.has_sections = true).map_err(|error| error.to_string())
    }

    fn work_within(&self, timeout: Duration) -> Option<MutexGuard<'_, ()>> {
        let began = Instant::now();
        loop {
            match self.work.try_lock() {
                Ok(work) => return Some(work),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if began.elapsed() < timeout => {
                    std::thread::sleep(WORK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// Lowers the version if all of the journal is in parts. The caller holds the mutex `work`.
    pub(crate) fn clear_sections(&self) -> Result<()> {
        let _admission = self.admission.write().unwrap_or_else(PoisonError::into_inner);
        let manifest = self.state().manifest.clone();
        if !manifest.has_sections || manifest.position != self.journal.watermarks().end {
            return Ok(());
        }
        StoreChange::new(self)?.commit(|manifest| manifest.has_sections = false)
    }
}
