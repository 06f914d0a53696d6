//! Atomics of lock-free code; loom's atomics under model checking (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::OnceLock;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use self::once::OnceLock;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// loom has no `OnceLock`. This one has the same contract (the first value wins, and its
/// initialization happens before every `get` that sees it). Stored objects are leaked, a few in
/// each modelled run.
#[cfg(loom)]
mod once {
    use loom::sync::Mutex;

    pub(crate) struct OnceLock<T: 'static>(Mutex<Option<&'static T>>);

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> OnceLock<T> {
            OnceLock(Mutex::new(None))
        }

        pub(crate) fn get(&self) -> Option<&T> {
            *self.0.lock().unwrap()
        }

        pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
            let mut held = self.0.lock().unwrap();
            held.get_or_insert_with(|| Box::leak(Box::new(init())))
        }
    }
}
