//! Options of an open journal.

use std::fmt;
use std::time::Duration;

use crate::settings::Settings;
use crate::supervisor::Supervisor;
use crate::wall_clock::{WallClock, wall_clock};

/// Options of opening a journal, chosen anew each time.
#[derive(Clone)]
pub struct Options {
    /// Requires that no other process has it open: `false` by default.
    pub is_exclusive: bool,
    /// Runs a thread that writes appended records to segments and does maintenance: `true` by
    /// default. Without it, only appends that find the buffer full, `flush` and level `disk` write.
    pub has_background_thread: bool,
    /// Maximum time that records wait in the buffer before they are written to a segment: 10 ms by
    /// default. In the buffer they are already visible to all processes and survive this one.
    pub flush_interval: Duration,
    /// Maximum time until records appended at a lower level are fsynced: 1 s by default; `None`
    /// leaves it to the kernel.
    pub sync_interval: Option<Duration>,
    /// Maximum wait of an append for `disk` or for space in the buffer: 10 s by default. One of the
    /// waiters for `disk` fsyncs for all and waits for the system without limit.
    pub append_timeout: Duration,
    /// Polling interval of a waiting reader: 500 ms by default. Appenders wake readers, but may be
    /// killed between writing the entry and the wake-up.
    pub recheck_interval: Duration,
    /// Source of time: [`wall_clock`] by default.
    pub clock: WallClock,
    /// Settings for a journal whose settings file is lost: opening rebuilds the file with them from
    /// the segments. `None` by default: then [`crate::repair`] does it.
    pub settings: Option<Settings>,
    /// Supervisor of threads: those of this journal and of its users. A new one by default.
    pub supervisor: Supervisor,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            is_exclusive: false,
            has_background_thread: true,
            flush_interval: Duration::from_millis(10),
            sync_interval: Some(Duration::from_secs(1)),
            append_timeout: Duration::from_secs(10),
            recheck_interval: Duration::from_millis(500),
            clock: wall_clock(),
            settings: None,
            supervisor: Supervisor::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("alone", &self.is_exclusive)
            .field("flush_every", &self.flush_interval)
            .finish_non_exhaustive()
    }
}
