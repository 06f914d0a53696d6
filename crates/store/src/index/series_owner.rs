//! Series owners (producers) and their counts against limits.
//!
//! A series counts for the producer that sent it first, a label value for the producer of the first
//! series that has it. Series stored before producers were recorded, and series whose key was
//! recovered from a part, count only for the store as a whole.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::table::capacity_bytes;

/// Producer as an owner of series. Two bytes, because every series stores one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeriesOwner(u16);

/// The producer is unknown.
pub(super) const UNKNOWN: SeriesOwner = SeriesOwner(0);
/// All producers beyond the available owner numbers; they share one limit.
const SHARED_OWNER: SeriesOwner = SeriesOwner(1);
/// Maximum number of owners, including the two above.
const OWNERS_MAX: usize = 1 << 16;

/// Counted quantity of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OwnerCount {
    /// Series of a metric, by the metric's index.
    OfMetric(u32),
    /// Values of a label, by the label's index.
    OfLabel(usize),
    /// Metric names.
    Names,
    /// Units.
    Units,
}

#[derive(Debug)]
pub(super) struct OwnerTable {
    /// Number of series and producer of each owner.
    accounts: Vec<(u32, Option<u64>)>,
    by_producer: HashMap<u64, SeriesOwner>,
    /// Counts that were computed because the total exceeds the limit of one owner; maintained from
    /// then on.
    counts: Mutex<HashMap<(OwnerCount, SeriesOwner), u64>>,
}

impl Default for OwnerTable {
    fn default() -> OwnerTable {
        OwnerTable {
            accounts: vec![(0, None); 2],
            by_producer: HashMap::new(),
            counts: Mutex::default(),
        }
    }
}

impl OwnerTable {
    /// Owner of a producer's series, without adding one.
    pub(super) fn find(&self, producer: Option<u64>) -> Option<SeriesOwner> {
        let Some(producer) = producer else { return Some(UNKNOWN) };
        let is_full = self.accounts.len() >= OWNERS_MAX;
        self.by_producer.get(&producer).copied().or(is_full.then_some(SHARED_OWNER))
    }

    /// Owner of a producer's series; adds a new producer.
    pub(super) fn find_or_add(&mut self, producer: Option<u64>) -> SeriesOwner {
        if let Some(owner) = self.find(producer) {
            return owner;
        }
        let owner = SeriesOwner(self.accounts.len() as u16);
        self.accounts.push((0, producer));
        self.by_producer.extend(producer.map(|producer| (producer, owner)));
        owner
    }

    /// Producer of an owner, if it stands for one.
    pub(super) fn producer(&self, owner: SeriesOwner) -> Option<u64> {
        self.accounts[usize::from(owner.0)].1
    }

    /// Number of series of an owner.
    pub(super) fn series(&self, owner: SeriesOwner) -> u64 {
        self.accounts[usize::from(owner.0)].0.into()
    }

    pub(super) fn add_series(&mut self, owner: SeriesOwner) {
        let series = &mut self.accounts[usize::from(owner.0)].0;
        *series = series.saturating_add(1);
    }

    pub(super) fn remove_series(&mut self, owner: SeriesOwner) {
        let series = &mut self.accounts[usize::from(owner.0)].0;
        *series = series.saturating_sub(1);
    }

    /// An owner's count of a quantity; `count` computes it on first use.
    pub(super) fn count(
        &self,
        what: OwnerCount,
        owner: SeriesOwner,
        count: impl FnOnce() -> usize,
    ) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((what, owner)).or_insert_with(|| count() as u64)
    }

    /// Increments a maintained count.
    pub(super) fn add(&mut self, what: OwnerCount, owner: SeriesOwner) {
        let counts = self.counts.get_mut().unwrap_or_else(PoisonError::into_inner);
        if counts.is_empty() {
            return;
        }
        if let Some(count) = counts.get_mut(&(what, owner)) {
            *count = count.saturating_add(1);
        }
    }

    /// Clears the counts; they are recomputed on demand.
    pub(super) fn clear_counts(&mut self) {
        self.counts = Mutex::default();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        /// Overhead of a hash table entry, in bytes.
        const SLOT: usize = 2;
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = |slots: usize, entry: usize| slots.saturating_mul(entry.saturating_add(SLOT));
        let all = [
            capacity_bytes(&self.accounts),
            slots(self.by_producer.capacity(), size_of::<(u64, SeriesOwner)>()),
            slots(counts.capacity(), size_of::<((OwnerCount, SeriesOwner), u64)>()),
        ];
        all.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_beyond_the_limit_share_an_owner() {
        let mut owners = OwnerTable::default();
        assert_eq!(owners.find(Some(5)), None);
        let owner = owners.find_or_add(Some(5));
        assert_eq!((owners.find(Some(5)), owners.producer(owner)), (Some(owner), Some(5)));
        for producer in 6..1 << 17 {
            owners.find_or_add(Some(producer));
        }
        assert_eq!(owners.find_or_add(Some(5)), owner);
        let last = owners.find_or_add(Some(u64::MAX));
        assert_eq!((last, owners.find_or_add(Some(u64::MAX - 1))), (SHARED_OWNER, SHARED_OWNER));
        assert_eq!((owners.producer(last), owners.find_or_add(None)), (None, UNKNOWN));
    }
}
