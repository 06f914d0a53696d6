//! Query cost limits. Over a limit is an error that names it, never a part of an answer.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::QueryContext;
use crate::error::{Error, Result};

/// Query cost limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Samples held at one time: a number is one, a histogram one for each bucket and eight.
    /// `max_samples`.
    pub samples: u64,
    /// Series that one selector may pick. `max_series`.
    pub series: u64,
    /// Bytes held at one time, counted where they grow with data. `max_bytes`.
    pub bytes: u64,
    /// Steps of an answer. `max_steps`.
    pub steps: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { samples: 50_000_000, series: 100_000, bytes: 1 << 30, steps: 110_000 }
    }
}

/// Remaining budget of a query. Shared by threads.
pub(crate) struct QueryBudget<'a> {
    limits: Limits,
    samples: AtomicU64,
    /// Bytes of points without a value, beyond those of the samples that are held: the most of any
    /// node.
    empty_points: AtomicU64,
    context: &'a dyn QueryContext,
}

impl<'a> QueryBudget<'a> {
    pub(crate) fn new(limits: Limits, context: &'a dyn QueryContext) -> QueryBudget<'a> {
        QueryBudget { limits, samples: AtomicU64::new(0), empty_points: AtomicU64::new(0), context }
    }

    /// Counts samples that are held from now on.
    pub(crate) fn charge_samples(&self, samples: u64) -> Result<()> {
        // Only an amount: nothing else is ordered by it.
        let found = self.samples.fetch_add(samples, Ordering::Relaxed).saturating_add(samples);
        let (max, bytes) = (self.limits.samples, found.saturating_mul(SAMPLE_BYTES));
        if found > max {
            let remedy =
                "ask for longer steps, a shorter time or fewer series, or raise max_samples"
                    .to_owned();
            return Err(Error::Limit {
                limit: "samples in memory (max_samples)",
                found,
                max,
                remedy,
            });
        }
        if bytes > self.limits.bytes {
            let remedy = "ask for longer steps, a shorter time or fewer series, or raise max_bytes"
                .to_owned();
            return Err(Error::Limit {
                limit: "bytes of memory (max_bytes)",
                found: bytes,
                max: self.limits.bytes,
                remedy,
            });
        }
        self.context.reserve_memory(samples.saturating_mul(SAMPLE_BYTES))?;
        self.check_deadline()
    }

    /// Whether there is room for points of all steps of some streams, with values or without.
    pub(crate) fn check_capacity(&self, streams: usize, steps: usize) -> Result<()> {
        let points = (streams as u64).saturating_mul(steps as u64);
        let (found, max) = (points.saturating_mul(SAMPLE_BYTES), self.limits.bytes);
        if found > max {
            let remedy = "ask for longer steps, a shorter time or fewer series, or raise max_bytes"
                .to_owned();
            return Err(Error::Limit { limit: "bytes of memory (max_bytes)", found, max, remedy });
        }
        // Points without a value are no samples, and take as much memory.
        let empty = found.saturating_sub(self.held_samples().saturating_mul(SAMPLE_BYTES));
        let before = self.empty_points.fetch_max(empty, Ordering::Relaxed);
        match empty.checked_sub(before) {
            None | Some(0) => Ok(()),
            Some(more) => self.context.reserve_memory(more),
        }
    }

    /// Counts samples that are held no more.
    pub(crate) fn release_samples(&self, samples: u64) {
        self.samples.fetch_sub(samples, Ordering::Relaxed);
        self.context.release_memory(samples.saturating_mul(SAMPLE_BYTES));
    }

    /// How many are held.
    pub(crate) fn held_samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Counts the series that a selector picked.
    pub(crate) fn check_series(&self, found: usize) -> Result<()> {
        let max = self.limits.series;
        if found as u64 > max {
            let remedy = "select fewer series, or raise max_series".to_owned();
            return Err(Error::Limit {
                limit: "series (max_series)",
                found: found as u64,
                max,
                remedy,
            });
        }
        Ok(())
    }

    /// Whether there is time left.
    pub(crate) fn check_deadline(&self) -> Result<()> {
        match self.context.is_cancelled() {
            true => Err(Error::Timeout),
            false => Ok(()),
        }
    }
}

/// What a sample takes: a value with its presence is 16 bytes, a bucket of a histogram too.
pub(crate) const SAMPLE_BYTES: u64 = 16;

impl Drop for QueryBudget<'_> {
    fn drop(&mut self) {
        self.context.release_memory(*self.empty_points.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of so many bytes.
    struct MemoryContext {
        free: AtomicU64,
    }

    impl QueryContext for MemoryContext {
        fn is_cancelled(&self) -> bool {
            false
        }

        fn reserve_memory(&self, bytes: u64) -> Result<()> {
            let taken = self
                .free
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes));
            let denied = || Error::Memory { message: "no memory".to_owned(), is_transient: true };
            taken.map(drop).map_err(|_| denied())
        }

        fn release_memory(&self, bytes: u64) {
            self.free.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_query_draws_on_the_memory_of_its_context() {
        let memory = MemoryContext { free: AtomicU64::new(100 * SAMPLE_BYTES) };
        let free = || memory.free.load(Ordering::Relaxed) / SAMPLE_BYTES;
        let budget = QueryBudget::new(Limits::default(), &memory);
        budget.charge_samples(60).unwrap();
        assert_eq!(free(), 40);
        // 70 points of which 60 are samples.
        budget.check_capacity(7, 10).unwrap();
        assert_eq!(free(), 30);
        assert!(matches!(budget.charge_samples(31), Err(Error::Memory { .. })));
        budget.release_samples(60);
        assert_eq!(free(), 90);
        drop(budget);
        assert_eq!(free(), 100);
    }
}
