//! Memory mappings as 64-bit words; holds the safety argument of the crate.
#![allow(unsafe_code, reason = "maps files; each use carries its argument")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::sync::AtomicU64;

/// A part of a file in memory, shared with whoever else has it; or a page of one's own.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all access goes through atomics, which any thread may use; the mapping lives as long as
// `self`.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

/// Plain-old-data cells in shared memory.
///
/// # Safety
/// `repr(C)`, and every field an [`AtomicU64`] or an array of them.
pub(crate) unsafe trait CellLayout {}

// SAFETY: it is one.
unsafe impl CellLayout for AtomicU64 {}
// SAFETY: a `repr(C)` structure of atomics.
unsafe impl CellLayout for crate::cells::HistogramCells {}
// SAFETY: a `repr(C)` structure of atomics.
unsafe impl CellLayout for crate::cells::InFlightCells {}
// SAFETY: a `repr(C)` structure of atomics.
unsafe impl CellLayout for crate::cells::OperationSlot {}
// SAFETY: a `repr(C)` structure of atomics.
unsafe impl CellLayout for crate::cells::U64Cells<4> {}
// SAFETY: a `repr(C)` structure of atomics.
unsafe impl CellLayout for crate::cells::U64Cells<8> {}
// SAFETY: a `repr(C)` structure of atomics.
unsafe impl CellLayout for crate::cells::U64Cells<64> {}

impl Map {
    /// Maps `bytes` of a file from `offset` on, a multiple of the page size. Whoever touches a page
    /// that the file has no room for is killed (SIGBUS): room is reserved before (`Writer`), or
    /// known to be there (`Mapped`).
    pub(crate) fn new(
        file: impl AsFd,
        offset: u64,
        bytes: usize,
        writable: bool,
    ) -> io::Result<Map> {
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, offset)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Map { base, bytes })
    }

    /// A page of this process alone, zeros; a process that is forked off finds zeros again,
    /// whatever was written (since Linux 4.14).
    pub(crate) fn map_wiped_on_fork() -> io::Result<Map> {
        let (bytes, access) = (crate::layout::PAGE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: as in `new`.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let map = Map { base, bytes };
        // SAFETY: the range is the mapping that was just made; what a forked process finds there
        // are atomics all the same.
        unsafe { madvise(map.base.as_ptr().cast(), bytes, Advice::LinuxWipeOnFork)? };
        Ok(map)
    }

    /// Cells at an offset, if they lie inside. Those of a map that cannot be written to must not
    /// be.
    #[inline]
    pub(crate) fn at<T: CellLayout>(&self, offset: usize) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.bytes || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the bytes from `offset` to `end` are inside the mapping, which begins at a page
        // and so is aligned to 8, as the offset is; `T` is nothing but atomics, of which any bits
        // are one (`Cells`); the mapping outlives the reference, which borrows `self`.
        Some(unsafe { &*self.base.as_ptr().add(offset).cast::<T>() })
    }

    /// So many words from an offset on, if they lie inside.
    #[inline]
    pub(crate) fn words(&self, offset: usize, count: usize) -> Option<&[AtomicU64]> {
        let end = offset.checked_add(count.checked_mul(8)?)?;
        if end > self.bytes || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: as in `at`: the bytes lie inside the mapping, which outlives the slice, and are
        // atomics of any bits.
        let first = unsafe { self.base.as_ptr().add(offset).cast::<AtomicU64>() };
        // SAFETY: as above, for all of them.
        Some(unsafe { std::slice::from_raw_parts(first, count) })
    }

    /// The pages of a part that has room are made ready, so that the first touch is no fault; a
    /// hint that may fail.
    pub(crate) fn populate(&self, offset: usize, bytes: usize) {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return;
        }
        // SAFETY: the range lies inside the mapping; nothing of what it holds changes.
        let _ = unsafe {
            madvise(self.base.as_ptr().add(offset).cast(), bytes, Advice::LinuxPopulateWrite)
        };
    }

    /// Where it lies.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it: they borrow `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Cells at an offset of a lane.
///
/// # Safety
/// `base` must be that of a mapping of a lane that is never undone, `offset` a multiple of 8 with
/// `size_of::<T>()` bytes behind it that lie inside the lane and have room in the file.
#[inline(always)]
pub(crate) unsafe fn cells_at<T: CellLayout>(base: *mut u8, offset: usize) -> &'static T {
    // SAFETY: as the caller promises; lanes begin at pages, so that the sum is aligned to 8.
    unsafe { &*base.add(offset).cast::<T>() }
}
