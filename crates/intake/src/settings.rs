//! Intake settings.

use std::sync::Arc;
use std::time::Duration;

use journal::log::LogFn;
use journal::{Level, WallClock};

use crate::absence_monitor::AbsenceSettings;
use crate::exemplar_intake::ExemplarPolicy;
use crate::trace_buffer::TracePolicy;

/// Intake settings.
#[derive(Clone)]
pub struct Settings {
    /// Durability level of an acknowledgement; default: [`Level::Disk`].
    pub level: Level,
    /// Interval in which sources write aggregated data; interval boundaries are multiples of it.
    /// Default: 10 s. With [`Duration::MAX`] there is no boundary before the year 2262.
    pub interval: Duration,
    /// Maximum bytes of batches that wait for the disk; default: 256 MiB. Beyond it senders get a
    /// retryable error.
    pub in_flight_bytes_max: u64,
    /// Whether background threads sync the journal, update the ledger and write the own metrics;
    /// default: `true`. Otherwise a waiting pending acknowledgement syncs, and
    /// [`Intake::checkpoint_ledger`](crate::Intake::checkpoint_ledger) updates the ledger.
    pub background: bool,
    /// Whether self counters and histograms are also in shared memory, for `topdeck top` and other
    /// readers; default: `false`. For a process with one intake.
    pub publish: bool,
    /// When a source is absent.
    pub absence: AbsenceSettings,
    /// Which exemplars, and which of their attributes, are stored.
    pub exemplars: ExemplarPolicy,
    /// Which whole traces are kept; none without exemplars.
    pub traces: TracePolicy,
    /// Clock.
    pub clock: WallClock,
    /// Receives log lines for the operator; default: discarded.
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
            absence: AbsenceSettings::default(),
            exemplars: ExemplarPolicy::default(),
            traces: TracePolicy::default(),
            clock: Arc::new(arrival_time_ns),
            log: Arc::new(|_, _| {}),
        }
    }
}

/// The current time, in nanoseconds since the Unix epoch. Exact, unlike the journal's clock, which
/// advances every 1 to 10 ms: samples without a timestamp get this one, and of two consecutive
/// samples the second has the later time.
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

    /// A millisecond clock would give two consecutive requests the same time.
    #[test]
    fn arrival_times_are_strictly_ordered() {
        let times: Vec<i64> = (0..1_000).map(|_| arrival_time_ns()).collect();
        let distinct: std::collections::HashSet<i64> = times.iter().copied().collect();
        assert!(distinct.len() > 100, "{} times in 1,000 readings of the clock", distinct.len());
    }
}
