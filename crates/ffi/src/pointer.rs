//! Checks of pointers passed by C: NULL, alignment, UTF-8. Only the caller can ensure that they are
//! valid.
#![allow(unsafe_code, reason = "reads and writes where C points; each use carries its argument")]

use std::ffi::{CStr, c_char};
use std::{ptr, slice, str};

use crate::error::FfiError;

/// Reads a text.
///
/// # Safety
/// `at` must be NULL, or a zero-terminated text that does not change during the call.
pub(crate) unsafe fn read_text<'a>(
    at: *const c_char,
    what: &'static str,
) -> Result<&'a str, FfiError> {
    if at.is_null() {
        return Err(FfiError::InvalidPointer { argument: what });
    }
    // SAFETY: it is not NULL; the rest is guaranteed by the caller.
    let bytes = unsafe { CStr::from_ptr(at) }.to_bytes();
    str::from_utf8(bytes)
        .map_err(|error| FfiError::InvalidText { argument: what, at: error.valid_up_to() })
}

/// Reads an optional text; NULL is empty.
///
/// # Safety
/// As of `read_text`.
pub(crate) unsafe fn read_optional_text<'a>(
    at: *const c_char,
    what: &'static str,
) -> Result<&'a str, FfiError> {
    if at.is_null() {
        return Ok("");
    }
    // SAFETY: guaranteed by the caller.
    unsafe { read_text(at, what) }
}

/// Reads a structure.
///
/// # Safety
/// `at` must be NULL, or a structure that does not change during the call.
pub(crate) unsafe fn read_struct<'a, T>(
    at: *const T,
    what: &'static str,
) -> Result<&'a T, FfiError> {
    if at.is_null() || !at.is_aligned() {
        return Err(FfiError::InvalidPointer { argument: what });
    }
    // SAFETY: checked for NULL and alignment; the rest is guaranteed by the caller.
    Ok(unsafe { &*at })
}

/// Reads `count` structures, at most `most`. With a count of 0 the pointer may be NULL.
///
/// # Safety
/// `at` must be NULL, or `count` structures that do not change during the call.
pub(crate) unsafe fn read_slice<'a, T>(
    at: *const T,
    count: usize,
    most: usize,
    what: &'static str,
) -> Result<&'a [T], FfiError> {
    if count > most {
        return Err(FfiError::TooMany { argument: what, count, most });
    }
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() {
        return Err(FfiError::InvalidPointer { argument: what });
    }
    // SAFETY: as above; `most` keeps the size far below half of the address space.
    Ok(unsafe { slice::from_raw_parts(at, count) })
}

/// Checks the pointer to a result.
pub(crate) fn check_output<T>(at: *mut T, what: &'static str) -> Result<(), FfiError> {
    match at.is_null() || !at.is_aligned() {
        true => Err(FfiError::InvalidPointer { argument: what }),
        false => Ok(()),
    }
}

/// Writes a result; does nothing if the pointer is NULL or not aligned.
///
/// # Safety
/// `at` must be NULL, or point to space for a result.
pub(crate) unsafe fn write_output<T: Copy>(at: *mut T, value: T) {
    if check_output(at, "").is_ok() {
        // SAFETY: checked for NULL and alignment; the rest is guaranteed by the caller.
        unsafe { ptr::write(at, value) };
    }
}

/// Copies a text with a terminating zero into a buffer, truncated to its size.
///
/// # Safety
/// `buffer` must be NULL, or point to space for `size` bytes.
pub(crate) unsafe fn copy_text(text: &[u8], buffer: *mut c_char, size: usize) {
    let Some(most) = size.checked_sub(1).filter(|_| !buffer.is_null()) else { return };
    let length = text.len().min(most);
    // SAFETY: `length` and the terminating zero are within `size`; `text` is owned by the library,
    // so they do not overlap.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, length);
        buffer.add(length).write(0);
    }
}
