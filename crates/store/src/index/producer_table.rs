//! Producers of series, and their counts against limits.
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

/// Producer of a series, as a number of this index. Two bytes, because every series stores one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProducerNumber(u16);

/// The producer is unknown.
pub(super) const UNKNOWN: ProducerNumber = ProducerNumber(0);
/// All producers beyond the available numbers; they share one limit.
const SHARED_PRODUCER: ProducerNumber = ProducerNumber(1);
/// Maximum number of producers, including the two above.
const PRODUCER_NUMBERS_MAX: usize = 1 << 16;

/// Counted quantity of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ProducerCount {
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
pub(super) struct ProducerTable {
    /// Number of series, and the producer, by producer id.
    accounts: Vec<(u32, Option<u64>)>,
    by_producer: HashMap<u64, ProducerNumber>,
    /// Counts that were computed because the total exceeds the limit of one producer; maintained
    /// from then on.
    counts: Mutex<HashMap<(ProducerCount, ProducerNumber), u64>>,
}

impl Default for ProducerTable {
    fn default() -> ProducerTable {
        ProducerTable {
            accounts: vec![(0, None); 2],
            by_producer: HashMap::new(),
            counts: Mutex::default(),
        }
    }
}

impl ProducerTable {
    /// Number of a producer, without adding one.
    pub(super) fn find(&self, producer: Option<u64>) -> Option<ProducerNumber> {
        let Some(producer) = producer else { return Some(UNKNOWN) };
        let is_full = self.accounts.len() >= PRODUCER_NUMBERS_MAX;
        self.by_producer.get(&producer).copied().or(is_full.then_some(SHARED_PRODUCER))
    }

    /// Number of a producer; adds a new producer.
    pub(super) fn find_or_add(&mut self, producer: Option<u64>) -> ProducerNumber {
        if let Some(producer_number) = self.find(producer) {
            return producer_number;
        }
        let producer_number = ProducerNumber(self.accounts.len() as u16);
        self.accounts.push((0, producer));
        self.by_producer.extend(producer.map(|producer| (producer, producer_number)));
        producer_number
    }

    /// Producer with this number, if it stands for one.
    pub(super) fn producer(&self, producer_number: ProducerNumber) -> Option<u64> {
        self.accounts[usize::from(producer_number.0)].1
    }

    /// Number of series of a producer.
    pub(super) fn series(&self, producer_number: ProducerNumber) -> u64 {
        self.accounts[usize::from(producer_number.0)].0.into()
    }

    pub(super) fn add_series(&mut self, producer_number: ProducerNumber) {
        let series = &mut self.accounts[usize::from(producer_number.0)].0;
        *series = series.saturating_add(1);
    }

    pub(super) fn remove_series(&mut self, producer_number: ProducerNumber) {
        let series = &mut self.accounts[usize::from(producer_number.0)].0;
        *series = series.saturating_sub(1);
    }

    /// A producer's count of a quantity; `count` computes it on first use.
    pub(super) fn count(
        &self,
        what: ProducerCount,
        producer_number: ProducerNumber,
        count: impl FnOnce() -> usize,
    ) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((what, producer_number)).or_insert_with(|| count() as u64)
    }

    /// Increments a maintained count.
    pub(super) fn add(&mut self, what: ProducerCount, producer_number: ProducerNumber) {
        let counts = self.counts.get_mut().unwrap_or_else(PoisonError::into_inner);
        if counts.is_empty() {
            return;
        }
        if let Some(count) = counts.get_mut(&(what, producer_number)) {
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
            slots(self.by_producer.capacity(), size_of::<(u64, ProducerNumber)>()),
            slots(counts.capacity(), size_of::<((ProducerCount, ProducerNumber), u64)>()),
        ];
        all.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_beyond_the_limit_share_a_number() {
        let mut producers = ProducerTable::default();
        assert_eq!(producers.find(Some(5)), None);
        let producer_number = producers.find_or_add(Some(5));
        assert_eq!(
            (producers.find(Some(5)), producers.producer(producer_number)),
            (Some(producer_number), Some(5))
        );
        for producer in 6..1 << 17 {
            producers.find_or_add(Some(producer));
        }
        assert_eq!(producers.find_or_add(Some(5)), producer_number);
        let last = producers.find_or_add(Some(u64::MAX));
        assert_eq!(
            (last, producers.find_or_add(Some(u64::MAX - 1))),
            (SHARED_PRODUCER, SHARED_PRODUCER)
        );
        assert_eq!((producers.producer(last), producers.find_or_add(None)), (None, UNKNOWN));
    }
}
