//! Raw handles for other languages: metrics, operations and lanes as words. 0 is never a valid
//! metric or operation, so an unregistered handle records nothing.
#![allow(unsafe_code, reason = "only the caller knows that a handle is one that was returned")]

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;

use crate::in_flight::{Operation, Tag};
use crate::metric::{CellLocation, MetricHandle};
use crate::metric_builder::MetricBuilder;
use crate::thread_lane;

/// This thread's lane: a pointer to its first byte, followed by a `usize`, the end of its usable
/// small cells, 0 if there is no lane. Both change while the thread calls this crate, and in a
/// forked process; their address is valid until the thread ends.
///
/// Code that writes cells through it must do so as `cells.rs` does: words, on this thread, at the
/// offsets of `layout.rs`.
pub fn lane() -> *const c_void {
    thread_lane::lane_block()
}

/// A metric as a word.
pub fn metric_to_raw(metric: &impl MetricHandle) -> u64 {
    !metric.cells().get()
}

/// The metric of a word; for 0, a metric that records nothing.
///
/// # Safety
/// The word must be 0, or returned by [`metric_to_raw`] in this process, or in a process that it
/// was forked from, for a metric of the same kind.
#[inline(always)]
pub unsafe fn metric_from_raw<M: MetricHandle>(word: u64) -> M {
    M::at(CellLocation::at(!word))
}

/// Relates a metric under construction to the metric of a word.
pub fn related_to(mut description: MetricBuilder, word: u64) -> MetricBuilder {
    description.series.related_cells = Some(!word);
    description
}

/// A tag as a word.
pub fn tag_to_raw(tag: Tag) -> u32 {
    tag.0
}

/// The tag of a word; an unknown tag has no text.
pub fn tag_from_raw(word: u32) -> Tag {
    Tag(word)
}

/// An operation as words. It stays in flight until it is converted back and dropped.
#[inline]
pub fn operation_to_raw(operation: Operation) -> [u64; 4] {
    let operation = ManuallyDrop::new(operation);
    let (table, at, slot) = match operation.slot {
        Some((table, at, slot)) => {
            (ptr::from_ref(table).expose_provenance(), at, ptr::from_ref(slot).expose_provenance())
        }
        None => (0, 0, 0),
    };
    let small_and_at = operation.small as u64 | (at as u64) << 32;
    [table as u64, slot as u64, small_and_at, u64::from(operation.fork_generation) + 1]
}

/// The operation of words; `None` if they are 0.
///
/// # Safety
/// They must be 0, or what [`operation_to_raw`] returned in this process or one that it was forked
/// from, and must be converted back once.
#[inline]
pub unsafe fn operation_from_raw(words: [u64; 4]) -> Option<Operation> {
    let [table, slot, small_and_at, process] = words;
    let process = process.checked_sub(1)? as u32;
    let (small, at) = (small_and_at as u32 as usize, (small_and_at >> 32) as usize);
    // SAFETY: they are 0, or derived from `'static` references (`Operation::held`) in this process
    // or in a process that it was forked from, where the same memory is mapped at the same address.
    let operation = unsafe {
        let table =
            ptr::with_exposed_provenance::<crate::cells::InFlightCells>(table as usize).as_ref();
        let slot =
            ptr::with_exposed_provenance::<crate::cells::OperationSlot>(slot as usize).as_ref();
        table.zip(slot).map(|(table, slot)| (table, at, slot))
    };
    Some(Operation { small, slot: operation, fork_generation: process })
}
