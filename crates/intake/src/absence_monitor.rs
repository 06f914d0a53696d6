//! Absence: sources that sent regularly, and no longer send.
//!
//! The monitor learns how often a source sends: the median of its last [`INTERVALS`] intervals
//! between batches. A source without a batch for `factor` times that, and at least `min`, is
//! absent. Before it has as many intervals, nothing is said of it: a program that sends a few
//! batches and ends is no failure. Batches that follow within [`BURST`] are one arrival, because
//! a sender splits what it has collected. A source that is absent for `retire_after`, or whose
//! job was removed, is forgotten.
//!
//! Arrivals are kept in memory: after a start, a source is learned anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decode::rounded_duration_text;
use journal::log::LogLevel;

use crate::producer::Producer;

/// Number of intervals whose median is the interval of a source.
const INTERVALS: usize = 20;
/// Batches within this time, in nanoseconds, are one arrival.
const BURST: i64 = 1_000_000_000;
/// Maximum number of sources that are watched, as many as the ledger lists; others are not.
const SOURCES_MAX: usize = 4_096;
/// The check runs every second. After a longer pause, of a suspended host, no source is to blame.
const PAUSE: i64 = 20_000_000_000;

/// When a source is absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AbsenceSettings {
    /// Whether absent sources are reported.
    pub is_enabled: bool,
    /// Shortest absence that is reported; default: 30 s.
    pub min: Duration,
    /// Number of usual intervals without a batch; default: 5.
    pub factor: u32,
    /// Absence after which a source is forgotten; default: a day.
    pub retire_after: Duration,
}

impl Default for AbsenceSettings {
    fn default() -> AbsenceSettings {
        AbsenceSettings {
            is_enabled: true,
            min: Duration::from_secs(30),
            factor: 5,
            retire_after: Duration::from_secs(86_400),
        }
    }
}

/// Whether a source sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It sends as usual.
    Sending,
    /// It sent regularly, and no longer sends.
    Absent,
    /// Too few intervals are known.
    Unknown,
}

impl SourceState {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            SourceState::Sending => "sending",
            SourceState::Absent => "absent",
            SourceState::Unknown => "unknown",
        }
    }
}

/// What is known of the batches of a source. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceActivity {
    /// Number of its producer.
    pub id: u64,
    /// Name of its producer.
    pub name: String,
    /// Whether it sends.
    pub state: SourceState,
    /// Time of its last batch, since the Unix epoch.
    pub last: i64,
    /// Learned interval, and the absence that is reported.
    pub interval: Option<(i64, i64)>,
}

/// Arrivals of all sources.
#[derive(Debug)]
pub(crate) struct AbsenceMonitor {
    settings: AbsenceSettings,
    state: Mutex<SourceArrivals>,
}

#[derive(Debug, Default)]
struct SourceArrivals {
    sources: BTreeMap<u64, ArrivalHistory>,
    checked_at: Option<i64>,
}

#[derive(Debug)]
struct ArrivalHistory {
    /// Time of the last batch, and of the last batch that was counted as an arrival.
    last: i64,
    counted: i64,
    intervals: VecDeque<i64>,
    /// Time of the last batch before the absence that was reported.
    absent_since: Option<i64>,
}

impl ArrivalHistory {
    fn add(&mut self, now: i64, min: i64) {
        let interval = now.saturating_sub(self.last);
        // The batches of a long burst are at most this far apart.
        let is_long_burst = now.saturating_sub(self.counted) >= min;
        if interval >= BURST || is_long_burst {
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            self.intervals.push_back(interval.max(BURST));
            self.counted = now;
        }
        self.last = now;
    }

    /// Median interval, and the absence that is reported.
    fn interval(&self, settings: &AbsenceSettings) -> Option<(i64, i64)> {
        if self.intervals.len() < INTERVALS {
            return None;
        }
        let mut sorted: Vec<i64> = self.intervals.iter().copied().collect();
        sorted.sort_unstable();
        let middle = INTERVALS / 2;
        let median = sorted[middle - 1].midpoint(sorted[middle]);
        let absence = median.saturating_mul(settings.factor.into());
        Some((median, absence.max(nanoseconds(settings.min))))
    }
}

fn nanoseconds(of: Duration) -> i64 {
    i64::try_from(of.as_nanos()).unwrap_or(i64::MAX)
}

