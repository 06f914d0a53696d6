//! Query cost limits. Exceeding a limit is an error that names it, never a partial result.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::QueryContext;
use crate::error::{Error, Result};

/// Query cost limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Samples held at one time: a number counts 1, a histogram 8 plus 1 for each bucket.
    /// `max_samples`.
    pub samples: u64,
    /// Series per selector. `max_series`.
    pub series: u64,
    /// Bytes held at one time, counted where they grow with data. `max_bytes`.
    pub bytes: u64,
    /// Steps of a result. `max_steps`.
    pub steps: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { samples: 50_000_000, series: 1_000_000, bytes: 1 << 30, steps: 110_000 }
    }
}

/// Remaining budget of a query. Shared by threads.
pub(crate) struct QueryBudget<'a> {
    limits: Limits,
    samples: AtomicU64,
    /// Bytes of points without a value, beyond those of the charged samples: the maximum of all
    /// nodes.
    empty_points: AtomicU64,
    context: &'a dyn QueryContext,
}

impl<'a> QueryBudget<'a> {
    pub(crate) fn new(limits: Limits, context: &'a dyn QueryContext) -> QueryBudget<'a> {
        QueryBudget { limits, samples: AtomicU64::new(0), empty_points: AtomicU64::new(0), context }
    }

    /// Charges samples.
    pub(crate) fn charge_samples(&self, samples: u64) -> Result<()> {
        // Relaxed: only an amount, which orders nothing else.
        let found = self.samples.fetch_add(samples, Ordering::Relaxed).saturating_add(samples);
        let charged = self.check_samples(found).and_then(|()| {
            let bytes = samples.saturating_mul(SAMPLE_BYTES);
            let reserved = self.context.reserve_memory(bytes);
            reserved.inspect_err(|_| self.context.release_memory(bytes))
        });
        // What is not charged must not be released.
        charged.inspect_err(|_| _ = self.samples.fetch_sub(samples, Ordering::Relaxed))?;
        self.check_deadline()
    }

    fn check_samples(&self, found: u64) -> Result<()> {
        let (max, bytes) = (self.limits.samples, found.saturating_mul(SAMPLE_BYTES));
        if found > max {
            let remedy = "use longer steps, a shorter range or fewer series, or raise max_samples"
                .to_owned();
            return Err(Error::Limit {
                limit: "samples in memory (max_samples)",
                found,
                max,
                remedy,
            });
        }
        if bytes > self.limits.bytes {
            let remedy =
                "use longer steps, a shorter range or fewer series, or raise max_bytes".to_owned();
            return Err(Error::Limit {
                limit: "bytes of memory (max_bytes)",
                found: bytes,
                max: self.limits.bytes,
                remedy,
            });
        }
        Ok(())
    }

    /// Checks that points for all steps of some streams, with or without values, fit in memory.
    pub(crate) fn check_capacity(&self, streams: usize, steps: usize) -> Result<()> {
        let points = (streams as u64).saturating_mul(steps as u64);
        let (found, max) = (points.saturating_mul(SAMPLE_BYTES), self.limits.bytes);
        if found > max {
            let remedy =
                "use longer steps, a shorter range or fewer series, or raise max_bytes".to_owned();
            return Err(Error::Limit { limit: "bytes of memory (max_bytes)", found, max, remedy });
        }
        // Points without a value are not samples but take as much memory.
        let empty = found.saturating_sub(self.charged_samples().saturating_mul(SAMPLE_BYTES));
        let before = self.empty_points.fetch_max(empty, Ordering::Relaxed);
        match empty.checked_sub(before) {
            None | Some(0) => Ok(()),
            Some(more) => self.context.reserve_memory(more),
        }
    }

    /// Releases charged samples.
    pub(crate) fn release_samples(&self, samples: u64) {
        self.samples.fetch_sub(samples, Ordering::Relaxed);
        self.context.release_memory(samples.saturating_mul(SAMPLE_BYTES));
    }

    /// Number of charged samples.
    pub(crate) fn charged_samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Checks the number of series of a selector.
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

    /// Checks cancellation and deadline.
    pub(crate) fn check_deadline(&self) -> Result<()> {
        match self.context.is_cancelled() {
            true => Err(Error::Timeout),
            false => Ok(()),
        }
    }
}

/// Bytes per sample: a value with its presence flag, or a histogram bucket.
pub(crate) const SAMPLE_BYTES: u64 = 16;

impl Drop for QueryBudget<'_> {
    fn drop(&mut self) {
        self.context.release_memory(*self.empty_points.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;

    /// Context with a fixed amount of memory.
    struct MemoryContext {
        free: AtomicI64,
    }

    impl QueryContext for MemoryContext {
        fn is_cancelled(&self) -> bool {
            false
        }

        fn reserve_memory(&self, bytes: u64) -> Result<()> {
            let bytes = bytes as i64;
            if self.free.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
                return Ok(());
            }
            Err(Error::Memory { message: "no memory".to_owned(), is_transient: true })
        }

        fn release_memory(&self, bytes: u64) {
            self.free.fetch_add(bytes as i64, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_query_draws_on_the_memory_of_its_context() {
        let memory = MemoryContext { free: AtomicI64::new(100 * SAMPLE_BYTES as i64) };
        let free = || memory.free.load(Ordering::Relaxed) / SAMPLE_BYTES as i64;
        let budget = QueryBudget::new(Limits::default(), &memory);
        budget.charge_samples(60).unwrap();
        assert_eq!(free(), 40);
        // 70 points, 60 of which are samples.
        budget.check_capacity(7, 10).unwrap();
        assert_eq!(free(), 30);
        assert!(matches!(budget.charge_samples(31), Err(Error::Memory { .. })));
        budget.release_samples(60);
        assert_eq!(free(), 90);
        drop(budget);
        assert_eq!(free(), 100);
    }
}
