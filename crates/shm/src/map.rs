//! Memory mappings as 64-bit words; holds the safety argument of the crate.
#![allow(unsafe_code, reason = "maps files; each use carries its argument")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::sync::AtomicU64;

/// Mapped part of a file, shared with other processes; or a private page.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all access is atomic, which any thread may do; the mapping lives as long as `self`.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

/// Plain-old-data cells in shared memory.
///
/// # Safety
/// `repr(C)`, and every field an [`AtomicU64`] or an array of them.
pub(crate) unsafe trait CellLayout {}

// SAFETY: it is an [`AtomicU64`].
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
    /// Maps `bytes` of a file from `offset` on, a multiple of the page size. Access to a page
    /// without space in the file raises SIGBUS: callers reserve space before (`MetricsFileWriter`)
    /// or know that it exists (`FileSource::Mapped`).
    pub(crate) fn new(
        file: impl AsFd,
        offset: u64,
        bytes: usize,
        writable: bool,
    ) -> io::Result<Map> {
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address chosen by the kernel does not affect existing memory.
        let base = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, offset)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Map { base, bytes })
    }

    /// Private page of zeros; a forked process finds zeros again, whatever was written (since Linux
    /// 4.14).
    pub(crate) fn map_wiped_on_fork() -> io::Result<Map> {
        let (bytes, access) = (crate::layout::PAGE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: as in `new`.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let map = Map { base, bytes };
        // SAFETY: the range is the mapping just created; a forked process accesses it as atomics
        // too.
        unsafe { madvise(map.base.as_ptr().cast(), bytes, Advice::LinuxWipeOnFork)? };
        Ok(map)
    }

    /// Cells at an offset, if they lie inside. Cells of a read-only map must not be written.
    #[inline]
    pub(crate) fn at<T: CellLayout>(&self, offset: usize) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.bytes || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the bytes from `offset` to `end` are inside the mapping, which starts at a page
        // and is therefore aligned to 8, as the offset is; `T` consists of atomics, for which all
        // bit patterns are valid (`CellLayout`); the mapping outlives the reference, which borrows
        // `self`.
        Some(unsafe { &*self.base.as_ptr().add(offset).cast::<T>() })
    }

    /// `count` words from an offset on, if they lie inside.
    #[inline]
    pub(crate) fn words(&self, offset: usize, count: usize) -> Option<&[AtomicU64]> {
        let end = offset.checked_add(count.checked_mul(8)?)?;
        if end > self.bytes || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: as in `at`: the bytes lie inside the mapping, which outlives the slice, and are
        // atomics, for which all bit patterns are valid.
        let first = unsafe { self.base.as_ptr().add(offset).cast::<AtomicU64>() };
        // SAFETY: as above, for all of them.
        Some(unsafe { std::slice::from_raw_parts(first, count) })
    }

    /// Populates the page tables of a part with space, so that the first access does not fault; a
    /// hint that may fail.
    pub(crate) fn populate(&self, offset: usize, bytes: usize) {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return;
        }
        // SAFETY: the range lies inside the mapping; its contents do not change.
        let _ = unsafe {
            madvise(self.base.as_ptr().add(offset).cast(), bytes, Advice::LinuxPopulateWrite)
        };
    }

    /// Address of the mapping.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `self` owns the mapping, and no reference into it exists: they borrow `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Cells at an offset of a lane.
///
/// # Safety
/// `base` must be the address of a lane that is never unmapped; `offset` must be a multiple of 8
/// followed by `size_of::<T>()` bytes that lie inside the lane and have space in the file.
#[inline(always)]
pub(crate) unsafe fn cells_at<T: CellLayout>(base: *mut u8, offset: usize) -> &'static T {
    // SAFETY: guaranteed by the caller; lanes start at pages, so the sum is aligned to 8.
    unsafe { &*base.add(offset).cast::<T>() }
}
