//! What is registered when it is used for the first time: until then it may be described, and a file may not be there yet.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something of shared memory.
#[derive(Debug)]
pub(crate) struct Lazy<T> {
    value: OnceLock<T>,
    /// When another attempt is made after one that failed; `NEVER` if none is.
    retry_ns: AtomicU64,
}

const NEVER: u64 = u64::MAX;
const RETRY_AFTER_NS: u64 = 1_000_000_000;

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There is no file, or no room in it: there may be later.
    Yet,
    /// It cannot be registered: the name is taken or impossible, or there are too many.
    ForGood,
}

impl<T> Lazy<T> {
    pub(crate) const fn new() -> Lazy<T> {
        Lazy { value: OnceLock::new(), retry_ns: AtomicU64::new(0) }
    }

    /// One that is missing for good.
    #[cfg(feature = "metrics")]
    pub(crate) const fn never() -> Lazy<T> {
        Lazy { value: OnceLock::new(), retry_ns: AtomicU64::new(NEVER) }
    }

    /// It, made if need be.
    #[inline(always)]
    pub(crate) fn get(&self, make: impl FnOnce() -> shm::Result<T>) -> Result<&T, Missing> {
        match self.value.get() {
            Some(value) => Ok(value),
            None => self.make(make),
        }
    }

    #[cold]
    #[inline(never)]
    fn make(&self, make: impl FnOnce() -> shm::Result<T>) -> Result<&T, Missing> {
        match self.retry_ns.load(Ordering::Relaxed) {
            0 => {}
            NEVER => return Err(Missing::ForGood),
            retry_ns if clock::now_relaxed() < retry_ns => return Err(Missing::Yet),
            _ => {}
        }
        match make() {
            Ok(value) => Ok(self.value.get_or_init(|| value)),
            Err(
                shm::Error::Full { .. } | shm::Error::Name { .. } | shm::Error::Conflict { .. },
            ) => {
                self.retry_ns.store(NEVER, Ordering::Relaxed);
                Err(Missing::ForGood)
            }
            Err(_) => {
                self.retry_ns.store(clock::now_relaxed() + RETRY_AFTER_NS, Ordering::Relaxed);
                Err(Missing::Yet)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_for_good_is_not_tried_again() {
        let lazy = Lazy::<u8>::new();
        let conflict = || Err(shm::Error::Conflict { name: "a".to_owned() });
        assert_eq!(lazy.get(conflict), Err(Missing::ForGood));
        assert_eq!(lazy.get(|| panic!("tried again")), Err(Missing::ForGood));
    }

    #[test]
    fn what_fails_for_now_is_tried_again_later() {
        let lazy = Lazy::<u8>::new();
        assert_eq!(lazy.get(|| Err(shm::Error::Off)), Err(Missing::Yet));
        assert_eq!(lazy.get(|| panic!("tried again at once")), Err(Missing::Yet));
        lazy.retry_ns.store(1, Ordering::Relaxed);
        assert_eq!(lazy.get(|| Ok(7)), Ok(&7));
        assert_eq!(lazy.get(|| panic!("made twice")), Ok(&7));
    }
}
