//! Query context: cancellation and memory accounting.

use crate::error::Result;

/// Query context: cancellation and memory accounting. A function that says whether it is over is
/// one, with memory without a bound.
pub trait QueryContext: Sync {
    /// Whether nobody waits for the answer any more, or its time is up.
    fn is_cancelled(&self) -> bool;

    /// Takes memory before, or soon after, it is used; may wait for other queries to give some
    /// back.
    fn reserve_memory(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Gives memory back.
    fn release_memory(&self, _bytes: u64) {}
}

impl<F: Fn() -> bool + Sync> QueryContext for F {
    fn is_cancelled(&self) -> bool {
        self()
    }
}
