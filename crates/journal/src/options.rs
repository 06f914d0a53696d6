//! Options of an open journal.

use std::fmt;
use std::time::Duration;

use crate::settings::Settings;
use crate::supervisor::Supervisor;
use crate::wall_clock::{WallClock, wall_clock};

/// How a journal is opened; what is chosen anew each time.
#[derive(Clone)]
pub struct Options {
    /// No other process may have it open: `false` by default.
    pub is_exclusive: bool,
    /// A thread of its own writes what is appended to segments and does what else is due: `true` by
    /// default. Without it, only appends that find the buffer full, `flush` and the level `disk`
    /// write.
    pub has_background_thread: bool,
    /// How long records may wait in the buffer for company before they are written to a segment: 10
    /// ms by default. In the buffer they are visible to all and survive the process already.
    pub flush_interval: Duration,
    /// After how long what was appended at a lower level is made durable all the same: 1 s by
    /// default; `None` leaves it to the kernel.
    pub sync_interval: Option<Duration>,
    /// How long an append waits for `disk`, or for room in the buffer: 10 s by default. One of
    /// those who wait for `disk` synchronises for all, and waits for the system as long as that
    /// takes.
    pub append_timeout: Duration,
    /// How often a reader that waits looks by itself: 500 ms by default. Appenders wake it, but one
    /// may be killed between its entry and waking anybody.
    pub recheck_interval: Duration,
    /// Where times come from: [`wall_clock`] by default.
    pub clock: WallClock,
    /// Settings for a journal whose file of settings is lost: opening makes it anew from the
    /// segments. `None` by default, as who does not know them leaves it to [`crate::repair`].
    pub settings: Option<Settings>,
    /// What runs threads again that panic: those of this journal, and of whoever stands on it. One
    /// of its own by default.
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
