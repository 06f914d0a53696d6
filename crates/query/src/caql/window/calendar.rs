//! Where windows begin and end: on whole multiples of what they are apart, in UTC or by the clocks
//! of a time zone.
//!
//! Without a zone they begin at `k * skip + offset` since the Unix epoch. By the clocks of a zone,
//! windows that are a day or more apart begin at `k * skip` since the epoch's local midnight, so a
//! day that clocks are changed on is 23 or 25 hours long. Those that are less apart are counted
//! from each local midnight anew, in hours that passed and not in hours shown; the last of a day
//! ends with it.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::super::zone::Zone;

const DAY_NS: i64 = 24 * 3_600_000_000_000;

/// Clock that windows are aligned to.
pub(super) enum CalendarClock {
    /// UTC, and this much later.
    Utc(i64),
    /// What clocks show in a zone.
    Local(Zone),
}

/// Windows of one length, a fixed time apart. Times are nanoseconds since the Unix epoch.
pub(super) struct WindowCalendar {
    pub(super) clock: CalendarClock,
    /// How long they are; above 0.
    pub(super) length: i64,
    /// How far apart they begin; above 0.
    pub(super) skip: i64,
}

impl WindowCalendar {
    /// The last moment not after this one at which a window begins.
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

    /// Where the window ends that begins at this moment, which is one that [`Self::floor`] gives.
    pub(super) fn end_of(&self, start: i64) -> i64 {
        let end = start.saturating_add(self.length);
        match &self.clock {
            CalendarClock::Utc(_) => end,
            CalendarClock::Local(zone) if self.length % DAY_NS == 0 => {
                add_local_time(zone, start, self.length)
            }
            // Windows side by side leave nothing between them.
            CalendarClock::Local(zone) if self.length == self.skip && self.skip < DAY_NS => {
                end.min(local_floor(zone, add_local_time(zone, start, DAY_NS), DAY_NS))
            }
            CalendarClock::Local(_) => end,
        }
    }

    /// Where the window begins that ends at this moment, likewise.
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

/// The last moment not after this one when clocks show a whole multiple of some days, or hours
/// above a day.
fn local_floor(zone: &Zone, time: i64, skip: i64) -> i64 {
    let shown = nanos(zone.local(time));
    let skip = i128::from(skip);
    let mut at = shown.div_euclid(skip);
    // Where clocks never show it, they do later; where that is too late, the one before counts.
    // Once is enough, as no clock is moved by as much as two days.
    for _ in 0..3 {
        match zone.time_of_local(datetime(at * skip)) {
            Some(moment) if moment <= time => return moment,
            _ => at -= 1,
        }
    }
    time
}

/// When clocks show so much more.
fn add_local_time(zone: &Zone, time: i64, by: i64) -> i64 {
    let shown = nanos(zone.local(time)) + i128::from(by);
    zone.time_of_local(datetime(shown)).unwrap_or(time.saturating_add(by))
}

/// What is shown, as if it were in UTC.
fn nanos(shown: DateTime) -> i128 {
    Offset::UTC.to_timestamp(shown).map_or(0, Timestamp::as_nanosecond)
}

fn datetime(nanos: i128) -> DateTime {
    Offset::UTC.to_datetime(Timestamp::from_nanosecond(nanos).unwrap_or_default())
}

fn narrow(time: i128) -> i64 {
    time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
