//! Interleavings of a record, a slot, a text, an entry with a reader; under loom all of them.

use std::sync::Arc;

use super::*;

impl Distribution {
    fn new() -> Distribution {
        let [begun, zero, sum_low, sum_high, not_min, max, touched, reserved] = words();
        Distribution { begun, zero, sum_low, sum_high, not_min, max, touched, reserved }
    }

    fn cell(&self, offset: usize) -> u64 {
        let Distribution { begun, zero, sum_low, sum_high, not_min, max, touched, .. } = self;
        // Those of loom are larger than words.
        let cells = [
            (offset_of!(Distribution, begun), begun),
            (offset_of!(Distribution, zero), zero),
            (offset_of!(Distribution, sum_low), sum_low),
            (offset_of!(Distribution, sum_high), sum_high),
            (offset_of!(Distribution, not_min), not_min),
            (offset_of!(Distribution, max), max),
            (offset_of!(Distribution, touched), touched),
        ];
        let (_, cell) = cells.iter().find(|(at, _)| *at == offset).expect("a cell");
        cell.load(Ordering::Acquire)
    }
}

fn words<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

/// A histogram's cells, and two buckets: of values up to 9, and above.
struct Cells {
    side: Distribution,
    buckets: [AtomicU64; 2],
}

impl Cells {
    fn new() -> Cells {
        Cells { side: Distribution::new(), buckets: words() }
    }

    fn record<A: Access>(&self, value: u64) {
        let bucket = match value {
            0 => &self.side.zero,
            _ => &self.buckets[usize::from(value > 9)],
        };
        self.side.record::<A>(bucket, value);
    }

    /// Counts of the buckets, and the rest.
    fn read(&self) -> ([u64; 2], Side) {
        let mut counts = [0; 2];
        let side = read_distribution(
            |offset| Ok::<u64, ()>(self.side.cell(offset)),
            |_| {
                counts = std::array::from_fn(|at| self.buckets[at].load(Ordering::Acquire));
                Ok(counts[0] + counts[1])
            },
        );
        (counts, side.expect("nothing fails"))
    }
}

/// What is said to be exact must be what these counts allow: some of the values in the order in which they were recorded.
fn check_read(cells: &Cells, values: &[u64]) {
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
fn miri_what_is_recorded_is_read() {
    let cells = Cells::new();
    let values = [5, 0, u64::MAX, 7, u64::MAX];
    for (count, value) in values.iter().enumerate() {
        check_read(&cells, &values[..count]);
        cells.record::<Alone>(*value);
    }
    check_read(&cells, &values);
    let (counts, side) = cells.read();
    assert_eq!((counts, side.zero, side.is_exact), ([2, 2], 1, true));
    assert_eq!(side.sum, 12 + 2 * u128::from(u64::MAX));
}

#[cfg(not(loom))]
#[test]
fn miri_a_reader_beside_a_writer_believes_nothing_false() {
    let cells = Arc::new(Cells::new());
    let values: Vec<u64> = (0..40).map(|n| n * 7 % 23).collect();
    let writer = {
        let (cells, values) = (Arc::clone(&cells), values.clone());
        std::thread::spawn(move || values.iter().for_each(|&value| cells.record::<Alone>(value)))
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
fn miri_a_slot_is_taken_once() {
    let slots: [Slot; 3] = std::array::from_fn(|_| slot());
    let take = |from, to| Table::take(from, to, |at| &slots[at]).map(|(at, _)| at);
    assert_eq!([take(1, 3), take(1, 3), take(1, 3), take(0, 3)], [Some(1), Some(2), None, Some(0)]);
    slots[1].fill(0, 9, [1, 2]);
    assert!(slots[1].start.load(Ordering::Relaxed) > crate::layout::FILLING, "an operation");
    slots[1].free();
    assert_eq!(take(0, 3), Some(1));
}

#[cfg(not(loom))]
#[test]
fn miri_a_text_is_the_one_that_was_said_last() {
    let (current, buffers) = (AtomicU64::new(0), [words::<2>(), words::<2>()]);
    assert_eq!(said(&current, &buffers), Some([0, 0]));
    for text in 1..4 {
        say(&current, &buffers, text);
        assert_eq!(said(&current, &buffers), Some([text, text]));
    }
}

/// A text of two words, which are the same.
fn say(current: &AtomicU64, buffers: &[[AtomicU64; 2]; 2], text: u64) {
    write_text(current, |buffer| {
        buffers[buffer].iter().for_each(|word| word.store(text, Ordering::Relaxed));
    });
}

fn said(current: &AtomicU64, buffers: &[[AtomicU64; 2]; 2]) -> Option<[u64; 2]> {
    let current = || Ok::<u64, ()>(current.load(Ordering::Acquire));
    let read =
        |buffer: usize| Ok(buffers[buffer].each_ref().map(|word| word.load(Ordering::Acquire)));
    read_text(current, read).expect("nothing fails")
}

fn slot() -> Slot {
    Slot { start: AtomicU64::new(0), number: AtomicU64::new(0), tags: words() }
}

#[cfg(loom)]
mod loom_tests {
    use loom::thread;

    use super::*;

    #[test]
    fn loom_what_is_said_to_be_exact_is() {
        loom::model(|| {
            let cells = Arc::new(Cells::new());
            let values = [4, 12];
            let writer = {
                let cells = Arc::clone(&cells);
                thread::spawn(move || values.iter().for_each(|&value| cells.record::<Alone>(value)))
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
            let cells = Arc::new(Cells::new());
            let other = {
                let cells = Arc::clone(&cells);
                thread::spawn(move || cells.record::<Shared>(4))
            };
            cells.record::<Shared>(12);
            other.join().unwrap();
            let (counts, side) = cells.read();
            assert_eq!((counts, side.sum, side.min, side.max), ([1, 1], 16, 4, 12));
            assert!(side.is_exact);
        });
    }

    #[test]
    fn loom_what_a_slot_shows_twice_was_there() {
        loom::model(|| {
            let slot = Arc::new(slot());
            slot.fill(5, 5, [5, 5]);
            let writer = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    slot.free();
                    assert!(slot.take());
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
    fn loom_a_text_that_is_read_was_said() {
        loom::model(|| {
            let text = Arc::new((AtomicU64::new(0), [words::<2>(), words::<2>()]));
            let writer = {
                let text = Arc::clone(&text);
                // The second one goes where the reader may be.
                thread::spawn(move || (1..3).for_each(|n| say(&text.0, &text.1, n)))
            };
            if let Some([first, second]) = said(&text.0, &text.1) {
                assert_eq!(first, second, "a half of each");
            }
            writer.join().unwrap();
            assert_eq!(said(&text.0, &text.1), Some([2, 2]));
        });
    }

    #[test]
    fn loom_an_entry_that_is_seen_is_whole() {
        loom::model(|| {
            let (entry, count) = (Arc::new(Words(words::<8>())), Arc::new(AtomicU64::new(0)));
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
