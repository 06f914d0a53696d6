//! Table of the last sequence of each producer epoch in shared memory, for deduplication.
//!
//! Set-associative by a hash of producer and epoch; a full set evicts an entry of the origin that
//! has the most in it. Changing the table requires the append lock.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::level::BatchIdentity;
use crate::origin::producer_origin;
use crate::sync::{AtomicU64, Ordering};

use Ordering::{Relaxed, Release};

/// Entries per set of the table; one more evicts the longest idle of the origin with the most.
pub(crate) const PRODUCERS_PER_SET: usize = 8;
/// Words of an entry: producer, epoch, sequence, end position plus one (0: free).
const PRODUCER_WORDS: usize = 4;
/// Words of a set.
pub(crate) const SET_WORDS: usize = PRODUCERS_PER_SET * PRODUCER_WORDS;

/// Words of the table.
#[derive(Clone, Copy)]
pub(crate) struct SequenceTable<'a> {
    /// All sets: a multiple of [`SET_WORDS`].
    pub(crate) words: &'a [AtomicU64],
}

impl<'a> SequenceTable<'a> {
    /// The set of a producer epoch.
    fn set_of(&self, producer: u64, epoch: u64) -> &'a [[AtomicU64; PRODUCER_WORDS]] {
        // Multiplicative hashing, whose top bits depend on all input bits; producers may be
        // numbered by hand or in their upper half, and epochs are often times. The constants are
        // odd and have no pattern.
        let mixed = producer.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ epoch.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Product of two 64-bit numbers, scaled to the number of sets.
        let set =
            (u128::from(mixed).wrapping_mul((self.words.len() / SET_WORDS) as u128) >> 64) as usize;
        self.words[set.wrapping_mul(SET_WORDS)..][..SET_WORDS].as_chunks().0
    }

    /// Last accepted sequence of a producer epoch, and the end of that batch. The caller holds the
    /// lock.
    pub(crate) fn last(&self, producer: u64, epoch: u64) -> Option<(u64, u64)> {
        let entries = self.set_of(producer, epoch);
        entries.iter().find_map(|entry| {
            let [p, b, sequence, end] = entry.each_ref().map(|word| word.load(Relaxed));
            (p == producer && b == epoch).then_some((sequence, end.checked_sub(1)?))
        })
    }

    /// Records an accepted batch; never goes backwards. The caller holds the lock.
    pub(crate) fn record(&self, identity: BatchIdentity, end: u64) {
        let entries = self.set_of(identity.producer, identity.epoch);
        // Origin and last use of each entry; 0 if it is free.
        let end_plus_one = end.saturating_add(1);
        let mut slots = [(0, 0); PRODUCERS_PER_SET];
        for (slot, entry) in slots.iter_mut().zip(entries) {
            let [producer, epoch, sequence, used] = entry.each_ref().map(|word| word.load(Relaxed));
            if used != 0 && producer == identity.producer && epoch == identity.epoch {
                if sequence <= identity.sequence {
                    entry[2].store(identity.sequence, Relaxed);
                    entry[3].store(end_plus_one, Relaxed);
                }
                return;
            }
            *slot = (producer_origin(producer), used);
        }
        let Some(slot) = victim(&slots, identity.origin(), end_plus_one) else { return };
        // Free while it is written, so that a crash leaves no mixture.
        let entry = &entries[slot];
        entry[3].store(0, Relaxed);
        let values = [identity.producer, identity.epoch, identity.sequence, end_plus_one];
        // Release: a successor sees these stores in order.
        entry.iter().zip(values).for_each(|(word, value)| word.store(value, Release));
    }
}

/// The entry of a set that a new entry of an origin replaces: a free one or, of the origin that has
/// the most including the new entry, the longest idle. `None` if all candidates are newer, which
/// happens only to entries recorded late, at opening.
fn victim(slots: &[(u64, u64); PRODUCERS_PER_SET], origin: u64, used: u64) -> Option<usize> {
    if let Some(free) = slots.iter().position(|slot| slot.1 == 0) {
        return Some(free);
    }
    let count = |of: u64| {
        let stored = slots.iter().filter(|slot| slot.0 == of).count();
        stored.saturating_add(usize::from(of == origin))
    };
    // Of two origins with equally many, the new entry's own loses; then the longest idle entry.
    let rank = |&slot: &usize| {
        let (of, last) = slots[slot];
        (std::cmp::Reverse(count(of)), of != origin, last)
    };
    let slot = (0..PRODUCERS_PER_SET).min_by_key(rank)?;
    let (of, last) = slots[slot];
    (last <= used || count(of) > count(origin)).then_some(slot)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_origin_leaves_the_producers_of_others() {
        let (flood, other) = (7, 8);
        let mut slots = [(0, 0); PRODUCERS_PER_SET];
        // The other producer was idle for longer than all of the flood.
        for (used, of) in [other, other].into_iter().chain([flood; 100]).enumerate() {
            let used = used as u64 + 1;
            slots[victim(&slots, of, used).unwrap()] = (of, used);
        }
        let count = |of| slots.iter().filter(|slot| slot.0 == of).count();
        assert_eq!((count(other), count(flood)), (2, PRODUCERS_PER_SET - 2));
        assert!(slots.contains(&(flood, 102)), "the latest of the flood");
        assert_eq!(victim(&slots, flood, 50), None, "noted late, all of it are newer");
        let late = victim(&slots, other, 50).expect("the flood has more");
        assert_eq!(slots[late].0, flood);
    }
}
