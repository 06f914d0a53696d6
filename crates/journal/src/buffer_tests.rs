//! Tests of the buffer. The same scenarios run under loom, which tries all interleavings, and on
//! real threads.

use std::time::Duration;

use super::append_lock::CONTENDED;
use super::*;
use crate::level::BatchIdentity;
use crate::ring::AppendRequest;

#[cfg(loom)]
use loom::{sync::Arc, thread};
#[cfg(not(loom))]
use std::{sync::Arc, thread};

const ID: u128 = 5;

struct DeadProcess;
impl ProcessLiveness for DeadProcess {
    fn with_dead(&self, _slot: u32, then: &mut dyn FnMut()) {
        then();
    }
}

struct LiveProcess;
impl ProcessLiveness for LiveProcess {
    fn with_dead(&self, _slot: u32, _then: &mut dyn FnMut()) {}
}

fn lock<'a>(buffer: &'a Buffer, slot: u32, alive: &dyn ProcessLiveness) -> AppendLockGuard<'a> {
    buffer.lock(slot, alive, Duration::MAX).expect("nobody has stopped the owner")
}

/// A buffer that holds a few one-word entries.
fn buffer(entries: usize) -> Buffer {
    let size = BufferLayout { ring_words: (entries * 4).next_power_of_two(), sets: 1 };
    #[cfg(loom)]
    let memory = Memory::new(size.words());
    #[cfg(not(loom))]
    let memory = Memory::heap(size.file_bytes()).unwrap();
    let buffer = Buffer::new(memory, size, ID);
    let mark = FlushMark { ring: 0, position: 0, segment: 0, offset: 64 };
    buffer.reset(ID, &BufferHeader { mark, tail: 0, next: 0, first: 0, boot: 1 });
    buffer
}

fn append(body: &[u8], sequence: Option<u64>) -> AppendRequest<'_> {
    let identity = sequence.map(|sequence| BatchIdentity { producer: 1, epoch: 1, sequence });
    AppendRequest { identity, records: 1, body, is_packed: false, time: 0 }
}

fn put(buffer: &Buffer, slot: u32, body: u8) -> u64 {
    let (appended, tail) = lock(buffer, slot, &LiveProcess).append(&append(&[body], None));
    buffer.wake_after_append(tail);
    match appended {
        AppendOutcome::At(first) => first,
        other => panic!("{other:?}"),
    }
}

/// Takes one entry out of the ring, like the flusher.
fn take_entry(buffer: &Buffer) -> Option<(u64, u8)> {
    let mark = buffer.mark();
    let (tail, _) = buffer.end();
    let mut body = Vec::new();
    if mark.ring == tail {
        return None;
    }
    let entry =
        buffer.ring().entry(mark.ring, tail, &mut body).expect("an entry below the tail is whole");
    let mark = FlushMark { ring: mark.ring + entry.words, position: entry.first + 1, ..mark };
    buffer.publish(mark, lock(buffer, 9, &LiveProcess));
    Some((entry.first, body[0]))
}

#[track_caller]
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    #[cfg(loom)]
    loom::model(scenario);
    #[cfg(not(loom))]
    for _ in 0..200 {
        scenario();
    }
}

#[test]
fn loom_appenders_get_distinct_positions() {
    model(|| {
        let buffer = Arc::new(buffer(4));
        let other = Arc::clone(&buffer);
        let appender = thread::spawn(move || put(&other, 0, 10));
        let mine = put(&buffer, 1, 11);
        let early = take_entry(&buffer);
        let theirs = appender.join().unwrap();
        assert_eq!(mine + theirs, 1);
        let mut all: Vec<_> = early.into_iter().collect();
        while let Some(entry) = take_entry(&buffer) {
            all.push(entry);
        }
        let mut expected = [(mine, 11), (theirs, 10)];
        expected.sort_unstable();
        assert_eq!(all, expected);
    });
}

