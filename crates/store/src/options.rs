//! Options of an open store; sizes in bytes, times in nanoseconds unless noted otherwise.

use std::fmt;

use journal::WallClock;

use crate::exemplars::ExemplarOptions;
use crate::index::CardinalityLimits;
use crate::resolution::MINUTE;
use crate::traces::TraceOptions;

/// Options of opening a store, chosen anew each time.
#[derive(Clone)]
pub struct Options {
    /// Approximate maximum memory of rows before they are flushed: 128 MiB by default. Early
    /// flushes make smaller chunks, which take more space until compaction.
    pub head_bytes_max: usize,
    /// How long to wait for late rows after the end of a partition before it is flushed or rolled
    /// up, in nanoseconds: ten minutes by default. Later rows are still correct, but cost more.
    pub late_grace: i64,
    /// Cardinality limits.
    pub limits: CardinalityLimits,
    /// Bytes of parts that the background scrub reads a second, in a loop: 1 MiB by default, 0
    /// disables it. A chunk counts as 4 KiB at least. Damage is listed in the warnings of
    /// [`crate::StoreStat`].
    pub scrub_bytes_per_second: u64,
    /// How exemplars are kept.
    pub exemplars: ExemplarOptions,
    /// How whole traces are kept.
    pub traces: TraceOptions,
    /// Runs a thread that reads the journal and does maintenance: `true` by default. Otherwise the
    /// owner calls [`Store::maintain`].
    pub has_background_thread: bool,
    /// Options of the journal.
    pub journal: journal::Options,
    /// Source of time.
    pub clock: WallClock,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            head_bytes_max: 128 << 20,
            late_grace: 10 * MINUTE,
            limits: CardinalityLimits::default(),
            scrub_bytes_per_second: 1 << 20,
            exemplars: ExemplarOptions::default(),
            traces: TraceOptions::default(),
            has_background_thread: true,
            journal: journal::Options { is_exclusive: true, ..journal::Options::default() },
            clock: journal::wall_clock(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("head_bytes_max", &self.head_bytes_max)
            .finish_non_exhaustive()
    }
}
