//! Durability levels and acknowledgements.

use std::fmt;
use std::ops::Range;

/// Durability level of an acknowledged record. Ordered: each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing required: an append reaches `Process` and is acknowledged as that; a subscriber of
    /// this level reads all records.
    Memory,
    /// In kernel-owned memory or the page cache: survives `kill -9`, not a power loss.
    Process,
    /// Fsynced: survives a power loss.
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
/// A producer sends the sequences of one epoch in ascending order and does not continue before the
/// last one is acknowledged at the required level; gaps are allowed. A sequence at or below the
/// last accepted one is a duplicate. (Of two batches that were both only in memory, a power loss
/// may keep only the second: a producer that required no more is then told that the first is a
/// duplicate.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchIdentity {
    /// Producer id, unique for its lifetime.
    pub producer: u64,
    /// Epoch: a new number after each restart of the producer.
    pub epoch: u64,
    /// Batch number within the epoch.
    pub sequence: u64,
}

/// Append acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an acknowledgement says which level was reached"]
pub struct Ack {
    /// Positions of the records. For a duplicate, the empty range at the end of the last accepted
    /// batch of the producer's epoch.
    pub positions: Range<u64>,
    /// Level reached: at least the requested one, or a lower one if the wait for `disk` timed out.
    /// The records are then retained and may become durable later.
    pub level: Level,
    /// The batch had been accepted before and was not appended again.
    pub is_duplicate: bool,
}

/// Positions: `first <= durable <= flushed <= end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// First retained record.
    pub first: u64,
    /// Records below are fsynced.
    pub durable: u64,
    /// Records below are in segment files.
    pub flushed: u64,
    /// Position of the next record.
    pub end: u64,
}