#[test]
fn loom_ring_reader_detects_overwrite() {
    model(|| {
        let buffer = Arc::new(buffer(2));
        put(&buffer, 0, 10);
        let other = Arc::clone(&buffer);
        // Frees the entry and overwrites its words.
        let writer = thread::spawn(move || {
            assert_eq!(take_entry(&other), Some((0, 10)));
            put(&other, 0, 11);
            put(&other, 0, 12);
        });
        let mark = buffer.mark();
        let (tail, _) = buffer.end();
        let mut body = Vec::new();
        let read = buffer.ring().entry(mark.ring, tail, &mut body);
        if buffer.mark() == mark {
            // Nothing was freed during the read: entries below the tail are present.
            if mark.ring < tail {
                let entry = read.expect("it has not moved on");
                assert_eq!(u64::from(body[0]), entry.first + 10);
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_a_mark_is_never_torn() {
    model(|| {
        let buffer = Arc::new(buffer(2));
        let all = |i| FlushMark { ring: i, position: i, segment: i, offset: i };
        buffer.store_mark(all(0));
        let other = Arc::clone(&buffer);
        let flusher = thread::spawn(move || (1..4).for_each(|i| other.store_mark(all(i))));
        let mark = buffer.mark();
        assert_eq!(mark, all(mark.ring));
        flusher.join().unwrap();
    });
}

#[test]
fn loom_a_sleeping_reader_is_woken() {
    model(|| {
        let buffer = Arc::new(buffer(2));
        let other = Arc::clone(&buffer);
        let reader = thread::spawn(move || {
            while other.end().1 == 0 {
                other.sleep_reader(None, &mut || other.end().1 > 0);
            }
        });
        put(&buffer, 0, 10);
        reader.join().unwrap();
    });
}

#[test]
fn loom_an_idle_flusher_is_woken() {
    model(|| {
        let buffer = Arc::new(buffer(2));
        let other = Arc::clone(&buffer);
        let flusher = thread::spawn(move || {
            loop {
                if let Some(entry) = take_entry(&other) {
                    break entry;
                }
                other.sleep_flusher(true, None, &mut || other.end().0 > 0);
            }
        });
        put(&buffer, 0, 10);
        assert_eq!(flusher.join().unwrap(), (0, 10));
    });
}

#[test]
fn loom_dead_owners_lock_is_taken_once() {
    model(|| {
        let buffer = Arc::new(buffer(4));
        // Dies with the lock after writing its entry and before anything else.
        let guard = lock(&buffer, 7, &LiveProcess);
        let (appended, _) = guard.append(&append(&[10], Some(3)));
        assert_eq!(appended, AppendOutcome::At(0));
        std::mem::forget(guard);
        buffer.memory[word::NEXT].store(0, SeqCst);
        for at in HEADER_WORDS..buffer.ring_start {
            buffer.memory[at].store(0, SeqCst);
        }
        // Only process seven is dead: the two waiters take turns.
        struct ProcessSeven;
        impl ProcessLiveness for ProcessSeven {
            fn with_dead(&self, slot: u32, then: &mut dyn FnMut()) {
                if slot == 7 {
                    then();
                }
            }
        }
        let other = Arc::clone(&buffer);
        let waiter =
            thread::spawn(move || lock(&other, 1, &ProcessSeven).append(&append(&[11], None)).0);
        let mine = lock(&buffer, 2, &ProcessSeven).append(&append(&[12], Some(3))).0;
        assert_eq!(mine, AppendOutcome::Duplicate(1), "the dead one's batch is known");
        assert_eq!(waiter.join().unwrap(), AppendOutcome::At(1));
        assert_eq!(take_entry(&buffer), Some((0, 10)));
        assert_eq!(take_entry(&buffer), Some((1, 11)));
    });
}

#[test]
fn lock_of_a_reused_slot_is_free() {
    let buffer = buffer(4);
    std::mem::forget(lock(&buffer, 3, &DeadProcess));
    buffer.begin_slot(3);
    assert_eq!(put(&buffer, 0, 1), 0);
}

#[cfg(not(loom))]
mod ring_tests {
    use super::*;

    fn drain_entries(buffer: &Buffer) -> Vec<(u64, u8)> {
        std::iter::from_fn(|| take_entry(buffer)).collect()
    }

    #[test]
    fn miri_entries_go_around_the_ring() {
        let buffer = buffer(4);
        for i in 0..20 {
            assert_eq!(put(&buffer, 0, i as u8), i);
            assert_eq!(take_entry(&buffer), Some((i, i as u8)));
        }
        let body = [7; 30];
        let (first, _) = lock(&buffer, 0, &LiveProcess).append(&append(&body[..17], Some(1)));
        assert_eq!(first, AppendOutcome::TooLarge, "more than half the ring");
    }

    #[test]
    fn full_ring_accepts_again_after_a_flush() {
        let buffer = buffer(4);
        let try_put = |body| lock(&buffer, 0, &LiveProcess).append(&append(&[body], None)).0;
        assert!((0..4).all(|i| try_put(i) == AppendOutcome::At(u64::from(i))));
        assert_eq!(try_put(9), AppendOutcome::NoSpace);
        assert_eq!(take_entry(&buffer), Some((0, 0)));
        assert_eq!(try_put(9), AppendOutcome::At(4));
        assert_eq!(drain_entries(&buffer), [(1, 1), (2, 2), (3, 3), (4, 9)]);
    }

    /// Any process can corrupt the header, which is shared memory.
    #[test]
    fn a_damaged_header_rejects_appends_and_overflows_nothing() {
        let buffer = buffer(4);
        let try_put = || lock(&buffer, 0, &LiveProcess).append(&append(b"x", None)).0;
        buffer.memory[word::NEXT].store(u64::MAX, SeqCst);
        assert_eq!(try_put(), AppendOutcome::Rejected(FAIL_STOP), "no positions are left");
        assert_eq!(buffer.end().0, 0, "nothing was written");
        buffer.memory[word::NEXT].store(0, SeqCst);
        assert_eq!(try_put(), AppendOutcome::At(0));
        buffer.store_mark(FlushMark { ring: 100, ..FlushMark::default() });
        assert_eq!(try_put(), AppendOutcome::NoSpace, "the tail lies before the mark");
        assert_eq!((buffer.used_bytes(), buffer.entries_after(buffer.mark())), (0, None));
    }

    #[test]
    fn a_damaged_lock_word_without_an_owner_is_taken_over() {
        let buffer = buffer(4);
        buffer.memory.futex_word(LOCK).store(CONTENDED, SeqCst);
        drop(lock(&buffer, 0, &DeadProcess));
        assert_eq!(buffer.memory.futex_word(LOCK).load(SeqCst), 0);
    }

    #[test]
    fn duplicate_is_detected_until_eviction() {
        let buffer = buffer(16);
        let put = |producer, sequence| {
            let identity = Some(BatchIdentity { producer, epoch: 1, sequence });
            let append =
                AppendRequest { identity, records: 1, body: b"x", is_packed: false, time: 0 };
            lock(&buffer, 0, &LiveProcess).append(&append).0
        };
        assert_eq!(put(1, 5), AppendOutcome::At(0));
        assert_eq!(put(1, 5), AppendOutcome::Duplicate(1));
        assert_eq!(put(1, 4), AppendOutcome::Duplicate(1));
        assert_eq!(put(1, 6), AppendOutcome::At(1));
        // Seven more fit in its set; the eighth evicts the longest idle.
        for producer in 2..10 {
            assert!(matches!(put(producer, 0), AppendOutcome::At(_)));
            while take_entry(&buffer).is_some() {}
        }
        assert!(matches!(put(9, 0), AppendOutcome::Duplicate(_)));
        assert!(matches!(put(1, 6), AppendOutcome::At(_)), "forgotten");
    }

    #[test]
    fn entries_are_found_at_the_header_offset() {
        let buffer = buffer(8);
        for i in 0..13 {
            put(&buffer, 0, i);
            if i < 9 {
                take_entry(&buffer);
            }
        }
        let (begin, end) = buffer.ring().recover_entries(9, 0).0.unwrap();
        assert_eq!(end - begin, 4 * 4);
        // One entry is corrupt: its neighbours are found.
        buffer.ring().word(begin + 4 + 3).fetch_xor(1 << 1, SeqCst);
        assert_eq!(
            buffer.ring().recover_entries(9, 0),
            (Some((begin, end)), 3),
            "the damaged one is erased"
        );
        let mut body = Vec::new();
        assert_eq!(buffer.ring().entry(begin + 4, end, &mut body), None);
        assert!(body.is_empty());
        assert_eq!(buffer.ring().recover_entries(13, 0), (None, 3 * 3));
        assert_eq!(buffer.ring().recover_entries(0, 0), (None, 0));
    }

    #[test]
    fn any_flipped_bit_of_an_entry_is_detected() {
        let buffer = buffer(8);
        let (appended, tail) =
            lock(&buffer, 0, &LiveProcess).append(&append(b"0123456789", Some(7)));
        assert_eq!(appended, AppendOutcome::At(0));
        let read = || buffer.ring().entry(0, tail, &mut Vec::new());
        assert!(read().is_some());
        // After the body, the last word is padding.
        for bit in (0..tail * 64).filter(|bit| bit / 64 + 1 < tail || bit % 64 < 16) {
            buffer.ring().word(bit / 64).fetch_xor(1 << (bit % 64), SeqCst);
            assert_eq!(read(), None, "bit {bit}");
            buffer.ring().word(bit / 64).fetch_xor(1 << (bit % 64), SeqCst);
        }
    }
}
