//! The lane of replays: one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::api_error::{ApiError, RETRY_AFTER_BUSY};

/// Whether a replay is running, and how far it is.
#[derive(Debug, Default)]
pub(crate) struct ReplayLane {
    is_taken: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

/// Permit of the running replay.
#[derive(Debug)]
pub(super) struct ReplayPermit(Arc<ReplayLane>);

impl ReplayLane {
    pub(super) fn enter(self: &Arc<ReplayLane>) -> Result<ReplayPermit, ApiError> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            let (done, total) = self.progress();
            let message = format!(
                "cannot replay rules: another replay is running, {done} of {total} evaluations \
                 done; retry later"
            );
            return Err(ApiError::TooManyRequests { message, retry_after: RETRY_AFTER_BUSY });
        }
        self.done.store(0, Ordering::Relaxed);
        self.total.store(0, Ordering::Relaxed);
        Ok(ReplayPermit(Arc::clone(self)))
    }

    /// Evaluations of the running replay, done and in all.
    pub(super) fn running(&self) -> Option<(u64, u64)> {
        self.is_taken.load(Ordering::Acquire).then(|| self.progress())
    }

    fn progress(&self) -> (u64, u64) {
        // Relaxed: two numbers to be shown.
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

impl ReplayPermit {
    pub(super) fn record(&self, done: u64, total: u64) {
        self.0.done.store(done, Ordering::Relaxed);
        self.0.total.store(total, Ordering::Relaxed);
    }
}

impl Drop for ReplayPermit {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}
