//! Metric cells in shared memory and their memory ordering.
//!
//! In a lane of one's own a store follows a load with nothing between them that could interrupt it
//! on another thread, for there is no other thread that writes: on x86-64 they are one instruction,
//! `add [memory], register`. In the shared lane they are locked.
//!
//! A histogram's record is `begun`, sum and extremes, then the bucket. Who reads the buckets first
//! and `begun` last knows: if they agree, no record was under way, and sum and extremes belong to
//! the buckets. If they never do, these are marked as estimated.
//!
//! A text has two buffers; the one that does not count is written, and then counts. Who reads one
//! looks again whether it still counts.

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
    pub(crate) unlisted: AtomicU64,
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
    /// Adds, and says what was there.
    fn add(cell: &AtomicU64, n: u64) -> u64;
    /// Raises it to a value if that is greater.
    fn raise(cell: &AtomicU64, value: u64);
}

/// Single writer: plain stores.
pub(crate) struct SingleWriter;
/// Anybody.
pub(crate) struct MultiWriter;

impl CellAccess for SingleWriter {
    #[inline(always)]
    fn add(cell: &AtomicU64, n: u64) -> u64 {
        let held = cell.load(Ordering::Relaxed);
        cell.store(held.wrapping_add(n), Ordering::Relaxed);
        held
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
    /// Counts a value whose bucket has room.
    #[inline(always)]
    pub(crate) fn record<A: CellAccess>(&self, bucket: &AtomicU64, value: u64) {
        A::add(&self.begun, 1);
        // Whoever sees a store below sees `begun` raised: pairs with the fence in
        // `read_distribution`.
        fence(Ordering::Release);
        let low = A::add(&self.sum_low, value);
        if low.checked_add(value).is_none() {
            A::add(&self.sum_high, 1);
        }
        A::raise(&self.max, value);
        A::raise(&self.not_min, !value);
        // Whoever counts this one sees what stands above.
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
    /// Whether it belongs to the buckets that were read.
    pub(crate) is_exact: bool,
}

/// How often something is read anew that changes meanwhile.
const ATTEMPTS: usize = if cfg!(loom) { 2 } else { 8 };

/// Reads a histogram of one lane: `cell` gives its small cells by their offset, `buckets` adds up
/// those of the groups in `touched` and says how many values they hold.
pub(crate) fn read_distribution<E>(
    mut cell: impl FnMut(usize) -> Result<u64, E>,
    mut buckets: impl FnMut(u64) -> Result<u64, E>,
) -> Result<HistogramSummary, E> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let counted = buckets(cell(offset_of!(HistogramCells, touched))?)?;
        let zero = cell(offset_of!(HistogramCells, zero))?;
        // What these values left is seen below.
        fence(Ordering::Acquire);
        let low = cell(offset_of!(HistogramCells, sum_low))?;
        let high = cell(offset_of!(HistogramCells, sum_high))?;
        let not_min = cell(offset_of!(HistogramCells, not_min))?;
        let max = cell(offset_of!(HistogramCells, max))?;
        // Whoever raised what was read had raised `begun`: pairs with the fence in
        // `Distribution::record`.
        fence(Ordering::Acquire);
        let is_exact = cell(offset_of!(HistogramCells, begun))? == counted.wrapping_add(zero);
        if is_exact || attempt == ATTEMPTS {
            let sum = u128::from(high) << 64 | u128::from(low);
            return Ok(HistogramSummary { zero, sum, min: !not_min, max, is_exact });
        }
    }
}

impl InFlightCells {
    /// Takes one of the slots from `from` on below `to` that is free.
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

    /// Fills what was taken.
    pub(crate) fn fill(&self, start_ns: u64, number: u64, tags: [u64; 2]) {
        // Whoever sees one of these sees that the slot was being filled: pairs with
        // `Reader::operations`, which looks twice.
        fence(Ordering::Release);
        self.number.store(number, Ordering::Relaxed);
        self.tags[0].store(tags[0], Ordering::Relaxed);
        self.tags[1].store(tags[1], Ordering::Relaxed);
        self.start.store(start_ns.max(crate::layout::FILLING + 1), Ordering::Release);
    }

    /// Gives it back.
    pub(crate) fn release(&self) {
        self.start.store(0, Ordering::Release);
    }
}

/// In `current` of a text: somebody writes the buffer that does not count.
const WRITING: u64 = 1 << 63;

/// Says another text: `write` fills the buffer of that number, 0 or 1.
pub(crate) fn write_text(current: &AtomicU64, write: impl FnOnce(usize)) {
    let held = loop {
        let held = current.load(Ordering::Relaxed) & !WRITING;
        let taken = current.compare_exchange_weak(
            held,
            held | WRITING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_ok() {
            break held;
        }
        yield_now();
    };
    // Whoever sees a part of what is written sees that its buffer has stopped to count: pairs with
    // the fence in `read_text`.
    fence(Ordering::Release);
    let next = held.wrapping_add(1) & !WRITING;
    write((next & 1) as usize);
    current.store(next, Ordering::Release);
}

/// Reads a text: `buffer` reads the one of that number, 0 or 1. `None` if it was said anew each
/// time.
pub(crate) fn read_text<T, E>(
    mut current: impl FnMut() -> Result<u64, E>,
    mut buffer: impl FnMut(usize) -> Result<T, E>,
) -> Result<Option<T>, E> {
    for _ in 0..ATTEMPTS {
        let counts = current()? & !WRITING;
        let found = buffer((counts & 1) as usize)?;
        // What was read decides what is seen below.
        fence(Ordering::Acquire);
        if current()? & !WRITING == counts {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Writes an entry, its first word last, and that there is one more.
pub(crate) fn publish(entry: &U64Cells<8>, words: &[u64; 8], count: &AtomicU64, number: usize) {
    for (cell, word) in entry.0.iter().zip(words).skip(1) {
        cell.store(*word, Ordering::Relaxed);
    }
    // Whoever sees the first word sees the rest, and the texts.
    entry.0[0].store(words[0], Ordering::Release);
    count.store(number as u64 + 1, Ordering::Release);
}

#[cfg(test)]
#[path = "cells/tests.rs"] // also where `loom/` has taken this file in by its path
mod tests;
