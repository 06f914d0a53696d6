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
        let mut merged = Buckets::with_capacity(self.len().wrapping_add(other.len()));
        let before = std::mem::take(self);
        let (mut ours, mut theirs) = (before.iter().peekable(), other.iter().peekable());
        loop {
            let next = match (ours.peek(), theirs.peek()) {
                (Some(&(a, n)), Some(&(b, m))) if a == b => {
                    theirs.next();
                    ours.next();
                    Some((a, n.wrapping_add(m)))
                }
                (Some(&(a, _)), Some(&(b, _))) if a > b => theirs.next(),
                (Some(_), _) => ours.next(),
                (None, _) => theirs.next(),
            };
            let Some((index, count)) = next else { break };
            merged.push(index, count);
        }
        *self = merged;
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

    /// Subtracts `other`. If a bucket holds too few values, returns the first such bucket (index,
    /// held, subtracted).
    pub(crate) fn subtract(&mut self, other: &Buckets) -> Result<(), (i32, u64, u64)> {
        for (index, count) in other.iter() {
            let present = self.get(index);
            if present < count {
                return Err((index, present, count));
            }
        }
        let mut rest = Buckets::with_capacity(self.len());
        let mut theirs = other.iter().peekable();
        for (index, count) in self.iter() {
            let taken = theirs.next_if(|&(i, _)| i == index).map_or(0, |(_, n)| n);
            rest.push(index, count.wrapping_sub(taken));
        }
        *self = rest;
        Ok(())
    }

    /// Number of values in all buckets.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
