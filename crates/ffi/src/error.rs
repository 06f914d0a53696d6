//! Errors of the C API: a function returns -1, `td_error` returns the message.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Error of a C call, kept for `td_error`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FfiError {
    /// The caller's.
    #[error("{argument} is NULL or not aligned")]
    InvalidPointer { argument: &'static str },
    /// The caller's.
    #[error("{argument} is not UTF-8: byte {at} begins no character")]
    InvalidText { argument: &'static str, at: usize },
    /// The caller's.
    #[error("role {found} is none: there are those up to TD_ROLE_SUBCALLS, {most}")]
    InvalidRole { found: u32, most: usize },
    /// The caller's.
    #[error("{count} of {argument} are too many: {most} at the most")]
    TooMany { argument: &'static str, count: usize, most: usize },
    /// The caller's.
    #[error("text truncated: longer than {} bytes", shm::layout::TEXT_MAX)]
    Cut,
    /// The caller's, or the world's.
    #[error(transparent)]
    Shm(#[from] shm::Error),
    /// Ours.
    #[error("BUG: topdeck panicked: see what it wrote to the standard error")]
    Panic,
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Does something that may fail: 0, or -1 with the reason kept for `td_error`.
pub(crate) fn catch_errors(work: impl FnOnce() -> Result<(), FfiError>) -> c_int {
    // A call that panicked did not get to what it was to change, or changed what is made of
    // atomics.
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(FfiError::Panic));
    match done {
        Ok(()) => 0,
        Err(problem) => {
            store_error(&problem);
            -1
        }
    }
}

/// Does something that gives a value; another one if it panics.
pub(crate) fn catch_panic<T>(other: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        store_error(&FfiError::Panic);
        other
    })
}

fn store_error(problem: &FfiError) {
    let text = problem.to_string().replace('\0', "\u{fffd}");
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending keeps none.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Why the last call failed on this thread; it stays there until the next one fails.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
