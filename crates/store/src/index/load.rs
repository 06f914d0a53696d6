//! Loading the index from the series file and from parts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashSet;

use model::SeriesId;

use super::{CardinalityLimits, SeriesIndex, SeriesNumber};
use crate::backend::{SeriesRecord, Storage};
use crate::error::Result;
use crate::manifest::Manifest;

/// Ids and canonical keys of deleted series.
pub(crate) type DeletedKeys = Vec<(SeriesId, Vec<u8>)>;

impl SeriesIndex {
    /// Loads the live and the deleted series of a store, by id. Corrupt keys are recovered from
    /// parts; `notes` reports them.
    pub(crate) fn load(
        storage: &dyn Storage,
        manifest: &Manifest,
        limits: CardinalityLimits,
        notes: &mut Vec<String>,
    ) -> Result<(SeriesIndex, DeletedKeys)> {
        let mut index = SeriesIndex::new(limits);
        let mut refused = Vec::new();
        let mut deleted = PendingDeletions::default();
        let mut read = |record: SeriesRecord<'_>| match record {
            SeriesRecord::Added { key: canonical_key, producer } => {
                deleted.restore(&mut index, canonical_key);
                if let Err(error) = index.insert(canonical_key, producer) {
                    refused.push(format!("canonical key: {error}"));
                }
            }
            SeriesRecord::Sent { id, producer } => {
                if let Some(number) = index.number(&id) {
                    index.restore_producer(number, producer);
                }
            }
            SeriesRecord::Deleted(id) => deleted.add(&index, &id),
        };
        let damaged = storage.list_series(&mut read)?;
        let deleted = deleted.finish(&mut index);
        if damaged > 0 {
            index.set_producers_unknown();
        }
        if damaged > 0 || (index.len() as u64) < manifest.series {
            notes.push(format!(
                "{} canonical keys of {} are corrupt; parts have copies",
                manifest.series.saturating_sub(index.len() as u64),
                manifest.series
            ));
            let known = index.len();
            for &number in manifest.parts.keys() {
                let mut canonical_keys = Vec::new();
                let read = storage.open_part(number).and_then(|part| {
                    part.for_each_key(&mut |canonical_key| {
                        canonical_keys.push(canonical_key.to_owned())
                    })
                });
                if let Err(error) = read {
                    notes.push(error.to_string());
                }
                for canonical_key in canonical_keys {
                    if let Err(error) = index.insert(&canonical_key, None) {
                        refused.push(format!("canonical key: {error}"));
                    }
                }
            }
            let found: Vec<(Option<u64>, Vec<u8>)> = (known..index.len())
                .map(|at| (None, index.key(SeriesNumber(at as u32)).to_owned()))
                .collect();
            storage.add_series(&found, true)?;
        }
        notes.extend(refused);
        Ok((index, deleted))
    }
}

/// Batched deletions from the index.
#[derive(Default)]
struct PendingDeletions {
    pending: HashSet<SeriesId>,
    keys: DeletedKeys,
}

impl PendingDeletions {
    fn add(&mut self, index: &SeriesIndex, id: &SeriesId) {
        if index.number(id).is_some() {
            self.pending.insert(*id);
        }
    }

    /// Adds a series that may have been deleted before.
    fn restore(&mut self, index: &mut SeriesIndex, canonical_key: &[u8]) {
        if !self.pending.is_empty()
            && self.pending.contains(&SeriesId::from_canonical_key(canonical_key))
        {
            self.apply(index);
        }
    }

    fn apply(&mut self, index: &mut SeriesIndex) {
        let numbers: Vec<SeriesNumber> =
            self.pending.drain().filter_map(|id| index.number(&id)).collect();
        self.keys.extend(
            numbers.iter().map(|number| (index.id(*number), index.key(*number).to_owned())),
        );
        index.delete(&numbers);
    }

    fn finish(mut self, index: &mut SeriesIndex) -> DeletedKeys {
        self.apply(index);
        self.keys
    }
}
