//! Interleavings of a record, a slot, a text and an entry with a reader; under loom all of them.

use std::sync::Arc;

use super::*;

impl HistogramCells {
    fn new() -> HistogramCells {
        let [begun, zero, sum_low, sum_high, not_min, max, touched, reserved] = words();
        HistogramCells { begun, zero, sum_low, sum_high, not_min, max, touched, reserved }
    }

    fn cell(&self, offset: usize) -> u64 {
        let HistogramCells { begun, zero, sum_low, sum_high, not_min, max, touched, .. } = self;
        // Atomics of loom are larger than words.
        let cells = [
            (offset_of!(HistogramCells, begun), begun),
            (offset_of!(HistogramCells, zero), zero),
            (offset_of!(HistogramCells, sum_low), sum_low),
            (offset_of!(HistogramCells, sum_high), sum_high),
            (offset_of!(HistogramCells, not_min), not_min),
            (offset_of!(HistogramCells, max), max),
            (offset_of!(HistogramCells, touched), touched),
        ];
        let (_, cell) = cells.iter().find(|(at, _)| *at == offset).expect("a cell");
        cell.load(Ordering::Acquire)
    }
}

fn words<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

/// Cells of a histogram, and two buckets: values up to 9, and above.
struct TestHistogram {
    cells: HistogramCells,
    buckets: [AtomicU64; 2],
}

impl TestHistogram {
    fn new() -> TestHistogram {
        TestHistogram { cells: HistogramCells::new(), buckets: words() }
    }

    fn record<A: CellAccess>(&self, value: u64) {
        let bucket = match value {
            0 => &self.cells.zero,
            _ => &self.buckets[usize::from(value > 9)],
        };
        self.cells.record::<A>(bucket, value);
    }

    /// Counts of the buckets, and the summary.
    fn read(&self) -> ([u64; 2], HistogramSummary) {
        let mut counts = [0; 2];
        let side = read_distribution(
            |offset| Ok::<u64, ()>(self.cells.cell(offset)),
            |_| {
                counts = std::array::from_fn(|at| self.buckets[at].load(Ordering::Acquire));
                Ok(counts[0] + counts[1])
            },
        );
        (counts, side.expect("nothing fails"))
    }
}

/// An exact summary must match the counts: some of the values in the order in which they were
/// recorded.
fn check_read(cells: &TestHistogram, values: &[u64]) {
    let (counts, side) = cells.read();
    if !side.is_exact {
        return;
    }
    let count = (counts[0] + counts[1] + side.zero) as usize;
    let recorded = &values[..count];
    assert_eq!(side.sum, recorded.iter().map(|&value| u128::from(value)).sum::<u128>());
    assert_eq!(side.max, recorded.iter().copied().max().unwrap_or(0));
    assert_eq!(side.min, recorded.iter().copied().min().unwrap_or(u64::MAX));
}

#[cfg(not(loom))]
#[test]
fn miri_recorded_values_are_read() {
    let cells = TestHistogram::new();
    let values = [5, 0, u64::MAX, 7, u64::MAX];
    for (count, value) in values.iter().enumerate() {
        check_read(&cells, &values[..count]);
        cells.record::<SingleWriter>(*value);
    }
    check_read(&cells, &values);
    let (counts, side) = cells.read();
    assert_eq!((counts, side.zero, side.is_exact), ([2, 2], 1, true));
    assert_eq!(side.sum, 12 + 2 * u128::from(u64::MAX));
}

#[cfg(not(loom))]
#[test]
fn miri_concurrent_reader_is_never_wrong() {
    let cells = Arc::new(TestHistogram::new());
    let values: Vec<u64> = (0..40).map(|n| n * 7 % 23).collect();
    let writer = {
        let (cells, values) = (Arc::clone(&cells), values.clone());
        std::thread::spawn(move || {
            values.iter().for_each(|&value| cells.record::<SingleWriter>(value))
        })
    };
    for _ in 0..20 {
        check_read(&cells, &values);
    }
    writer.join().expect("the writer");
    check_read(&cells, &values);
    assert!(cells.read().1.is_exact);
}

#[cfg(not(loom))]
#[test]
fn miri_slot_is_claimed_once() {
    let slots: [OperationSlot; 3] = std::array::from_fn(|_| slot());
    let take = |from, to| InFlightCells::claim_slot(from, to, |at| &slots[at]).map(|(at, _)| at);
    assert_eq!([take(1, 3), take(1, 3), take(1, 3), take(0, 3)], [Some(1), Some(2), None, Some(0)]);
    slots[1].fill(0, 9, [1, 2]);
    assert!(slots[1].start.load(Ordering::Relaxed) > crate::layout::FILLING, "an operation");
    slots[1].release();
    assert_eq!(take(0, 3), Some(1));
}

