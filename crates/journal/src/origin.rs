//! Origins of producers, and producer tables that one origin cannot flood.
//!
//! An origin is a party that chooses producer ids: the clients of one token and protocol. The upper
//! [`ORIGIN_BITS`] bits of a producer id are its origin; the assigner of ids ensures this, and a
//! random id has an origin of its own. A full table evicts the longest idle producers of the origin
//! with the most entries. So a client that invents ids without end evicts only its own.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::level::BatchIdentity;

/// Upper bits of a producer id that are its origin. Of 100 tokens, two share an origin with a
/// probability of 7 %; then they share its part of the tables.
pub(crate) const ORIGIN_BITS: u32 = 16;
/// A full table evicts 1/64 of its entries at once, so it is sorted once per `max` / 64 new
/// entries.
const EVICTED_FRACTION: usize = 64;

/// Origin of a producer.
pub const fn producer_origin(producer: u64) -> u64 {
    producer >> (u64::BITS - ORIGIN_BITS)
}

/// Producer id with another origin, of which the lower [`ORIGIN_BITS`] bits are used.
pub const fn with_origin(origin: u64, producer: u64) -> u64 {
    origin << (u64::BITS - ORIGIN_BITS) | producer << ORIGIN_BITS >> ORIGIN_BITS
}

impl BatchIdentity {
    /// Origin of the producer.
    pub const fn origin(&self) -> u64 {
        producer_origin(self.producer)
    }
}

/// Evicts entries from a table by producer and epoch that has more than `max`; returns their
/// number. `last_seen` is when an entry was last seen: larger is later.
pub fn evict<V>(
    table: &mut BTreeMap<(u64, u64), V>,
    max: usize,
    last_seen: impl Fn(&V) -> u64,
) -> u64 {
    if table.len() <= max {
        return 0;
    }
    let entry = |(key, value): (&(u64, u64), &V)| (producer_origin(key.0), last_seen(value), *key);
    let entries: Vec<(u64, u64, (u64, u64))> = table.iter().map(entry).collect();
    let keep = max - max / EVICTED_FRACTION;
    let forgotten = fair_order(entries).split_off(keep);
    forgotten.iter().for_each(|key| {
        table.remove(key);
    });
    forgotten.len() as u64
}

/// Keys in order of precedence: the latest of each origin first, then the second latest of each,
/// and so on. An entry is its origin, when it was last seen, and its key.
pub(crate) fn fair_order<K: Ord>(mut entries: Vec<(u64, u64, K)>) -> Vec<K> {
    entries.sort_unstable_by(|a, b| (a.0, Reverse(a.1), &a.2).cmp(&(b.0, Reverse(b.1), &b.2)));
    let (mut of_origin, mut rank) = (None, 0usize);
    let ranked = entries.into_iter().map(|(origin, last_seen, key)| {
        rank = if of_origin == Some(origin) { rank + 1 } else { 0 };
        of_origin = Some(origin);
        (rank, Reverse(last_seen), key)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_origin() {
        let producer = with_origin(0x1_abcd, 0x1234_5678_9abc_def0);
        assert_eq!(producer, 0xabcd_5678_9abc_def0);
        assert_eq!(producer_origin(producer), 0xabcd);
    }

    #[test]
    fn a_flood_of_one_origin_forgets_only_its_own() {
        let max = 2 * EVICTED_FRACTION;
        let mut table = BTreeMap::new();
        // The other producers were idle for longer than any of the flood.
        table.extend((0..10).map(|n| ((with_origin(n, 1), 1), n)));
        let mut forgotten = 0;
        for n in 10..10_000 {
            table.insert((with_origin(77, n), 1), n);
            forgotten += evict(&mut table, max, |last_seen| *last_seen);
        }
        assert!((0..10).all(|n| table.contains_key(&(with_origin(n, 1), 1))));
        assert!(table.contains_key(&(with_origin(77, 9_999), 1)), "the latest of the flood");
        assert!(!table.contains_key(&(with_origin(77, 10), 1)), "the earliest of the flood");
        assert_eq!(table.len() as u64 + forgotten, 10_000);
    }

    #[test]
    fn of_origins_that_have_as_many_the_one_silent_longest_is_forgotten() {
        let mut table: BTreeMap<(u64, u64), u64> =
            (0..=EVICTED_FRACTION as u64).map(|n| ((with_origin(n, 1), 1), n)).collect();
        assert_eq!(evict(&mut table, EVICTED_FRACTION, |last_seen| *last_seen), 2);
        assert_eq!(table.first_key_value(), Some((&(with_origin(2, 1), 1), &2)));
        assert_eq!(evict(&mut table, EVICTED_FRACTION, |last_seen| *last_seen), 0);
    }
}
