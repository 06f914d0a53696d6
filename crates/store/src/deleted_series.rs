//! Removal of series without rows from the index.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use model::{Selector, Series, SeriesId};

use crate::backend::SeriesRecord;
use crate::deleted_keys::DeletedSeriesKeys;
use crate::error::Result;
use crate::index::SeriesNumber;
use crate::inner::{SUBSCRIBER, StoreInner};
use crate::mutex::lock;

/// Where a part has more chunks than this for each candidate series, each series is looked up by
/// its id.
const CHUNKS_PER_LOOKUP: usize = 32;

impl StoreInner {
    /// Removes those of `series` from the index that have no rows in any part or head. Returns
    /// their number. The caller holds the mutex `work`.
    pub(crate) fn forget_empty_series(&self, series: Vec<SeriesNumber>) -> Result<u64> {
        // Keys that are not written yet belong to new series, which have rows in the head.
        let manifest = Arc::clone(&self.state().manifest);
        let ids: Vec<SeriesId> = {
            let index = self.index();
            let written = series.into_iter().filter(|number| u64::from(number.0) < manifest.series);
            written.map(|number| index.id(number)).collect()
        };
        let mut empty: HashSet<SeriesId> = ids.into_iter().collect();
        // Parts change only under `work`, so no other thread waits until here. The newest parts
        // hold most of the live series.
        for &number in manifest.parts.keys().rev() {
            if empty.is_empty() {
                return Ok(0);
            }
            let part = self.part(number)?;
            if empty.len() < part.chunks()? / CHUNKS_PER_LOOKUP {
                let mut found = Vec::new();
                for id in &empty {
                    found.extend(part.find(id)?.first().map(|location| location.series));
                }
                found.iter().for_each(|id| _ = empty.remove(id));
            } else {
                part.for_each_series(&mut |id| _ = empty.remove(id))?;
            }
        }
        // Appends wait until the series are removed; everything appended before is in a head.
        let _admission = self.admission.write().unwrap_or_else(PoisonError::into_inner);
        self.catch_up()?;
        let heads = self.state().heads();
        let mut nonempty: Vec<SeriesNumber> = Vec::new();
        for head in heads {
            nonempty.extend(head.read().unwrap_or_else(PoisonError::into_inner).series());
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        nonempty.iter().for_each(|number| _ = empty.remove(&index.id(*number)));
        if empty.is_empty() {
            return Ok(0);
        }
        let mut ids: Vec<SeriesId> = empty.into_iter().collect();
        model::sort::by(&mut ids, Ord::cmp);
        self.storage.delete_series(&ids)?;
        let numbers: Vec<SeriesNumber> = ids.iter().filter_map(|id| index.number(id)).collect();
        let canonical_keys =
            numbers.iter().map(|number| (index.id(*number), index.key(*number).to_owned()));
        let canonical_keys: Vec<_> = canonical_keys.collect();
        index.delete(&numbers);
        drop(index);
        self.retain_keys(canonical_keys)?;
        Ok(numbers.len() as u64)
    }

    /// Deleted series that match a selector, each once, unordered: read again from the series file.
    pub(crate) fn select_deleted(&self, selector: &Selector) -> Result<Vec<Series>> {
        let mut keys: HashMap<SeriesId, Vec<u8>> = HashMap::new();
        let mut deleted: HashMap<SeriesId, Series> = HashMap::new();
        self.storage.list_series(&mut |record| match record {
            SeriesRecord::Added { key, .. } => {
                let id = SeriesId::from_canonical_key(key);
                // The series was added again.
                deleted.remove(&id);
                if Series::from_canonical_key(key).is_ok_and(|series| selector.matches(&series)) {
                    keys.insert(id, key.to_owned());
                }
            }
            SeriesRecord::Sent { .. } => {}
            SeriesRecord::Deleted(id) => {
                let key = keys.remove(&id);
                let series = key.and_then(|key| Series::from_canonical_key(&key).ok());
                deleted.extend(series.map(|series| (id, series)));
            }
        })?;
        // Added again and not flushed yet.
        let index = self.index();
        deleted.retain(|id, _| index.number(id).is_none());
        Ok(deleted.into_values().collect())
    }

    /// Retains canonical keys of deleted series as long as the journal may refer to their ids.
    pub(crate) fn retain_keys(&self, canonical_keys: Vec<(SeriesId, Vec<u8>)>) -> Result<()> {
        if canonical_keys.is_empty() {
            return Ok(());
        }
        {
            let mut forgotten = lock(&self.deleted_keys);
            forgotten.keys.extend(canonical_keys);
            forgotten.end = self.journal.watermarks().end;
        }
        self.release_keys()
    }

    /// Releases canonical keys of deleted series that no journal record can name any more.
    pub(crate) fn release_keys(&self) -> Result<()> {
        if lock(&self.deleted_keys).keys.is_empty() {
            return Ok(());
        }
        let stat = self.journal.stat()?;
        let mut others = stat.checkpoints.iter().filter(|other| other.name != SUBSCRIBER);
        let mut forgotten = lock(&self.deleted_keys);
        if others.all(|other| other.position >= forgotten.end) {
            *forgotten = DeletedSeriesKeys::default();
        }
        Ok(())
    }
}
