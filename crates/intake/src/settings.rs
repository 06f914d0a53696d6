//! Intake settings.

use std::sync::Arc;
use std::time::Duration;

use journal::supervisor::LogFn;
use journal::{Level, WallClock};

/// Intake settings.
#[derive(Clone)]
pub struct Settings {
    /// When a sender is told: [`Level::Disk`] by default.
    pub level: Level,
    /// How often sources write what they have put together, and what the boundaries of their
    /// intervals are multiples of: 10 s by default. With [`Duration::MAX`] there is no boundary
    /// before the year 2262.
    pub interval: Duration,
    /// Bytes of batches that may be on their way to the disk at once: 256 MiB by default. Beyond,
    /// senders are asked to wait.
    pub in_flight_bytes_max: u64,
    /// Threads of its own make the journal durable, keep the books and write topdeck's own
    /// measurements: `true` by default. Otherwise whoever waits for a receipt does the first, and
    /// [`Intake::checkpoint_ledger`](crate::Intake::checkpoint_ledger) the second.
    pub background: bool,
    /// Own counters and timers are in shared memory too, for `topdeck top` and whoever looks:
    /// `false` by default. For a process that has one intake.
    pub publish: bool,
    /// Where times come from.
    pub clock: WallClock,
    /// Takes what whoever runs topdeck should read at once, a line at a time: nobody by default.
    pub log: LogFn,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            level: Level::Disk,
            interval: Duration::from_secs(10),
            in_flight_bytes_max: 256 << 20,
            background: true,
            publish: false,
            clock: Arc::new(arrival_time_ns),
            log: Arc::new(|_| {}),
        }
    }
}

/// The time now, in nanoseconds since the Unix epoch. Exact, unlike the journal's clock, which
/// moves every 1 to 10 ms: what has no time of its own gets this one, and of two readings that come
/// in turn the second is the later.
pub(crate) fn arrival_time_ns() -> i64 {
    clock::wall().unix_ns
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("level", &self.level)
            .field("interval", &self.interval)
            .field("in_flight_bytes_max", &self.in_flight_bytes_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock of milliseconds would make one instant of two requests that follow one another.
    #[test]
    fn arrival_times_are_strictly_ordered() {
        let times: Vec<i64> = (0..1_000).map(|_| arrival_time_ns()).collect();
        let distinct: std::collections::HashSet<i64> = times.iter().copied().collect();
        assert!(distinct.len() > 100, "{} times in 1,000 readings of the clock", distinct.len());
    }
}
