//! Allocator that maps large blocks individually.
#![allow(unsafe_code, reason = "implements GlobalAlloc and calls mmap, mremap and munmap")]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

/// Blocks of at least this size are mapped individually: a page fault per 4 KiB costs less than a
/// copy on growth.
const MAPPED_BYTES: usize = 1 << 20;
/// Alignment of every mapping on every architecture.
const PAGE_BYTES: usize = 4096;

/// Allocator whose large blocks are mappings of their own; `A` allocates the others. A mapping
/// grows without a copy, because the kernel moves its pages, and is returned to the system when
/// the block is freed.
#[derive(Debug)]
pub struct MappingAllocator<A> {
    small: A,
}

impl<A> MappingAllocator<A> {
    /// `small` allocates blocks of less than 1 MiB.
    pub const fn new(small: A) -> MappingAllocator<A> {
        MappingAllocator { small }
    }
}

const fn is_mapped(size: usize, align: usize) -> bool {
    size >= MAPPED_BYTES && align <= PAGE_BYTES
}

// SAFETY: a block is a mapping if and only if its layout says so, and the layout is the same in
// all calls for a block.
unsafe impl<A: GlobalAlloc> GlobalAlloc for MappingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return map(layout.size());
        }
        // SAFETY: the caller's promise.
        unsafe { self.small.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            // The kernel clears pages.
            return map(layout.size());
        }
        // SAFETY: the caller's promise.
        unsafe { self.small.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_mapped(layout.size(), layout.align()) {
            // SAFETY: `block` is a mapping of this size, which nobody uses any more.
            unsafe { libc::munmap(block.cast(), layout.size()) };
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.small.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let is_mapped = |size| is_mapped(size, layout.align());
        match (is_mapped(layout.size()), is_mapped(new_size)) {
            // SAFETY: the caller's promise.
            (false, false) => unsafe { self.small.realloc(block, layout, new_size) },
            (true, true) => {
                let may_move = libc::MREMAP_MAYMOVE;
                // SAFETY: `block` is a mapping of this size that only the caller uses.
                let moved =
                    unsafe { libc::mremap(block.cast(), layout.size(), new_size, may_move) };
                if moved == libc::MAP_FAILED { ptr::null_mut() } else { moved.cast() }
            }
            _ => {
                // SAFETY: the caller promises a valid size for this alignment.
                let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
                // SAFETY: the size is not 0.
                let moved = unsafe { self.alloc(new) };
                if !moved.is_null() {
                    // SAFETY: both blocks have at least this size and are distinct.
                    unsafe {
                        ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
                        self.dealloc(block, layout);
                    }
                }
                moved
            }
        }
    }
}

/// Returns a new mapping, or null if there is no memory.
fn map(size: usize) -> *mut u8 {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping replaces nothing.
    let block = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
    if block == libc::MAP_FAILED { ptr::null_mut() } else { block.cast() }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    const MIB: usize = 1 << 20;

    /// Changes the size of a block step by step; the common bytes stay.
    #[track_caller]
    fn check(sizes: &[usize], align: usize) {
        let allocator = MappingAllocator::new(System);
        let layout = |size| Layout::from_size_align(size, align).unwrap();
        let mut size = sizes[0];
        // SAFETY: the layouts are valid, and each block is used within its size.
        unsafe {
            let mut block = allocator.alloc_zeroed(layout(size));
            assert!((0..size).all(|at| *block.add(at) == 0));
            for new_size in sizes[1..].iter().copied() {
                (0..size).for_each(|at| *block.add(at) = at as u8);
                block = allocator.realloc(block, layout(size), new_size);
                assert!(!block.is_null() && block.addr().is_multiple_of(align));
                assert!((0..size.min(new_size)).all(|at| *block.add(at) == at as u8));
                size = new_size;
            }
            allocator.dealloc(block, layout(size));
        }
    }

    #[test]
    fn bytes_survive_each_change_of_size() {
        check(&[1, MIB - 1, MIB, MIB + 1, 3 * MIB + 5, 2 * MIB, MIB - 1, 10], 1);
        check(&[MIB, 5 * MIB, MIB], PAGE_BYTES);
        // Larger alignments are not mapped.
        check(&[MIB, 5 * MIB, MIB], 4 * PAGE_BYTES);
    }

    #[test]
    fn memory_that_the_system_refuses_is_a_null_pointer() {
        let allocator = MappingAllocator::new(System);
        let huge = Layout::from_size_align(isize::MAX as usize - 4095, 1).unwrap();
        // SAFETY: the layouts are valid; a null pointer is not used.
        unsafe {
            assert!(allocator.alloc(huge).is_null());
            let layout = Layout::from_size_align(MIB, 1).unwrap();
            let block = allocator.alloc(layout);
            assert!(allocator.realloc(block, layout, huge.size()).is_null());
            allocator.dealloc(block, layout);
        }
    }
}
