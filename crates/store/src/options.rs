//! Options of an open store; sizes in bytes, times in nanoseconds unless said otherwise.

use std::fmt;

use journal::WallClock;

use crate::index::CardinalityLimits;
use crate::resolution::MINUTE;

/// How a store is opened; what is chosen anew each time.
#[derive(Clone)]
pub struct Options {
    /// Rows in memory take about this many bytes at the most before they are sealed: 128 MiB by
    /// default. Sealed early, they are in smaller chunks, which take more room until they are put
    /// together.
    pub head_bytes_max: usize,
    /// How long after the end of a partition rows are waited for before it is sealed or rolled up:
    /// ten minutes by default, in nanoseconds. What comes later is right too, and costs more.
    pub late_grace: i64,
    /// How many series, and values of a label, are taken.
    pub limits: CardinalityLimits,
    /// How many bytes of parts the thread looks at in a second, over and over: 1 MiB by default,
    /// none if 0. What it finds damaged stands in the notes of [`Stat`].
    pub scrub_bytes_per_second: u64,
    /// A thread of its own feeds the store and keeps it in order: `true` by default. Otherwise
    /// whoever has it calls [`Store::maintain`].
    pub has_background_thread: bool,
    /// How the journal is opened.
    pub journal: journal::Options,
    /// Where times come from.
    pub clock: WallClock,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            head_bytes_max: 128 << 20,
            late_grace: 10 * MINUTE,
            limits: CardinalityLimits::default(),
            scrub_bytes_per_second: 1 << 20,
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
