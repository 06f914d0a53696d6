//! Producers of the series of an index: the one that a series counts for, and others that sent it.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeSet;

use super::producer_sets::ANY;
use super::{SelectedSeries, SeriesIndex, SeriesNumber};

/// Producers that sent some series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SeriesProducers {
    /// Not all of them are known.
    Any,
    /// All of them.
    Known(BTreeSet<u64>),
}

impl SeriesProducers {
    /// Whether a producer may have sent one of the series.
    pub(crate) fn may_contain(&self, producer: u64) -> bool {
        match self {
            SeriesProducers::Any => true,
            SeriesProducers::Known(producers) => producers.contains(&producer),
        }
    }
}

impl SeriesIndex {
    /// Whether a producer is recorded as one of a series; true if the recorded ones say nothing.
    pub(crate) fn has_producer(&self, number: SeriesNumber, producer: u64) -> bool {
        // Most series have one producer.
        let owner = self.producer(number);
        if owner.is_none_or(|owner| owner == producer) {
            return true;
        }
        let others = self.producer_sets.producers(self.keys.other_producers(number.0));
        others.is_none_or(|others| others.contains(&producer))
    }

    /// Records a further producer of a series, in the index and for the series file.
    pub(crate) fn add_producer(&mut self, number: SeriesNumber, producer: u64) {
        if !self.has_producer(number, producer) {
            self.restore_producer(number, producer);
            self.unstored_producers.push((number, producer));
        }
    }

    /// The same, from the series file.
    pub(super) fn restore_producer(&mut self, number: SeriesNumber, producer: u64) {
        let known = self.keys.other_producers(number.0);
        let producers = self.producer_sets.with(known, producer);
        self.keys.set_other_producers(number.0, producers);
    }

    /// Records that producers of series may be missing: any may have sent any series.
    pub(super) fn set_producers_unknown(&mut self) {
        self.are_producers_unknown = true;
    }

    /// Takes the producers that are not in the series file yet.
    pub(crate) fn take_unstored_producers(&mut self) -> Vec<(SeriesNumber, u64)> {
        std::mem::take(&mut self.unstored_producers)
    }

    /// Puts back what could not be written.
    pub(crate) fn put_back_unstored_producers(&mut self, failed: Vec<(SeriesNumber, u64)>) {
        self.unstored_producers.extend(failed);
    }

    /// Producers of some series.
    pub(crate) fn producers_of(&self, series: &[SelectedSeries]) -> SeriesProducers {
        if self.are_producers_unknown {
            return SeriesProducers::Any;
        }
        // Neighbours mostly have the same.
        let (mut producers, mut last) = (BTreeSet::new(), None);
        for series in series {
            let (owner, others) =
                (self.producer(series.number), self.keys.other_producers(series.number.0));
            if last == Some((owner, others)) {
                continue;
            }
            last = Some((owner, others));
            let (Some(owner), false) = (owner, others == ANY) else { return SeriesProducers::Any };
            producers.insert(owner);
            producers.extend(self.producer_sets.producers(others).unwrap_or_default());
        }
        SeriesProducers::Known(producers)
    }
}
