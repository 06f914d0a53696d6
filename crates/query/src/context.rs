//! What a query runs in: whether somebody still waits for its answer, and the memory that it may
//! have.

use crate::error::Result;

/// What a query runs in. A function that says whether it is over is one, with memory without a
/// bound.
pub trait QueryContext: Sync {
    /// Whether nobody waits for the answer any more, or its time is up.
    fn is_over(&self) -> bool;

    /// Takes memory before, or soon after, it is used; may wait for other queries to give some
    /// back.
    fn grow(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Gives memory back.
    fn shrink(&self, _bytes: u64) {}
}

impl<F: Fn() -> bool + Sync> QueryContext for F {
    fn is_over(&self) -> bool {
        self()
    }
}
