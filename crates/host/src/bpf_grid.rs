//! Bucket grid of BPF programs, equal to `hist`'s `LogLinear2::integers(5)`.
//!
//! Buckets are 1 ns wide below 32 ns, and at most 1/32 of their lower edge above; a quantile at the
//! middle of its bucket is off by at most 1.54 %. Values from 2^42 ns (73 min) on count in the last
//! bucket; sums are not clamped. Bucket indexes are those of `hist::Scheme::LogLinear2`
//! (`the_buckets_are_those_of_hist`), so no conversion is needed.

use std::sync::atomic::{AtomicU64, Ordering};

use bpf::Register::{R1, R2, R3, R4, R5, R7};
use bpf::{AccessWidth, AluOperation, Assembler, JumpCondition, Register};
use hist::{DoubleDouble, Histogram, HistogramParts, Scheme, TrackedValue};

/// log2 of the number of buckets per octave.
const BITS: u32 = 5;
/// log2 of the first value above the grid.
const TOP: u32 = 42;
/// Buckets: 1,216.
pub(crate) const BUCKETS: usize = ((TOP - BITS + 1) << BITS) as usize;

/// Atomic or plain add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicMode {
    /// Several CPUs write the cell.
    Atomic,
    /// One CPU writes the cell, with interrupts off.
    Plain,
}

/// Emits: count the value in `r2` in the buckets at byte `buckets` of what `r7` points to, and add
/// it to the sum at byte `sum`. `r1` to `r5` are clobbered; `r7` points to a map value in which
/// these offsets are valid.
///
/// ```c
/// *(u64 *)(r7 + sum) += v;
/// if (v > (1ULL << 42) - 1) v = (1ULL << 42) - 1;
/// shift = 0;
/// for (k = 32; k; k /= 2)                    // unrolled
///     if (v >> k >= 32) { v >>= k; shift += k; }
/// index = (shift << 5) + v;                  // v is in 32..64, or below 32 and shift 0
/// if (index > 1215) return;                  // never: for the verifier
/// *(u64 *)(r7 + buckets + 8 * index) += 1;
/// ```
pub(crate) fn record(code: &mut Assembler, adding: AtomicMode, buckets: i16, sum: i16) {
    add(code, adding, R7, sum, R2);
    let fits = code.label();
    code.constant(R3, (1 << TOP) - 1);
    code.jump(JumpCondition::AtMost, R2, R3, fits);
    code.register(AluOperation::Move, R2, R3);
    code.bind(fits);
    code.immediate(AluOperation::Move, R4, 0);
    for shift in [32, 16, 8, 4, 2, 1] {
        let skip = code.label();
        code.register(AluOperation::Move, R5, R2);
        code.immediate(AluOperation::ShiftRight, R5, shift);
        code.jump_if(JumpCondition::Less, R5, 1 << BITS, skip);
        code.register(AluOperation::Move, R2, R5);
        code.immediate(AluOperation::Add, R4, shift);
        code.bind(skip);
    }
    code.immediate(AluOperation::ShiftLeft, R4, BITS as i32);
    code.register(AluOperation::Add, R4, R2);
    let outside = code.label();
    code.jump_if(JumpCondition::Greater, R4, BUCKETS as i32 - 1, outside);
    code.immediate(AluOperation::ShiftLeft, R4, 3);
    code.register(AluOperation::Move, R5, R7);
    code.register(AluOperation::Add, R5, R4);
    code.immediate(AluOperation::Move, R1, 1);
    add(code, adding, R5, buckets, R1);
    code.bind(outside);
}

/// Emits `*(u64 *)(to + offset) += from`; `r3` is clobbered.
fn add(code: &mut Assembler, adding: AtomicMode, to: Register, offset: i16, from: Register) {
    if adding == AtomicMode::Atomic {
        return code.atomic_add(to, offset, from);
    }
    code.load(AccessWidth::Bits64, R3, to, offset);
    code.register(AluOperation::Add, R3, from);
    code.store(to, offset, R3);
}

