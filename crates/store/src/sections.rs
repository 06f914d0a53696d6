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
use std::sync::{PoisonError, RwLockReadGuard};

use model::Batch;

use crate::change::StoreChange;
use crate::error::Result;
use crate::inner::StoreInner;
use crate::manifest::Manifest;

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
        let reason = announced.err();
        let reason =
            reason.map_or_else(|| "the store is being flushed".into(), |it| it.to_string());
        self.add_warning(format!("exemplars of a batch are not stored: {reason}"));
        Ok((admission, Cow::Owned(batch.without_sections()?)))
    }

    /// Says so in the manifest. It does not wait for maintenance, such as a compaction, but only
    /// while a manifest is written.
    fn announce_sections(&self) -> Result<()> {
        if self.state().manifest.has_sections {
            return Ok(());
        }
        self.check_running()?;
        self.commit_manifest(&[], |current| Manifest { has_sections: true, ..current.clone() })
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use disk::Disk;
    use journal::Level;
    use model::{BatchWriter, TraceSpans};
    use sim::SimDisk;

    use super::*;
    use crate::mutex::lock;
    use crate::options::Options;
    use crate::store::Store;

    /// A batch waited for two seconds, and was stored without its sections.
    #[test]
    fn sections_do_not_wait_for_maintenance() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        Store::create(&disk, Path::new("/store"), &journal::Settings::default()).unwrap();
        let store = Store::open(disk, Path::new("/store"), &Options::default()).unwrap();
        let _work = lock(&store.inner().work);
        let change = StoreChange::new(store.inner()).unwrap();
        let mut batch = BatchWriter::default();
        batch.trace(TraceSpans { trace_id: [1; 16], is_cut: false, spans: b"a" });
        let _ack = store.ingest(None, &batch.finish(), Level::Process).unwrap();
        assert_eq!(store.trace_stat().head_bytes, 0, "not read yet");
        store.catch_up().unwrap();
        assert!(store.trace_stat().head_bytes > 0);
        // The change that began before keeps what was said, and each manifest has its number.
        let generation = || store.inner().state().manifest.generation;
        let before = generation();
        change.commit(|_| ()).unwrap();
        assert_eq!(generation(), before + 1);
        assert!(store.inner().state().manifest.has_sections);
    }
}
