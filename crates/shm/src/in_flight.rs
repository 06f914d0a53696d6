//! Operations in flight: what has begun and has not ended, so that what is stuck is seen before it ends, or after the process died.

use crate::cells::{Access, Alone, Shared, Slot, Table};
use crate::counter;
use crate::here::{self, Entered, Lane};
use crate::layout::{SLOT_BYTES, SLOTS_MAX, TAGS_MAX};
use crate::metric::Cells;
use crate::sync::Ordering;

/// A table of operations: each thread has 16,384 slots of its own. What finds none is counted all the same.
#[derive(Clone, Debug)]
pub struct InFlight {
    pub(crate) cells: Cells,
}

/// The value of a tag, made beforehand: a number that stands for a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub(crate) u32);

impl Tag {
    /// The tag of a text; each different one takes room in the file, for ever: a device, a route, not a request's id.
    pub fn new(text: &str) -> crate::Result<Tag> {
        Ok(Tag(here::open()?.text(text)? as u32))
    }
}

/// Where in a table operations are counted that ended.
const ENDED: usize = std::mem::offset_of!(Table, ended);
/// Slots for which room is taken at once: a page.
const STEP: usize = 128;
/// Slots that are looked at before room for more is taken.
const LOOKS: usize = 64;

impl InFlight {
    /// An operation begins, now; it ends when what is returned is dropped, on whichever thread.
    #[inline]
    pub fn begin(&self, number: u64, tags: &[Tag]) -> Operation {
        self.begin_at(clock::now(), number, tags)
    }

    /// An operation began at a time that is known: nanoseconds of `clock::now`.
    pub fn begin_at(&self, start_ns: u64, number: u64, tags: &[Tag]) -> Operation {
        let (small, large) = self.cells.both();
        let mut words = [0; TAGS_MAX / 2];
        for (at, tag) in tags.iter().take(TAGS_MAX).enumerate() {
            words[at / 2] |= u64::from(tag.0) << (32 * (at % 2));
        }
        let (table, taken) = match here::lane(small) {
            Some(lane) => begin::<Alone>(lane, small, large),
            None => match here::enter(small) {
                Some(Entered::Own(lane)) => begin::<Alone>(lane, small, large),
                Some(Entered::Shared(lane)) => begin::<Shared>(lane, small, large),
                // It was not counted as begun, and must not be as ended.
                None => {
                    let small = crate::layout::SMALL_BYTES;
                    return Operation { small, held: None, process: here::process() };
                }
            },
        };
        let held = taken.map(|(at, slot)| {
            slot.fill(start_ns, number, words);
            (table, at, slot)
        });
        Operation { small, held, process: here::process() }
    }
}

fn begin<A: Access>(
    lane: Lane,
    small: usize,
    large: usize,
) -> (&'static Table, Option<(usize, &'static Slot)>) {
    let table = lane.small::<Table>(small);
    A::add(&table.started, 1);
    let slot_at = |at: usize| lane.large::<Slot>(large + at * SLOT_BYTES);
    let slots = (table.slots.load(Ordering::Relaxed) as usize).min(SLOTS_MAX);
    let hint = (table.hint.load(Ordering::Relaxed) as usize).min(slots);
    let near = (hint + LOOKS).min(slots);
    let mut taken = Table::take(hint, near, slot_at);
    let is_more_wanted = taken.is_none() && slots < SLOTS_MAX;
    if is_more_wanted && lane.make_room(large + slots * SLOT_BYTES, STEP * SLOT_BYTES) {
        table.slots.fetch_max((slots + STEP) as u64, Ordering::Release);
        taken = Table::take(slots, slots + STEP, slot_at);
    }
    // All have room that may have it: one that is free is looked for among them all.
    let taken = taken
        .or_else(|| Table::take(near, slots, slot_at))
        .or_else(|| Table::take(0, hint, slot_at));
    match taken {
        Some((at, _)) => table.hint.store(at as u64 + 1, Ordering::Relaxed),
        None => {
            A::add(&table.unlisted, 1);
        }
    }
    (table, taken)
}

/// An operation that has begun. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the operation ends when this is dropped"]
pub struct Operation {
    pub(crate) small: usize,
    pub(crate) held: Option<(&'static Table, usize, &'static Slot)>,
    /// Of which process it is: in one that was forked off meanwhile, its copy ends nothing.
    pub(crate) process: u32,
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.process != here::process() {
            return;
        }
        if let Some((table, at, slot)) = self.held.take() {
            slot.free();
            table.hint.store(at as u64, Ordering::Relaxed);
        }
        // In the lane of whoever ends it.
        counter::add(self.small + ENDED, 1);
    }
}
