//! Metric cells in shared memory and their memory ordering.
//!
//! The small cells of a metric have a fixed size; its large cells, buckets or slots, are at another
//! place of the lane (`layout.rs`), so that memory is reserved only for those that a thread uses.
//!
//! In a thread's own lane an addition is a plain load and store: no other thread writes there. On
//! x86-64 it is one instruction, `add [memory], register`. In the shared lane additions are atomic
//! (`lock` prefix).
//!
//! A histogram record increments `begun`, then updates sum and extremes, then the bucket. A reader
//! loads the buckets first and `begun` last: if the counts agree, no record was in progress, and
//! sum and extremes belong to the buckets. If they never agree, sum and extremes are marked as
//! estimates.
//!
//! A text has two buffers. The writer fills the inactive one and then makes it the active one. A
//! reader checks after reading that the buffer is still active.

use std::mem::offset_of;

use crate::sync::{AtomicU64, Ordering, fence, yield_now};

/// Array of 64-bit cells.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct U64Cells<const N: usize>(pub(crate) [AtomicU64; N]);

/// The small cells of a histogram in one lane: `layout::HISTOGRAM`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct HistogramCells {
    pub(crate) begun: AtomicU64,
    pub(crate) zero: AtomicU64,
    pub(crate) sum_low: AtomicU64,
    pub(crate) sum_high: AtomicU64,
    pub(crate) not_min: AtomicU64,
    pub(crate) max: AtomicU64,
    pub(crate) touched: AtomicU64,
    reserved: AtomicU64,
}

/// The small cells of operations in flight in one lane: `layout::IN_FLIGHT`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct InFlightCells {
    pub(crate) started: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) untracked: AtomicU64,
    pub(crate) slots: AtomicU64,
    pub(crate) hint: AtomicU64,
    reserved: [AtomicU64; 3],
}

/// One operation: `layout::SLOT`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OperationSlot {
    pub(crate) start: AtomicU64,
    pub(crate) number: AtomicU64,
    pub(crate) tags: [AtomicU64; 2],
}

/// Access mode of a cell.
pub(crate) trait CellAccess {
    /// Adds and returns the previous value.
    fn add(cell: &AtomicU64, n: u64) -> u64;
    /// Raises the cell to a value if that is greater.
    fn raise(cell: &AtomicU64, value: u64);
}

/// Single writer: plain stores.
pub(crate) struct SingleWriter;
/// Multiple writers: atomic instructions.
pub(crate) struct MultiWriter;

impl CellAccess for SingleWriter {
    #[inline(always)]
    fn add(cell: &AtomicU64, n: u64) -> u64 {
        let current = cell.load(Ordering::Relaxed);
        cell.store(current.wrapping_add(n), Ordering::Relaxed);
        current
    }

    #[inline(always)]
    fn raise(cell: &AtomicU64, value: u64) {
        if value > cell.load(Ordering::Relaxed) {
            cell.store(value, Ordering::Relaxed);
        }
    }
}

impl CellAccess for MultiWriter {
    fn add(cell: &AtomicU64, n: u64) -> u64 {
        cell.fetch_add(n, Ordering::AcqRel)
    }

    fn raise(cell: &AtomicU64, value: u64) {
        cell.fetch_max(value, Ordering::AcqRel);
    }
}

impl HistogramCells {
    /// Counts a value whose bucket has space.
    #[inline(always)]
    pub(crate) fn record<A: CellAccess>(&self, bucket: &AtomicU64, value: u64) {
        A::add(&self.begun, 1);
        // A reader that sees a store below sees `begun` incremented: pairs with the fence in
        // `read_distribution`.
        fence(Ordering::Release);
        let low = A::add(&self.sum_low, value);
        if low.checked_add(value).is_none() {
            A::add(&self.sum_high, 1);
        }
        A::raise(&self.max, value);
        A::raise(&self.not_min, !value);
        // A reader that sees this count sees the stores above.
        fence(Ordering::Release);
        A::add(bucket, 1);
    }
}

/// Zero count, sum, min and max of a histogram in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistogramSummary {
    pub(crate) zero: u64,
    pub(crate) sum: u128,
    pub(crate) min: u64,
    pub(crate) max: u64,
    /// Whether the values belong to the buckets that were read.
    pub(crate) is_exact: bool,
}

/// Read attempts for cells that change during the read.
const ATTEMPTS: usize = if cfg!(loom) { 2 } else { 8 };

