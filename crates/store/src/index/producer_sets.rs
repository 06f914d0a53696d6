//! Producers of series beyond the one that each series counts for.
//!
//! Almost all series have one producer. Equal sets of others are stored once: a series has the
//! number of its set, two bytes.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashMap;

use super::table::capacity_bytes;

/// Set of producers, as a number of this index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ProducerSet(u16);

/// No producer but the one that the series counts for.
const NONE: ProducerSet = ProducerSet(0);
/// Too many producers to record: any producer may have sent the series.
pub(super) const ANY: ProducerSet = ProducerSet(u16::MAX);
/// Maximum number of producers of a set: more are rare, and a lookup compares each.
const SET_PRODUCERS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct ProducerSets {
    /// Producers of the sets from number 1 on, ascending.
    sets: Vec<Box<[u64]>>,
    by_producers: HashMap<Box<[u64]>, ProducerSet>,
}

impl ProducerSets {
    /// Producers of a set; `None` for any.
    pub(super) fn producers(&self, set: ProducerSet) -> Option<&[u64]> {
        match set {
            NONE => Some(&[]),
            ANY => None,
            ProducerSet(number) => Some(&self.sets[usize::from(number).saturating_sub(1)]),
        }
    }

    /// The set with one more producer.
    pub(super) fn with(&mut self, set: ProducerSet, producer: u64) -> ProducerSet {
        let Some(before) = self.producers(set) else { return ANY };
        let Err(at) = before.binary_search(&producer) else { return set };
        if before.len() >= SET_PRODUCERS_MAX {
            return ANY;
        }
        let producers: Box<[u64]> =
            [&before[..at], &[producer], &before[at..]].concat().into_boxed_slice();
        if let Some(known) = self.by_producers.get(&producers) {
            return *known;
        }
        let number = self.sets.len().saturating_add(1);
        if number >= usize::from(ANY.0) {
            return ANY;
        }
        let added = ProducerSet(number as u16);
        self.sets.push(producers.clone());
        self.by_producers.insert(producers, added);
        added
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let texts = self.sets.iter().map(|set| size_of_val(&**set).saturating_mul(2));
        let slots = size_of::<(Box<[u64]>, ProducerSet)>().saturating_add(2);
        let tables =
            [capacity_bytes(&self.sets), self.by_producers.capacity().saturating_mul(slots)];
        texts.chain(tables).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_share_a_number_and_large_ones_are_any() {
        let mut sets = ProducerSets::default();
        let a = sets.with(NONE, 7);
        let ab = sets.with(a, 3);
        let b = sets.with(NONE, 3);
        assert_eq!((sets.with(b, 7), sets.with(ab, 7)), (ab, ab));
        assert_eq!(sets.producers(ab), Some(&[3, 7][..]));
        assert_eq!(sets.producers(NONE), Some(&[][..]));
        let mut many = NONE;
        for producer in 0..=SET_PRODUCERS_MAX as u64 {
            assert_ne!(many, ANY);
            many = sets.with(many, producer);
        }
        assert_eq!((many, sets.with(many, 1)), (ANY, ANY));
        assert_eq!(sets.producers(many), None);
    }

    #[test]
    fn sets_beyond_the_available_numbers_are_any() {
        let mut sets = ProducerSets::default();
        let all: Vec<ProducerSet> =
            (0..1 << 16).map(|producer| sets.with(NONE, producer)).collect();
        assert!(all[..65_534].iter().all(|set| *set != ANY), "a number is missing");
        assert!(all[65_534..].iter().all(|set| *set == ANY));
    }
}