/// Cumulative counts of a bucket grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GridCounts {
    buckets: Vec<u64>,
    sum: u64,
}

impl Default for GridCounts {
    fn default() -> GridCounts {
        GridCounts { buckets: vec![0; BUCKETS], sum: 0 }
    }
}

impl GridCounts {
    /// Adds the current values of the cells. A record in progress may be in the sum and not yet in
    /// a bucket.
    pub(crate) fn add(&mut self, buckets: &[AtomicU64], sum: &AtomicU64) {
        // Relaxed: cells are independent; the sum is marked as an estimate because a record may
        // fall between two loads.
        self.sum = self.sum.wrapping_add(sum.load(Ordering::Relaxed));
        for (count, cell) in self.buckets.iter_mut().zip(buckets) {
            *count += cell.load(Ordering::Relaxed);
        }
    }

    /// Counts since `before`; `None` if there are none.
    pub(crate) fn since(&self, before: &GridCounts) -> Option<Histogram> {
        let grid = Scheme::LogLinear2(hist::LogLinear2::integers(BITS).expect("BUG: five bits"));
        let mut parts = HistogramParts::new(grid);
        let pairs = self.buckets.iter().zip(&before.buckets).enumerate();
        parts.positive = pairs
            .map(|(index, (now, then))| (index as i32, now.saturating_sub(*then)))
            .filter(|&(_, n)| n > 0)
            .collect();
        if parts.positive.is_empty() {
            return None;
        }
        let sum = self.sum.wrapping_sub(before.sum);
        parts.sum = TrackedValue::Estimated(DoubleDouble::new(sum as f64));
        Some(Histogram::from_recorded_parts(parts).expect("BUG: buckets of the grid, in order"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_interpreter::{BpfInterpreter, MAP};

    /// Records a value by the program and by `hist`, and compares.
    #[track_caller]
    fn check(value: u64, adding: AtomicMode) {
        let mut code = Assembler::default();
        code.load(AccessWidth::Bits64, R2, R1, 0);
        code.map_value(R7, 3, 0);
        record(&mut code, adding, 64, 8);
        code.exit();
        let mut machine = BpfInterpreter::new(8 + BUCKETS);
        machine.run(&code.finish(), &[value]);
        let cells: Vec<AtomicU64> = machine.map().iter().map(|&n| AtomicU64::new(n)).collect();
        let mut counts = GridCounts::default();
        counts.add(&cells[8..], &cells[1]);
        let found = counts.since(&GridCounts::default()).unwrap();
        let mut expected = Histogram::new(found.scheme().clone());
        expected.record(value.min((1 << TOP) - 1) as f64);
        let buckets = |histogram: &Histogram| histogram.clone().into_parts().positive;
        // `hist` counts zero separately or in the first bucket, depending on the scheme.
        assert_eq!(buckets(&found), buckets(&expected), "value {value}");
        assert_eq!(machine.map()[1], value);
        assert_eq!(MAP % 8, 0);
    }

    #[test]
    fn the_buckets_are_those_of_hist() {
        let mut values: Vec<u64> = (0..200).collect();
        for shift in 6..=63 {
            values.extend([(1 << shift) - 1, 1 << shift, (1 << shift) + 1, 3 << (shift - 1)]);
        }
        for value in values {
            check(value, AtomicMode::Atomic);
            check(value, AtomicMode::Plain);
        }
    }

    #[test]
    fn earlier_counts_are_subtracted() {
        let cells: Vec<AtomicU64> = (0..BUCKETS as u64).map(AtomicU64::new).collect();
        let mut before = GridCounts::default();
        before.add(&cells, &AtomicU64::new(7));
        assert_eq!(before.since(&before), None);
        cells[40].fetch_add(2, Ordering::Relaxed);
        let mut now = GridCounts::default();
        now.add(&cells, &AtomicU64::new(7 + 96));
        let histogram = now.since(&before).unwrap();
        assert_eq!(histogram.into_parts().positive, [(40, 2)]);
    }
}
