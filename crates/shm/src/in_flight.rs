//! In-flight operations: started and not finished.

use crate::cells::{CellAccess, InFlightCells, MultiWriter, OperationSlot, SingleWriter};
use crate::counter;
use crate::layout::{SLOT_BYTES, SLOTS_MAX, TAGS_MAX};
use crate::metric::CellLocation;
use crate::sync::Ordering;
use crate::thread_lane::{self, Lane, SlowPathOutcome};

/// Table of in-flight operations: each thread has 16,384 slots of its own. An operation without a
/// slot is counted too.
#[derive(Clone, Debug)]
pub struct InFlight {
    pub(crate) cells: CellLocation,
}

/// Interned tag value: a number that refers to a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub(crate) u32);

impl Tag {
    /// Interns a text. Each distinct text takes space in the file for good: use it for a device or
    /// a route, not for a request id.
    pub fn new(text: &str) -> crate::Result<Tag> {
        Ok(Tag(thread_lane::open()?.intern(text)? as u32))
    }
}

/// Offset of the counter of ended operations.
const ENDED: usize = std::mem::offset_of!(InFlightCells, ended);
/// Slots reserved at once: a page.
const SLOTS_PER_PAGE: usize = 128;
/// Slots probed before more space is reserved.
const PROBES_MAX: usize = 64;

impl InFlight {
    /// Starts an operation now; it ends when the result is dropped, on any thread.
    #[inline]
    pub fn begin(&self, number: u64, tags: &[Tag]) -> Operation {
        self.begin_at(clock::now(), number, tags)
    }

    /// Starts an operation at a given time: nanoseconds of `clock::now`.
    pub fn begin_at(&self, start_ns: u64, number: u64, tags: &[Tag]) -> Operation {
        let (small, large) = self.cells.offsets();
        let mut words = [0; TAGS_MAX / 2];
        for (at, tag) in tags.iter().take(TAGS_MAX).enumerate() {
            words[at / 2] |= u64::from(tag.0) << (32 * (at % 2));
        }
        let (table, taken) = match thread_lane::lane(small) {
            Some(lane) => claim_slot::<SingleWriter>(lane, small, large),
            None => match thread_lane::slow_path(small) {
                Some(SlowPathOutcome::Own(lane)) => claim_slot::<SingleWriter>(lane, small, large),
                Some(SlowPathOutcome::Shared(lane)) => {
                    claim_slot::<MultiWriter>(lane, small, large)
                }
                // The start was not counted, so the end must not be counted.
                None => {
                    let small = crate::layout::SMALL_BYTES;
                    return Operation {
                        small,
                        slot: None,
                        fork_generation: thread_lane::fork_generation(),
                    };
                }
            },
        };
        let slot_guard = taken.map(|(at, slot)| {
            slot.fill(start_ns, number, words);
            (table, at, slot)
        });
        Operation { small, slot: slot_guard, fork_generation: thread_lane::fork_generation() }
    }
}

fn claim_slot<A: CellAccess>(
    lane: Lane,
    small: usize,
    large: usize,
) -> (&'static InFlightCells, Option<(usize, &'static OperationSlot)>) {
    let table = lane.small::<InFlightCells>(small);
    A::add(&table.started, 1);
    let slot_at = |at: usize| lane.large::<OperationSlot>(large + at * SLOT_BYTES);
    let slots = (table.slots.load(Ordering::Relaxed) as usize).min(SLOTS_MAX);
    let hint = (table.hint.load(Ordering::Relaxed) as usize).min(slots);
    let near = (hint + PROBES_MAX).min(slots);
    let mut taken = InFlightCells::claim_slot(hint, near, slot_at);
    let is_more_wanted = taken.is_none() && slots < SLOTS_MAX;
    if is_more_wanted && lane.reserve(large + slots * SLOT_BYTES, SLOTS_PER_PAGE * SLOT_BYTES) {
        table.slots.fetch_max((slots + SLOTS_PER_PAGE) as u64, Ordering::Release);
        taken = InFlightCells::claim_slot(slots, slots + SLOTS_PER_PAGE, slot_at);
    }
    // All slots have space: search all of them for a free one.
    let taken = taken
        .or_else(|| InFlightCells::claim_slot(near, slots, slot_at))
        .or_else(|| InFlightCells::claim_slot(0, hint, slot_at));
    match taken {
        Some((at, _)) => table.hint.store(at as u64 + 1, Ordering::Relaxed),
        None => {
            A::add(&table.untracked, 1);
        }
    }
    (table, taken)
}

/// In-flight operation. Drop ends it.
#[derive(Debug)]
#[must_use = "the operation ends when this is dropped"]
pub struct Operation {
    pub(crate) small: usize,
    pub(crate) slot: Option<(&'static InFlightCells, usize, &'static OperationSlot)>,
    /// Process that started it: the copy in a forked process ends nothing.
    pub(crate) fork_generation: u32,
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.fork_generation != thread_lane::fork_generation() {
            return;
        }
        if let Some((table, at, slot)) = self.slot.take() {
            slot.release();
            table.hint.store(at as u64, Ordering::Relaxed);
        }
        // Counted in the lane of the thread that ends it.
        counter::add(self.small + ENDED, 1);
    }
}
