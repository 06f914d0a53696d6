//! State of an open store, its locks, and its open parts.
//!
//! Lock order: `work` (changes parts), `admission` (shared by appends, exclusive for deleting
//! series), `subscriber` (reads the journal), `commit` (writes the manifest), `state`, a head, the
//! index, `producers` (batches read so far), `quarantine`, `exemplars`, `traces`. `trace_parts`
//! comes after `work` and before the others. The producers change only under `subscriber`, so that
//! position and producers are consistent under it; acknowledgements look at the producers without
//! `subscriber` and never wait for the reader.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use journal::{Journal, Subscriber, Supervisor};
use model::{Gap, SeriesId, SeriesKind};

use crate::backend::{Part, Storage};
use crate::deleted_keys::DeletedSeriesKeys;
use crate::error::{Error, Result};
use crate::exemplars::{ExemplarFile, Reservoir};
use crate::gather::missing_rows;
use crate::head::{Head, HeadId, ImmutableHead};
use crate::index::{SeriesIndex, SeriesNumber};
use crate::manifest::{Manifest, PartInfo, ProducerTable};
use crate::manifest_file::ManifestFile;
use crate::mutex::lock;
use crate::options::Options;
use crate::quarantine::Quarantine;
use crate::retention::RetentionChecks;
use crate::traces::TraceStore;
use crate::work_backoff::WorkBackoff;

/// The journal's subscriber that feeds the store.
pub(crate) const SUBSCRIBER: &str = "store";
/// Maximum number of open parts: each is a file descriptor.
const OPEN_MAX: usize = 256;

pub(crate) struct StoreInner {
    pub(crate) dir: PathBuf,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) manifest_file: ManifestFile,
    pub(crate) journal: Journal,
    pub(crate) index: Arc<RwLock<SeriesIndex>>,
    /// Number of canonical keys in the series file.
    pub(crate) stored_keys: AtomicU64,
    /// Held while keys are appended.
    pub(crate) keys_lock: Mutex<()>,
    /// Covers the index lookup and the append: a series that a batch names by number must not be
    /// deleted in between.
    pub(crate) admission: RwLock<()>,
    /// Keys of deleted series that journal batches may still name by number.
    pub(crate) deleted_keys: Mutex<DeletedSeriesKeys>,
    pub(crate) subscriber: Mutex<Subscriber>,
    /// The last reader of the journal did not finish: the head may hold part of a record.
    pub(crate) is_reading_interrupted: AtomicBool,
    /// Quarantined inputs.
    pub(crate) quarantine: Mutex<Quarantine>,
    /// Exemplars of the last hour.
    pub(crate) exemplars: Mutex<Reservoir>,
    pub(crate) exemplar_file: ExemplarFile,
    /// Whole traces.
    pub(crate) traces: Mutex<TraceStore>,
    /// Held while parts of traces are merged or removed.
    pub(crate) trace_parts: Mutex<()>,
    /// Batches read from the journal.
    pub(crate) producers: Mutex<ProducerTable>,
    /// Sequences evicted from the full table.
    pub(crate) evicted_sequences: AtomicU64,
    /// Memory of the rows in heads, in bytes, as of the last record read.
    pub(crate) head_bytes: AtomicUsize,
    /// Bytes of rows that the last flush of a head wrote per second; 0 before the first.
    pub(crate) flush_rate: AtomicU64,
    /// Append time of the last batch read; `i64::MIN` before the first.
    pub(crate) last_append_time: AtomicI64,
    /// Approximate bytes of batches appended and not read yet.
    pub(crate) unread_bytes: AtomicUsize,
    pub(crate) state: Mutex<StoreState>,
    pub(crate) work: Mutex<()>,
    pub(crate) commit: Mutex<()>,
    pub(crate) options: Options,
    pub(crate) stop: AtomicBool,
    /// Backoff of maintenance work that panicked.
    pub(crate) deferred_work: Mutex<HashMap<String, WorkBackoff>>,
    /// Parts in which nothing has expired.
    pub(crate) retention_checks: Mutex<RetentionChecks>,
    /// Signalled when there is work.
    pub(crate) wake: (Mutex<bool>, Condvar),
}

pub(crate) struct StoreState {
    pub(crate) manifest: Arc<Manifest>,
    /// Manifests that a view may still hold, with their generations.
    pub(crate) previous_manifests: Vec<(u64, Weak<Manifest>)>,
    /// Parts that the manifest no longer names, and the generation that dropped them.
    pub(crate) unreferenced_parts: Vec<(u64, u64)>,
    pub(crate) active_head: Arc<RwLock<Head>>,
    pub(crate) immutable_head: Option<ImmutableHead>,
    pub(crate) open: HashMap<u64, Arc<dyn Part>>,
    /// Heads of which one live part has all rows, by part.
    pub(crate) flushed_heads: HashMap<u64, HeadId>,
    pub(crate) warnings: Vec<String>,
    pub(crate) failure: Option<String>,
}

impl StoreState {
    /// Damage found at opening and by maintenance.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The heads, older first.
    pub(crate) fn heads(&self) -> Vec<Arc<RwLock<Head>>> {
        let immutable = self.immutable_head.as_ref().map(|immutable| Arc::clone(&immutable.head));
        immutable.into_iter().chain([Arc::clone(&self.active_head)]).collect()
    }
}