/// Reads a histogram of one lane: `cell` returns its small cells by offset; `buckets` sums those of
/// the groups in `touched` and returns the number of values.
pub(crate) fn read_distribution<E>(
    mut cell: impl FnMut(usize) -> Result<u64, E>,
    mut buckets: impl FnMut(u64) -> Result<u64, E>,
) -> Result<HistogramSummary, E> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let counted = buckets(cell(offset_of!(HistogramCells, touched))?)?;
        let zero = cell(offset_of!(HistogramCells, zero))?;
        // The loads below see the stores before the values read above.
        fence(Ordering::Acquire);
        let low = cell(offset_of!(HistogramCells, sum_low))?;
        let high = cell(offset_of!(HistogramCells, sum_high))?;
        let not_min = cell(offset_of!(HistogramCells, not_min))?;
        let max = cell(offset_of!(HistogramCells, max))?;
        // A writer whose values were read incremented `begun` before: pairs with the fence in
        // `HistogramCells::record`.
        fence(Ordering::Acquire);
        let is_exact = cell(offset_of!(HistogramCells, begun))? == counted.wrapping_add(zero);
        if is_exact || attempt == ATTEMPTS {
            let sum = u128::from(high) << 64 | u128::from(low);
            return Ok(HistogramSummary { zero, sum, min: !not_min, max, is_exact });
        }
    }
}

impl InFlightCells {
    /// Claims a free slot in the range from `from` to before `to`.
    pub(crate) fn claim_slot<'a>(
        from: usize,
        to: usize,
        slot: impl Fn(usize) -> &'a OperationSlot,
    ) -> Option<(usize, &'a OperationSlot)> {
        (from..to).map(|at| (at, slot(at))).find(|(_, slot)| slot.try_claim())
    }
}

impl OperationSlot {
    fn try_claim(&self) -> bool {
        self.start.load(Ordering::Relaxed) == 0
            && self
                .start
                .compare_exchange(0, crate::layout::FILLING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Fills a claimed slot.
    pub(crate) fn fill(&self, start_ns: u64, number: u64, tags: [u64; 2]) {
        // A reader that sees one of these stores sees that the slot was being filled: pairs with
        // `MetricsFileReader::operations`, which loads twice.
        fence(Ordering::Release);
        self.number.store(number, Ordering::Relaxed);
        self.tags[0].store(tags[0], Ordering::Relaxed);
        self.tags[1].store(tags[1], Ordering::Relaxed);
        self.start.store(start_ns.max(crate::layout::FILLING + 1), Ordering::Release);
    }

    /// Releases the slot.
    pub(crate) fn release(&self) {
        self.start.store(0, Ordering::Release);
    }
}

/// Flag in `current` of a text: a writer fills the inactive buffer.
const WRITING: u64 = 1 << 63;

/// Sets a text: `write` fills the buffer with that index, 0 or 1.
pub(crate) fn write_text(current: &AtomicU64, write: impl FnOnce(usize)) {
    let word = loop {
        let word = current.load(Ordering::Relaxed) & !WRITING;
        let taken = current.compare_exchange_weak(
            word,
            word | WRITING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_ok() {
            break word;
        }
        yield_now();
    };
    // A reader that sees a part of the new text sees that the buffer is not active: pairs with the
    // fence in `read_text`.
    fence(Ordering::Release);
    let next = word.wrapping_add(1) & !WRITING;
    write((next & 1) as usize);
    current.store(next, Ordering::Release);
}

/// Reads a text: `buffer` reads the buffer with that index, 0 or 1. `None` if the text was set
/// during each attempt.
pub(crate) fn read_text<T, E>(
    mut current: impl FnMut() -> Result<u64, E>,
    mut buffer: impl FnMut(usize) -> Result<T, E>,
) -> Result<Option<T>, E> {
    for _ in 0..ATTEMPTS {
        let counts = current()? & !WRITING;
        let found = buffer((counts & 1) as usize)?;
        // The load below must see the state at the time of the read above.
        fence(Ordering::Acquire);
        if current()? & !WRITING == counts {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Writes an entry, its first word last, and then increments the count.
pub(crate) fn publish(entry: &U64Cells<8>, words: &[u64; 8], count: &AtomicU64, number: usize) {
    for (cell, word) in entry.0.iter().zip(words).skip(1) {
        cell.store(*word, Ordering::Relaxed);
    }
    // A reader that sees the first word sees the rest, and the texts.
    entry.0[0].store(words[0], Ordering::Release);
    count.store(number as u64 + 1, Ordering::Release);
}

#[cfg(test)]
#[path = "cells/tests.rs"] // also where `loom/` has taken this file in by its path
mod tests;