#[cfg(not(loom))]
#[test]
fn miri_last_text_is_read() {
    let (current, buffers) = (AtomicU64::new(0), [words::<2>(), words::<2>()]);
    assert_eq!(read_words(&current, &buffers), Some([0, 0]));
    for text in 1..4 {
        write_words(&current, &buffers, text);
        assert_eq!(read_words(&current, &buffers), Some([text, text]));
    }
}

/// A text of two equal words.
fn write_words(current: &AtomicU64, buffers: &[[AtomicU64; 2]; 2], text: u64) {
    write_text(current, |buffer| {
        buffers[buffer].iter().for_each(|word| word.store(text, Ordering::Relaxed));
    });
}

fn read_words(current: &AtomicU64, buffers: &[[AtomicU64; 2]; 2]) -> Option<[u64; 2]> {
    let current = || Ok::<u64, ()>(current.load(Ordering::Acquire));
    let read =
        |buffer: usize| Ok(buffers[buffer].each_ref().map(|word| word.load(Ordering::Acquire)));
    read_text(current, read).expect("nothing fails")
}

fn slot() -> OperationSlot {
    OperationSlot { start: AtomicU64::new(0), number: AtomicU64::new(0), tags: words() }
}

#[cfg(loom)]
mod loom_tests {
    use loom::thread;

    use super::*;

    #[test]
    fn loom_exact_summaries_are_exact() {
        loom::model(|| {
            let cells = Arc::new(TestHistogram::new());
            let values = [4, 12];
            let writer = {
                let cells = Arc::clone(&cells);
                thread::spawn(move || {
                    values.iter().for_each(|&value| cells.record::<SingleWriter>(value))
                })
            };
            check_read(&cells, &values);
            writer.join().unwrap();
            check_read(&cells, &values);
            assert!(cells.read().1.is_exact);
        });
    }

    #[test]
    fn loom_two_threads_in_the_shared_lane_lose_nothing() {
        loom::model(|| {
            let cells = Arc::new(TestHistogram::new());
            let other = {
                let cells = Arc::clone(&cells);
                thread::spawn(move || cells.record::<MultiWriter>(4))
            };
            cells.record::<MultiWriter>(12);
            other.join().unwrap();
            let (counts, side) = cells.read();
            assert_eq!((counts, side.sum, side.min, side.max), ([1, 1], 16, 4, 12));
            assert!(side.is_exact);
        });
    }

    #[test]
    fn loom_slot_read_twice_was_written() {
        loom::model(|| {
            let slot = Arc::new(slot());
            slot.fill(5, 5, [5, 5]);
            let writer = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    slot.release();
                    assert!(slot.try_claim());
                    slot.fill(7, 7, [7, 7]);
                })
            };
            let read = || {
                [&slot.start, &slot.number, &slot.tags[0], &slot.tags[1]]
                    .map(|word| word.load(Ordering::Acquire))
            };
            let (first, second) = (read(), read());
            if first == second && first[0] > crate::layout::FILLING {
                assert!(first == [5; 4] || first == [7; 4], "{first:?} was never there");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_text_read_was_written() {
        loom::model(|| {
            let text = Arc::new((AtomicU64::new(0), [words::<2>(), words::<2>()]));
            let writer = {
                let text = Arc::clone(&text);
                // The second text goes to the buffer that the reader may be reading.
                thread::spawn(move || (1..3).for_each(|n| write_words(&text.0, &text.1, n)))
            };
            if let Some([first, second]) = read_words(&text.0, &text.1) {
                assert_eq!(first, second, "a half of each");
            }
            writer.join().unwrap();
            assert_eq!(read_words(&text.0, &text.1), Some([2, 2]));
        });
    }

    #[test]
    fn loom_visible_entry_is_complete() {
        loom::model(|| {
            let (entry, count) = (Arc::new(U64Cells(words::<8>())), Arc::new(AtomicU64::new(0)));
            let writer = {
                let (entry, count) = (Arc::clone(&entry), Arc::clone(&count));
                thread::spawn(move || publish(&entry, &[1, 2, 3, 4, 5, 6, 7, 8], &count, 0))
            };
            if count.load(Ordering::Acquire) == 1 || entry.0[0].load(Ordering::Acquire) != 0 {
                let read: Vec<u64> =
                    entry.0.iter().map(|word| word.load(Ordering::Acquire)).collect();
                assert_eq!(read, [1, 2, 3, 4, 5, 6, 7, 8]);
            }
            writer.join().unwrap();
        });
    }
}
