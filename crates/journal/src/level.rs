//! Durability levels and acknowledgements.

use std::fmt;
use std::ops::Range;

/// Durability level of an acknowledged record. Ordered: each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing beyond this process is asked for. Here an append always reaches `Process`.
    Memory,
    /// In memory or a page cache that belongs to the kernel: survives `kill -9`, not a power cut.
    Process,
    /// On disk, synchronised: survives a power cut.
    Disk,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Memory => "memory",
            Level::Process => "process",
            Level::Disk => "disk",
        })
    }
}

/// Batch identity (producer, epoch, sequence) for deduplication.
///
/// A producer sends the sequences of one boot in rising order and does not go on to the next before
/// the last is acknowledged at the level it needs; gaps are allowed. A sequence at or below the
/// last accepted one is a repeat. (Of two batches that were both only in memory, the power may take
/// the first and leave the second: who asked for no more is then told that the first is a repeat.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchIdentity {
    /// The producer's number, its own for as long as it exists.
    pub producer: u64,
    /// Which start of the producer this is: another number after each restart.
    pub epoch: u64,
    /// The batch's number within the boot.
    pub sequence: u64,
}

/// Append acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an acknowledgement says which level was reached"]
pub struct Ack {
    /// The records' positions. Of a repeat, the empty range at the end of what was accepted last
    /// from the producer's boot.
    pub positions: Range<u64>,
    /// The level the records have reached: at least what was asked for, or less when the bounded
    /// wait for `disk` ended first. In that case they are kept, and may become durable later.
    pub level: Level,
    /// The batch had been accepted before and was not appended again.
    pub is_duplicate: bool,
}

/// Log offsets: `first <= durable <= flushed <= end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// The first record still kept.
    pub first: u64,
    /// Records below are on disk, synchronised.
    pub durable: u64,
    /// Records below are in segment files.
    pub flushed: u64,
    /// The position the next record will get.
    pub end: u64,
}
