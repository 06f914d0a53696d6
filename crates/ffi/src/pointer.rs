//! Checks of pointers passed by C: NULL, alignment, UTF-8. That it points at what it says, only C
//! knows.
#![allow(unsafe_code, reason = "reads and writes where C points; each use carries its argument")]

use std::ffi::{CStr, c_char};
use std::{ptr, slice, str};

use crate::error::FfiError;

/// A text.
///
/// # Safety
/// NULL, or a text that ends with a zero byte and does not change during the call.
pub(crate) unsafe fn read_text<'a>(
    at: *const c_char,
    what: &'static str,
) -> Result<&'a str, FfiError> {
    if at.is_null() {
        return Err(FfiError::InvalidPointer { argument: what });
    }
    // SAFETY: it is not NULL, and the caller promised the rest.
    let bytes = unsafe { CStr::from_ptr(at) }.to_bytes();
    str::from_utf8(bytes)
        .map_err(|error| FfiError::InvalidText { argument: what, at: error.valid_up_to() })
}

/// A text that may be missing: then it is empty.
///
/// # Safety
/// As of `text`.
pub(crate) unsafe fn read_optional_text<'a>(
    at: *const c_char,
    what: &'static str,
) -> Result<&'a str, FfiError> {
    if at.is_null() {
        return Ok("");
    }
    // SAFETY: as the caller promises.
    unsafe { read_text(at, what) }
}

/// A structure.
///
/// # Safety
/// NULL, or one that does not change during the call.
pub(crate) unsafe fn read_struct<'a, T>(
    at: *const T,
    what: &'static str,
) -> Result<&'a T, FfiError> {
    if at.is_null() || !at.is_aligned() {
        return Err(FfiError::InvalidPointer { argument: what });
    }
    // SAFETY: it was checked for NULL and alignment, and the caller promised the rest.
    Ok(unsafe { &*at })
}

/// So many structures, at most `most`. None need no pointer.
///
/// # Safety
/// NULL, or `count` of them that do not change during the call.
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
    // SAFETY: as above; `most` keeps them far from half of the address space.
    Ok(unsafe { slice::from_raw_parts(at, count) })
}

/// Checks a place for a result.
pub(crate) fn check_output<T>(at: *mut T, what: &'static str) -> Result<(), FfiError> {
    match at.is_null() || !at.is_aligned() {
        true => Err(FfiError::InvalidPointer { argument: what }),
        false => Ok(()),
    }
}

/// Puts a result to its place, or nothing where that is none.
///
/// # Safety
/// NULL, or room for one.
pub(crate) unsafe fn write_output<T: Copy>(at: *mut T, value: T) {
    if check_output(at, "").is_ok() {
        // SAFETY: it was checked for NULL and alignment, and the caller promised the rest.
        unsafe { ptr::write(at, value) };
    }
}

/// Copies a text and a zero byte into a buffer, as much as fits.
///
/// # Safety
/// NULL, or room for `size` bytes.
pub(crate) unsafe fn copy_text(text: &[u8], buffer: *mut c_char, size: usize) {
    let Some(most) = size.checked_sub(1).filter(|_| !buffer.is_null()) else { return };
    let length = text.len().min(most);
    // SAFETY: `length` and the zero byte behind it are within `size`; `text` is ours, so that they
    // do not overlap.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, length);
        buffer.add(length).write(0);
    }
}
