//! Hash table from hashes to numbers.
//!
//! Open addressing with linear probing. A slot holds half of the hash beside the number, so that
//! the table grows without rehashing keys and compares keys only where that half matches. 9 to 18
//! bytes an entry.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

/// Marks an empty slot; no entry has this value.
const EMPTY: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(super) struct HashIndex {
    /// Hash in the high half, number in the low half. The length is a power of two, or 0.
    slots: Vec<u64>,
    len: usize,
}

impl HashIndex {
    /// The number with this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let hash = half(hash);
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash as usize;
        loop {
            let slot = self.slots[at & mask];
            if slot == EMPTY {
                return None;
            }
            if (slot >> 32) as u32 == hash && is_it(slot as u32) {
                return Some(slot as u32);
            }
            // Wraps around by the mask.
            at = at.wrapping_add(1);
        }
    }

    /// Inserts a number; [`Self::find`] did not find it.
    pub(super) fn insert(&mut self, hash: u64, number: u32) {
        let len = self.len.saturating_add(1);
        if len.saturating_mul(8) > self.slots.len().saturating_mul(7) {
            let slots = vec![EMPTY; self.slots.len().saturating_mul(2).max(4)];
            let old = std::mem::replace(&mut self.slots, slots);
            old.into_iter().filter(|slot| *slot != EMPTY).for_each(|slot| self.put(slot));
        }
        self.put(u64::from(half(hash)) << 32 | u64::from(number));
        self.len = len;
    }

    /// Renumbers the entries; removes those without a new number.
    pub(super) fn renumber(&mut self, new: impl Fn(u32) -> Option<u32>) {
        let old = std::mem::take(self);
        let slots = old.slots.into_iter().filter(|slot| *slot != EMPTY);
        let live_slots: Vec<u64> = slots
            .filter_map(|slot| Some(slot >> 32 << 32 | u64::from(new(slot as u32)?)))
            .collect();
        self.len = live_slots.len();
        if !live_slots.is_empty() {
            // The capacity that inserting one by one would have reached.
            let size = live_slots.len().saturating_mul(8).div_ceil(7).next_power_of_two().max(4);
            self.slots = vec![EMPTY; size];
            live_slots.into_iter().for_each(|slot| self.put(slot));
        }
    }

    fn put(&mut self, slot: u64) {
        // The table has an empty slot.
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = (slot >> 32) as usize & mask;
        while self.slots[at] != EMPTY {
            at = at.wrapping_add(1) & mask;
        }
        self.slots[at] = slot;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        capacity_bytes(&self.slots)
    }
}

/// Bytes allocated by a vector.
pub(super) fn capacity_bytes<T>(vec: &Vec<T>) -> usize {
    vec.capacity().saturating_mul(size_of::<T>())
}

fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_entries_are_found() {
        let mut table = HashIndex::default();
        // Many entries with one hash, and hashes that map to the last slot.
        let hash = |n: u32| u64::from(if n.is_multiple_of(3) { u32::MAX } else { n / 2 }) << 32;
        for n in 0..1000 {
            assert_eq!(table.find(hash(n), |found| found == n), None);
            table.insert(hash(n), n);
        }
        for n in 0..1000 {
            assert_eq!(table.find(hash(n), |found| found == n), Some(n));
        }
        assert_eq!(table.find(hash(1000), |found| found == 1000), None);
        table.renumber(|n| n.is_multiple_of(5).then_some(n + 1));
        for n in 0..1000_u32 {
            let expected = n.is_multiple_of(5).then_some(n + 1);
            assert_eq!(table.find(hash(n), |found| found == n + 1), expected);
        }
        table.renumber(|_| None);
        assert_eq!((table.find(hash(0), |_| true), table.memory_bytes()), (None, 0));
        table.insert(hash(7), 7);
        assert_eq!(table.find(hash(7), |found| found == 7), Some(7));
    }
}
