//! What goes wrong, and how C hears of it: a function says -1, and `td_error` why.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call did nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The caller's.
    #[error("{what} is NULL or not aligned")]
    Pointer { what: &'static str },
    /// The caller's.
    #[error("{what} is not UTF-8: byte {at} begins no character")]
    Text { what: &'static str, at: usize },
    /// The caller's.
    #[error("role {found} is none: there are those up to TD_ROLE_CALLS, {most}")]
    Role { found: u32, most: usize },
    /// The caller's.
    #[error("{count} of {what} are too many: {most} at the most")]
    Many { what: &'static str, count: usize, most: usize },
    /// The caller's.
    #[error("the text was cut: it has more than {} bytes", shm::layout::TEXT_MAX)]
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
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Problem>) -> c_int {
    // A call that panicked did not get to what it was to change, or changed what is made of atomics.
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Problem::Panic));
    match done {
        Ok(()) => 0,
        Err(problem) => {
            keep(&problem);
            -1
        }
    }
}

/// Does something that gives a value; another one if it panics.
pub(crate) fn guarded_or<T>(other: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        keep(&Problem::Panic);
        other
    })
}

fn keep(problem: &Problem) {
    let text = problem.to_string().replace('\0', "\u{fffd}");
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending keeps none.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Why the last call failed on this thread; it stays there until the next one fails.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
