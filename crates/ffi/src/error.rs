//! Errors of the C API: a function returns -1, `td_error` returns the message.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Error of a C call, kept for `td_error`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FfiError {
    /// Error of the caller.
    #[error("invalid argument {argument}: NULL or not aligned")]
    InvalidPointer { argument: &'static str },
    /// Error of the caller.
    #[error("invalid argument {argument}: not UTF-8 at byte {at}")]
    InvalidText { argument: &'static str, at: usize },
    /// Error of the caller.
    #[error("invalid role {found}: maximum is TD_ROLE_SUBCALLS ({most})")]
    InvalidRole { found: u32, most: usize },
    /// Error of the caller.
    #[error("too many {argument}: {count}, limit {most}")]
    TooMany { argument: &'static str, count: usize, most: usize },
    /// Error of the caller.
    #[error("text truncated: longer than {} bytes", shm::layout::TEXT_MAX)]
    Cut,
    /// Error of the caller or the system.
    #[error(transparent)]
    Shm(#[from] shm::Error),
    /// Bug in topdeck.
    #[error("BUG: topdeck panicked; see its message on standard error")]
    Panic,
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs a fallible function: returns 0, or -1 and keeps the error for `td_error`.
pub(crate) fn catch_errors(work: impl FnOnce() -> Result<(), FfiError>) -> c_int {
    // A call that panicked has either not changed its data, or changed only atomics.
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(FfiError::Panic));
    match done {
        Ok(()) => 0,
        Err(problem) => {
            store_error(&problem);
            -1
        }
    }
}

/// Runs a function; returns `other` if it panics.
pub(crate) fn catch_panic<T>(other: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        store_error(&FfiError::Panic);
        other
    })
}

fn store_error(problem: &FfiError) {
    let text = problem.to_string().replace('\0', "\u{fffd}");
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending keeps no error.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Message of the last failed call on this thread; valid until the next failure.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
