//! Bucket counts of one sign: ascending indexes, each with a count above zero.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

/// Ascending `i32` indexes beside their counts. No count is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    indexes: Vec<i32>,
    counts: Vec<u64>,
}

impl Buckets {
    /// The indexes, ascending.
    pub fn indexes(&self) -> &[i32] {
        &self.indexes
    }

    /// The counts, in the order of [`Self::indexes`].
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Index and count of each bucket, ascending.
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (i32, u64)> + ExactSizeIterator + Clone + '_ {
        self.indexes.iter().copied().zip(self.counts.iter().copied())
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.indexes.len()
    }

    /// Whether there are no buckets.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Number of values in bucket `index`.
    pub fn get(&self, index: i32) -> u64 {
        self.indexes.binary_search(&index).map_or(0, |at| self.counts[at])
    }

    pub(crate) fn with_capacity(buckets: usize) -> Buckets {
        Buckets { indexes: Vec::with_capacity(buckets), counts: Vec::with_capacity(buckets) }
    }

    /// Appends a bucket above all others. A zero count is ignored.
    pub(crate) fn push(&mut self, index: i32, count: u64) {
        debug_assert!(self.indexes.last().is_none_or(|&last| last < index));
        if count > 0 {
            self.indexes.push(index);
            self.counts.push(count);
        }
    }

    /// Appends a bucket of input whose order the caller checks afterwards.
    #[inline]
    pub(crate) fn push_unchecked(&mut self, index: i32, count: u64) {
        if count > 0 {
            self.indexes.push(index);
            self.counts.push(count);
        }
    }

    /// Adds `count` to bucket `index`. The caller guarantees that the sum of all counts fits 64
    /// bits.
    pub(crate) fn add(&mut self, index: i32, count: u64) {
        match self.indexes.binary_search(&index) {
            Ok(at) => self.counts[at] = self.counts[at].wrapping_add(count),
            Err(_) if count == 0 => {}
            Err(at) => {
                self.indexes.insert(at, index);
                self.counts.insert(at, count);
            }
        }
    }

    /// Adds every count of `other`. The caller guarantees that the sum of all counts fits 64 bits.
    pub(crate) fn merge(&mut self, other: &Buckets) {
        if other.indexes == self.indexes {
            self.counts
                .iter_mut()
                .zip(&other.counts)
                .for_each(|(ours, theirs)| *ours = ours.wrapping_add(*theirs));
            return;
        }
        if self.add_contained(other) {
            return;
        }
        let mut merged = Buckets::with_capacity(self.len().wrapping_add(other.len()));
        let (mut at, mut from) = (0, 0);
        while let (Some(&ours), Some(&theirs)) = (self.indexes.get(at), other.indexes.get(from)) {
            let index = ours.min(theirs);
            let mut count = 0u64;
            if ours == index {
                count = self.counts[at];
                at = at.wrapping_add(1);
            }
            if theirs == index {
                count = count.wrapping_add(other.counts[from]);
                from = from.wrapping_add(1);
            }
            merged.push(index, count);
        }
        for (rest, from) in [(&*self, at), (other, from)] {
            merged.indexes.extend_from_slice(&rest.indexes[from..]);
            merged.counts.extend_from_slice(&rest.counts[from..]);
        }
        *self = merged;
    }

    /// Adds the counts of `other` in place if it has no bucket that this side lacks, as an
    /// increment of a histogram has none. Returns `false` without any change otherwise.
    fn add_contained(&mut self, other: &Buckets) -> bool {
        let mut at = 0;
        for &index in &other.indexes {
            at = skip_below(&self.indexes, at, index);
            if self.indexes.get(at) != Some(&index) {
                return false;
            }
        }
        at = 0;
        for (index, count) in other.iter() {
            at = skip_below(&self.indexes, at, index);
            self.counts[at] = self.counts[at].wrapping_add(count);
        }
        true
    }

    /// Maps the indexes by a non-decreasing function. Counts of equal indexes are added.
    pub(crate) fn map_indexes(&self, f: impl Fn(i32) -> i32) -> Buckets {
        let mut mapped = Buckets::with_capacity(self.len());
        for (index, count) in self.iter() {
            let index = f(index);
            match (mapped.indexes.last(), mapped.counts.last_mut()) {
                (Some(&last), Some(last_count)) if last == index => {
                    *last_count = last_count.wrapping_add(count)
                }
                _ => mapped.push(index, count),
            }
        }
        mapped
    }

    /// Removes the buckets below `index` and returns their number of values.
    pub(crate) fn drain_below(&mut self, index: i32) -> u64 {
        let end = self.indexes.partition_point(|&i| i < index);
        self.indexes.drain(..end);
        self.counts.drain(..end).sum()
    }

    /// The difference. If a bucket holds too few values, returns the
    /// first such bucket (index, held, subtracted).
    pub(crate) fn subtract(&self, other: &Buckets) -> Result<Buckets, (i32, u64, u64)> {
        let mut rest = Buckets::with_capacity(self.len());
        let mut from = 0;
        for (index, count) in self.iter() {
            let taken = match other.indexes.get(from) {
                Some(&next) if next == index => {
                    from = from.wrapping_add(1);
                    other.counts[from.wrapping_sub(1)]
                }
                Some(&missing) if missing < index => return Err((missing, 0, other.counts[from])),
                _ => 0,
            };
            let left = count.checked_sub(taken).ok_or((index, count, taken))?;
            rest.push(index, left);
        }
        if let Some(&missing) = other.indexes.get(from) {
            return Err((missing, 0, other.counts[from]));
        }
        Ok(rest)
    }

    /// Number of values in all buckets.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Position of the first index from `at` on that is not below `index`.
#[inline]
fn skip_below(indexes: &[i32], mut at: usize, index: i32) -> usize {
    while indexes.get(at).is_some_and(|&held| held < index) {
        at = at.wrapping_add(1);
    }
    at
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn buckets(pairs: &BTreeMap<i32, u64>) -> Buckets {
        let mut buckets = Buckets::default();
        pairs.iter().for_each(|(&index, &count)| buckets.push(index, count));
        buckets
    }

    proptest! {
        #[test]
        fn sums_and_differences_are_those_of_a_map(
            ours in prop::collection::btree_map(-8i32..8, 1u64..5, 0..9),
            theirs in prop::collection::btree_map(-8i32..8, 1u64..5, 0..9),
        ) {
            let mut sum = ours.clone();
            theirs.iter().for_each(|(&index, &count)| *sum.entry(index).or_default() += count);
            let mut merged = buckets(&ours);
            merged.merge(&buckets(&theirs));
            prop_assert_eq!(&merged, &buckets(&sum));
            prop_assert_eq!(merged.subtract(&buckets(&theirs)), Ok(buckets(&ours)));
            let missing = theirs.iter().find_map(|(&index, &count)| {
                let held = ours.get(&index).copied().unwrap_or(0);
                (held < count).then_some((index, held, count))
            });
            prop_assert_eq!(buckets(&ours).subtract(&buckets(&theirs)).err(), missing);
        }
    }
}