impl StoreInner {
    pub(crate) fn state(&self) -> MutexGuard<'_, StoreState> {
        lock(&self.state)
    }

    /// Directory of the store.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, SeriesIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.options.journal.supervisor
    }

    pub(crate) fn now(&self) -> i64 {
        (self.options.clock)()
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match &self.state().failure {
            Some(reason) => Err(Error::FailStop { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Returns an error once the store is closing. Long work stops here, before anything is
    /// committed.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Closing),
            false => Ok(()),
        }
    }

    pub(crate) fn fail_stop(&self, reason: &str) {
        self.state().failure.get_or_insert_with(|| reason.to_owned());
    }

    /// Appends missing canonical keys and producers to the series file; returns the number in the
    /// file. They survive a process crash, and with `durably` also a power loss.
    pub(crate) fn append_keys(&self, durably: bool) -> Result<u64> {
        let _turn = lock(&self.keys_lock);
        let key_count = self.stored_keys.load(Ordering::Relaxed);
        let (producers, series) = {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            // Their series are among those read here or stored before.
            let producers = index.take_unstored_producers();
            let new = (key_count..index.len() as u64).map(|number| SeriesNumber(number as u32));
            let series: Vec<(Option<u64>, Vec<u8>)> =
                new.map(|number| (index.producer(number), index.key(number).to_owned())).collect();
            (producers, series)
        };
        let stored = self.storage.add_series(&series, durably && producers.is_empty());
        let stored = stored.and_then(|()| {
            let key_count = key_count.saturating_add(series.len() as u64);
            self.stored_keys.store(key_count, Ordering::Relaxed);
            self.append_producers(&producers, durably)?;
            Ok(key_count)
        });
        if stored.is_err() {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.put_back_unstored_producers(producers);
        }
        stored
    }

    fn append_producers(&self, producers: &[(SeriesNumber, u64)], durably: bool) -> Result<()> {
        if producers.is_empty() {
            return Ok(());
        }
        let ids: Vec<(SeriesId, u64)> = {
            let index = self.index();
            producers.iter().map(|&(number, producer)| (index.id(number), producer)).collect()
        };
        self.storage.add_producers(&ids, durably)
    }

    /// Returns an open part.
    pub(crate) fn part(&self, number: u64) -> Result<Arc<dyn Part>> {
        if let Some(part) = self.state().open.get(&number) {
            return Ok(Arc::clone(part));
        }
        let part = self.storage.open_part(number)?;
        let mut state = self.state();
        if state.open.len() >= OPEN_MAX {
            state.open.clear();
        }
        state.open.insert(number, Arc::clone(&part));
        Ok(part)
    }

    /// Replaces the manifest, and schedules parts that it does not name for removal.
    pub(crate) fn replace_manifest(&self, manifest: Manifest, removed: &[u64]) {
        let mut state = self.state();
        if state
            .immutable_head
            .as_ref()
            .is_some_and(|immutable| immutable.position <= manifest.position)
        {
            state.immutable_head = None;
        }
        let generation = manifest.generation;
        let before = std::mem::replace(&mut state.manifest, Arc::new(manifest));
        state.previous_manifests.push((before.generation, Arc::downgrade(&before)));
        state.flushed_heads.retain(|number, _| !removed.contains(number));
        state.unreferenced_parts.extend(removed.iter().map(|&number| (generation, number)));
    }

    /// Removes unreferenced parts that no view can read.
    pub(crate) fn remove_unreferenced(&self) {
        let removable: Vec<u64> = {
            let mut state = self.state();
            state.previous_manifests.retain(|(_, manifest)| manifest.strong_count() > 0);
            let oldest = state
                .previous_manifests
                .iter()
                .map(|&(generation, _)| generation)
                .min()
                .unwrap_or(u64::MAX);
            let dead = std::mem::take(&mut state.unreferenced_parts);
            let (removable, dead): (Vec<_>, Vec<_>) =
                dead.into_iter().partition(|&(generation, _)| generation <= oldest);
            state.unreferenced_parts = dead;
            removable.iter().for_each(|(_, number)| drop(state.open.remove(number)));
            removable.into_iter().map(|(_, number)| number).collect()
        };
        for number in removable {
            // No manifest names the part: if this fails, the next start removes it.
            if let Err(error) = self.storage.remove_part(number) {
                self.add_warning(error.to_string());
            }
        }
    }

    pub(crate) fn add_warning(&self, note: String) {
        const WARNINGS_MAX: usize = 64;
        let mut state = self.state();
        if !state.warnings.contains(&note) {
            if state.warnings.len() == WARNINGS_MAX {
                state.warnings.remove(0);
            }
            state.warnings.push(note);
        }
    }

    pub(crate) fn wake(&self) {
        *lock(&self.wake.0) = true;
        self.wake.1.notify_one();
    }

    pub(crate) fn kind(&self, id: &SeriesId) -> Option<SeriesKind> {
        let index = self.index();
        index.number(id).map(|number| index.kind(number))
    }

    /// Canonical key of a stored series.
    #[expect(clippy::expect_used, reason = "rows are only written of series that are known")]
    pub(crate) fn key(&self, id: &SeriesId) -> Vec<u8> {
        let index = self.index();
        let number = index.number(id).expect("BUG: rows are only written of series that are known");
        index.key(number).to_owned()
    }

    /// Opens parts to be rewritten; `gaps` gets rows that are missing as a whole.
    pub(crate) fn parts<'a>(
        &self,
        infos: impl IntoIterator<Item = &'a PartInfo>,
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<Arc<dyn Part>>> {
        let mut parts = Vec::new();
        for info in infos {
            let part = self.part(info.number)?;
            gaps.extend(missing_rows(&*part, info)?);
            parts.push(part);
        }
        Ok(parts)
    }
}
