//! Window boundaries: at multiples of the window interval, in UTC or in the local time of a zone.
//!
//! Without a zone, windows start at `k * skip + offset` since the Unix epoch. In a zone, windows
//! with an interval of a day or more start at `k * skip` since the epoch's local midnight, so a day
//! with a clock change has 23 or 25 hours. Shorter intervals are counted from each local midnight,
//! in elapsed hours rather than hours shown; the last window of a day ends with the day.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::super::zone::Zone;

const DAY_NS: i64 = 24 * 3_600_000_000_000;

/// Clock that windows are aligned to.
pub(super) enum CalendarClock {
    /// UTC with an offset in nanoseconds.
    Utc(i64),
    /// Local time of a zone.
    Local(Zone),
}

/// Windows of one length at a fixed interval. Times are nanoseconds since the Unix epoch.
pub(super) struct WindowCalendar {
    pub(super) clock: CalendarClock,
    /// Window length; above 0.
    pub(super) length: i64,
    /// Interval between window starts; above 0.
    pub(super) skip: i64,
}

impl WindowCalendar {
    /// Start of the last window that starts at or before this time.
    pub(super) fn floor(&self, time: i64) -> i64 {
        match &self.clock {
            CalendarClock::Utc(offset) => {
                let since = i128::from(time) - i128::from(*offset);
                let skip = i128::from(self.skip);
                narrow(since.div_euclid(skip) * skip + i128::from(*offset))
            }
            CalendarClock::Local(zone) if self.skip >= DAY_NS => local_floor(zone, time, self.skip),
            CalendarClock::Local(zone) => {
                let midnight = local_floor(zone, time, DAY_NS);
                midnight + (time - midnight) / self.skip * self.skip
            }
        }
    }

    /// End of the window that starts at this time, a result of [`Self::floor`].
    pub(super) fn end_of(&self, start: i64) -> i64 {
        let end = start.saturating_add(self.length);
        match &self.clock {
            CalendarClock::Utc(_) => end,
            CalendarClock::Local(zone) if self.length % DAY_NS == 0 => {
                add_local_time(zone, start, self.length)
            }
            // Adjacent windows leave no gap.
            CalendarClock::Local(zone) if self.length == self.skip && self.skip < DAY_NS => {
                end.min(local_floor(zone, add_local_time(zone, start, DAY_NS), DAY_NS))
            }
            CalendarClock::Local(_) => end,
        }
    }

    /// Start of the window that ends at this time, a result of [`Self::floor`].
    pub(super) fn start_of(&self, end: i64) -> i64 {
        match &self.clock {
            CalendarClock::Local(zone) if self.length % DAY_NS == 0 => {
                add_local_time(zone, end, -self.length)
            }
            CalendarClock::Local(_) if self.length == self.skip && self.skip < DAY_NS => {
                self.floor(end.saturating_sub(1))
            }
            _ => end.saturating_sub(self.length),
        }
    }
}

/// Last time at or before this one at which the local time is a multiple of `skip`, an interval of
/// a day or more.
fn local_floor(zone: &Zone, time: i64, skip: i64) -> i64 {
    let local_time = nanos(zone.local(time));
    let skip = i128::from(skip);
    let mut at = local_time.div_euclid(skip);
    // A skipped local time maps to a later one; if that is after `time`, the previous multiple
    // applies. One retry is enough, because no clock change is as long as two days.
    for _ in 0..3 {
        match zone.time_of_local(datetime(at * skip)) {
            Some(moment) if moment <= time => return moment,
            _ => at -= 1,
        }
    }
    time
}

/// Time at which the local time is this much later.
fn add_local_time(zone: &Zone, time: i64, by: i64) -> i64 {
    let local_time = nanos(zone.local(time)) + i128::from(by);
    zone.time_of_local(datetime(local_time)).unwrap_or(time.saturating_add(by))
}

/// Local time as if it were UTC.
fn nanos(time: DateTime) -> i128 {
    Offset::UTC.to_timestamp(time).map_or(0, Timestamp::as_nanosecond)
}

fn datetime(nanos: i128) -> DateTime {
    Offset::UTC.to_datetime(Timestamp::from_nanosecond(nanos).unwrap_or_default())
}

fn narrow(time: i128) -> i64 {
    time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
