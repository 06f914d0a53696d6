//! Locks that outlive a panic of their owner.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose owner panicked is taken all the same: what it guards is changed in single steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
