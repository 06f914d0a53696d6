//! Query context: cancellation and memory accounting.

use crate::error::Result;

/// Query context: cancellation and memory accounting. A function that returns whether the query is
/// cancelled is a context without a memory limit.
pub trait QueryContext: Sync {
    /// Whether the client has disconnected or the deadline has passed.
    fn is_cancelled(&self) -> bool;

    /// Reserves memory before, or soon after, it is used; may wait until other queries release
    /// some. It counts as reserved even after an error, and is released as after none.
    fn reserve_memory(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Reserves memory for a read that is not needed, such as one ahead, and returns whether it
    /// could; without it the query goes on. Nothing is reserved otherwise.
    fn try_reserve_memory(&self, bytes: u64) -> bool {
        let is_reserved = self.reserve_memory(bytes).is_ok();
        if !is_reserved {
            self.release_memory(bytes);
        }
        is_reserved
    }

    /// Releases memory.
    fn release_memory(&self, _bytes: u64) {}
}

impl<F: Fn() -> bool + Sync> QueryContext for F {
    fn is_cancelled(&self) -> bool {
        self()
    }
}
