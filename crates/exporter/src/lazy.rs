//! Lazily registered metrics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared-memory metric registered at first use.
#[derive(Debug)]
pub(crate) struct LazyMetric<T> {
    value: OnceLock<T>,
    /// Time of the next attempt after a failed one; `NEVER` if there is none.
    retry_ns: AtomicU64,
}

const NEVER: u64 = u64::MAX;
const RETRY_AFTER_NS: u64 = 1_000_000_000;

/// Why a metric is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegistrationError {
    /// There is no file, or no space in it; a later attempt may succeed.
    Retryable,
    /// Registration is impossible: the name is taken or invalid, or the limit of series is reached.
    Permanent,
}

impl<T> LazyMetric<T> {
    pub(crate) const fn new() -> LazyMetric<T> {
        LazyMetric { value: OnceLock::new(), retry_ns: AtomicU64::new(0) }
    }

    /// A metric that is never registered.
    #[cfg(feature = "metrics")]
    pub(crate) const fn unavailable() -> LazyMetric<T> {
        LazyMetric { value: OnceLock::new(), retry_ns: AtomicU64::new(NEVER) }
    }

    /// The metric, registered if needed.
    #[inline(always)]
    pub(crate) fn get(
        &self,
        register: impl FnOnce() -> shm::Result<T>,
    ) -> Result<&T, RegistrationError> {
        match self.value.get() {
            Some(value) => Ok(value),
            None => self.try_register(register),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_register(
        &self,
        register: impl FnOnce() -> shm::Result<T>,
    ) -> Result<&T, RegistrationError> {
        match self.retry_ns.load(Ordering::Relaxed) {
            0 => {}
            NEVER => return Err(RegistrationError::Permanent),
            retry_ns if clock::now_unordered() < retry_ns => {
                return Err(RegistrationError::Retryable);
            }
            _ => {}
        }
        match register() {
            Ok(value) => Ok(self.value.get_or_init(|| value)),
            Err(
                shm::Error::LimitReached { .. }
                | shm::Error::InvalidName { .. }
                | shm::Error::Conflict { .. },
            ) => {
                self.retry_ns.store(NEVER, Ordering::Relaxed);
                Err(RegistrationError::Permanent)
            }
            Err(_) => {
                self.retry_ns.store(clock::now_unordered() + RETRY_AFTER_NS, Ordering::Relaxed);
                Err(RegistrationError::Retryable)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permanent_failure_is_not_retried() {
        let lazy = LazyMetric::<u8>::new();
        let conflict = || Err(shm::Error::Conflict { name: "a".to_owned() });
        assert_eq!(lazy.get(conflict), Err(RegistrationError::Permanent));
        assert_eq!(lazy.get(|| panic!("tried again")), Err(RegistrationError::Permanent));
    }

    #[test]
    fn transient_failure_is_retried() {
        let lazy = LazyMetric::<u8>::new();
        assert_eq!(lazy.get(|| Err(shm::Error::Disabled)), Err(RegistrationError::Retryable));
        assert_eq!(lazy.get(|| panic!("tried again at once")), Err(RegistrationError::Retryable));
        lazy.retry_ns.store(1, Ordering::Relaxed);
        assert_eq!(lazy.get(|| Ok(7)), Ok(&7));
        assert_eq!(lazy.get(|| panic!("registered twice")), Ok(&7));
    }
}