impl AbsenceMonitor {
    pub(crate) fn new(settings: AbsenceSettings) -> AbsenceMonitor {
        AbsenceMonitor { settings, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, SourceArrivals> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a batch arrived, whether or not there was space for it.
    pub(crate) fn record(&self, id: u64, now: i64) {
        if !self.settings.is_enabled {
            return;
        }
        let mut state = self.lock();
        let many = state.sources.len();
        match state.sources.get_mut(&id) {
            Some(history) => history.add(now, nanoseconds(self.settings.min)),
            None if many < SOURCES_MAX => {
                let (last, counted, absent_since) = (now, now, None);
                let history =
                    ArrivalHistory { last, counted, intervals: VecDeque::new(), absent_since };
                state.sources.insert(id, history);
            }
            None => {}
        }
    }

    /// Records that a batch of a producer of this process arrived, if it follows a schedule.
    pub(crate) fn record_from(&self, producer: &Producer, now: i64) {
        if producer.is_monitored() {
            self.record(producer.id(), now);
        }
    }

    /// Forgets a source whose job was removed.
    pub(crate) fn retire(&self, id: u64) {
        self.lock().sources.remove(&id);
    }

    /// A log line for each source that became absent, sends again, or is retired since the last
    /// check.
    pub(crate) fn check(
        &self,
        now: i64,
        name_of: &dyn Fn(u64) -> String,
    ) -> Vec<(LogLevel, String)> {
        let mut state = self.lock();
        let paused = now.saturating_sub(state.checked_at.replace(now).unwrap_or(now));
        if paused >= PAUSE {
            for history in state.sources.values_mut() {
                history.last = history.last.saturating_add(paused).min(now);
            }
        }
        let settings = &self.settings;
        let retire_after = nanoseconds(settings.retire_after);
        let mut lines = Vec::new();
        state.sources.retain(|id, history| {
            let absence = now.saturating_sub(history.last);
            if absence > retire_after {
                if history.absent_since.is_some() {
                    let line = format!(
                        "source {} is retired after {} of absence",
                        name_of(*id),
                        rounded_duration_text(retire_after)
                    );
                    lines.push((LogLevel::Info, line));
                }
                return false;
            }
            let Some((interval, limit)) = history.interval(settings) else { return true };
            match (absence > limit, history.absent_since) {
                (true, None) => {
                    history.absent_since = Some(history.last);
                    let line = format!(
                        "source {} is absent: no batch for {}, usually one every {}; check that \
                         it runs and reaches this server",
                        name_of(*id),
                        rounded_duration_text(absence),
                        rounded_duration_text(interval)
                    );
                    lines.push((LogLevel::Warn, line));
                }
                (false, Some(since)) => {
                    history.absent_since = None;
                    let after = rounded_duration_text(history.last.saturating_sub(since));
                    let line = format!("source {} sends again after {after}", name_of(*id));
                    lines.push((LogLevel::Info, line));
                }
                _ => {}
            }
            true
        });
        lines
    }

    /// The sources that are watched, by name.
    pub(crate) fn sources(&self, now: i64, name_of: &dyn Fn(u64) -> String) -> Vec<SourceActivity> {
        let state = self.lock();
        let source = |(id, history): (&u64, &ArrivalHistory)| {
            let interval = history.interval(&self.settings);
            let absence = now.saturating_sub(history.last);
            let state = match interval {
                None => SourceState::Unknown,
                Some((_, limit)) if absence > limit => SourceState::Absent,
                Some(_) => SourceState::Sending,
            };
            SourceActivity { id: *id, name: name_of(*id), state, last: history.last, interval }
        };
        let mut sources: Vec<SourceActivity> = state.sources.iter().map(source).collect();
        model::sort::by(&mut sources, |a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Checks every second, as the housekeeping does; returns the lines with their times in
    /// seconds.
    struct Watch {
        monitor: AbsenceMonitor,
        now: i64,
        lines: Vec<String>,
    }

    impl Watch {
        fn new(settings: AbsenceSettings) -> Watch {
            Watch { monitor: AbsenceMonitor::new(settings), now: 0, lines: Vec::new() }
        }

        fn wait(&mut self, seconds: i64) {
            for _ in 0..seconds {
                self.now += SECOND;
                self.check();
            }
        }

        fn check(&mut self) {
            let lines = self.monitor.check(self.now, &|id| format!("p{id}"));
            let at = self.now / SECOND;
            self.lines.extend(
                lines.into_iter().map(|(level, line)| format!("{at} {} {line}", level.name())),
            );
        }

        /// `count` batches, `every` so many seconds.
        fn send(&mut self, count: usize, every: i64) {
            for _ in 0..count {
                self.monitor.record(1, self.now);
                self.wait(every);
            }
        }

        fn state(&self) -> SourceState {
            self.monitor.sources(self.now, &|id| format!("p{id}"))[0].state
        }
    }

    #[test]
    fn a_source_that_stops_is_reported_once_and_its_return_too() {
        let mut watch = Watch::new(AbsenceSettings::default());
        watch.send(21, 10);
        assert_eq!(watch.state(), SourceState::Sending);
        // The last batch was at 200 s: five times 10 s.
        watch.wait(40);
        assert_eq!((watch.state(), watch.lines.len()), (SourceState::Sending, 0));
        watch.wait(100);
        assert_eq!(watch.state(), SourceState::Absent);
        watch.send(1, 1);
        assert_eq!(watch.state(), SourceState::Sending);
        assert_eq!(
            watch.lines,
            [
                "251 warn source p1 is absent: no batch for 51 s, usually one every 10 s; check \
                 that it runs and reaches this server",
                "351 info source p1 sends again after 2 min 30 s",
            ]
        );
    }

    #[test]
    fn a_fast_source_is_absent_after_half_a_minute_and_a_slow_one_after_five_intervals() {
        for (every, expected) in [(1, 30), (5, 30), (60, 300)] {
            let mut watch = Watch::new(AbsenceSettings::default());
            watch.send(21, every);
            let last = watch.now - every * SECOND;
            watch.wait(1_000);
            let line = &watch.lines[0];
            let found: i64 = line.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(found - last / SECOND, expected + 1, "every {every} s: {line}");
        }
    }

    #[test]
    fn a_program_that_sends_a_few_batches_and_ends_is_not_absent() {
        let mut watch = Watch::new(AbsenceSettings::default());
        watch.send(20, 10);
        watch.wait(1_000);
        assert_eq!((watch.state(), watch.lines.len()), (SourceState::Unknown, 0));
    }

    #[test]
    fn batches_of_a_burst_are_one_arrival_and_a_long_burst_is_many() {
        let mut watch = Watch::new(AbsenceSettings::default());
        for _ in 0..21 {
            // Thirty batches in three seconds, once a minute.
            for _ in 0..30 {
                watch.now += SECOND / 10;
                watch.monitor.record(1, watch.now);
            }
            watch.wait(57);
        }
        let (interval, _) =
            watch.monitor.sources(watch.now, &|_| String::new())[0].interval.unwrap();
        assert!((56..59).contains(&(interval / SECOND)), "{interval}");
        assert_eq!(watch.lines, [""; 0]);
        // Ten batches a second for twelve minutes.
        let mut watch = Watch::new(AbsenceSettings::default());
        for _ in 0..7_200 {
            watch.now += SECOND / 10;
            watch.monitor.record(1, watch.now);
        }
        assert_eq!(watch.state(), SourceState::Sending);
        watch.wait(40);
        assert_eq!(watch.state(), SourceState::Absent);
    }

    #[test]
    fn a_removed_source_is_not_absent_and_one_that_is_absent_for_a_day_is_retired() {
        let mut watch = Watch::new(AbsenceSettings::default());
        watch.send(21, 10);
        watch.monitor.retire(1);
        watch.wait(1_000);
        assert_eq!(watch.lines, [""; 0]);
        let retire_after = Duration::from_secs(600);
        let mut watch = Watch::new(AbsenceSettings { retire_after, ..AbsenceSettings::default() });
        watch.send(21, 10);
        watch.wait(1_000);
        assert_eq!(watch.lines.len(), 2, "{:?}", watch.lines);
        assert_eq!(watch.lines[1], "801 info source p1 is retired after 10 min of absence");
        assert_eq!(watch.monitor.sources(watch.now, &|_| String::new()), []);
    }

    #[test]
    fn a_suspended_host_blames_no_source() {
        let mut watch = Watch::new(AbsenceSettings::default());
        watch.send(21, 10);
        watch.now += 3_600 * SECOND;
        watch.check();
        watch.send(2, 10);
        assert_eq!(watch.lines, [""; 0]);
    }

    #[test]
    fn silence_can_be_off() {
        let settings = AbsenceSettings { is_enabled: false, ..AbsenceSettings::default() };
        let mut watch = Watch::new(settings);
        watch.send(21, 10);
        watch.wait(1_000);
        assert_eq!(watch.lines, [""; 0]);
        assert_eq!(watch.monitor.sources(watch.now, &|_| String::new()), []);
    }
}
