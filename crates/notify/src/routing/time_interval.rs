//! Time intervals: times of day, weekdays, days of the month, months and years in a time zone.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A time is inside if it is in one range of each kind that has ranges.
#[derive(Clone, Debug)]
pub struct TimeInterval {
    /// Minutes of the day, from the first (inclusive) to the second (exclusive); at most 1440.
    pub times: Vec<(u32, u32)>,
    /// Weekdays; 0 is Sunday.
    pub weekdays: Vec<RangeInclusive<i8>>,
    /// First and last day of the month; -1 is the last day of the month.
    pub days_of_month: Vec<(i8, i8)>,
    /// Months; 1 is January.
    pub months: Vec<RangeInclusive<i8>>,
    /// Years.
    pub years: Vec<RangeInclusive<i16>>,
    zone: TimeZone,
}

/// A time zone is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot use time zone {0:?}: unknown; expected a name such as \"Europe/Berlin\" or \"UTC\""
)]
pub struct TimeIntervalError(String);

impl TimeInterval {
    /// An interval without ranges, which contains all times, in a time zone.
    pub fn new(zone: &str) -> Result<TimeInterval, TimeIntervalError> {
        let zone = TimeZone::get(zone).map_err(|_| TimeIntervalError(zone.to_owned()))?;
        Ok(TimeInterval::in_zone(zone))
    }

    pub(crate) fn in_zone(zone: TimeZone) -> TimeInterval {
        TimeInterval {
            times: Vec::new(),
            weekdays: Vec::new(),
            days_of_month: Vec::new(),
            months: Vec::new(),
            years: Vec::new(),
            zone,
        }
    }

    /// Whether a time, in nanoseconds since the Unix epoch, is inside.
    pub fn contains(&self, at_ns: i64) -> bool {
        let at = Timestamp::from_nanosecond(at_ns.into()).unwrap_or_default();
        let at = self.zone.to_datetime(at);
        let minute = (i32::from(at.hour()) * 60 + i32::from(at.minute())).unsigned_abs();
        let (day, days) = (at.day(), at.days_in_month());
        let from_start = |day: i8| if day < 0 { days + day + 1 } else { day };
        let is_day =
            |&(first, last): &(i8, i8)| (from_start(first)..=from_start(last)).contains(&day);
        let weekday = at.weekday().to_sunday_zero_offset();
        let any_or_none = |is_empty: bool, is_inside: bool| is_empty || is_inside;
        any_or_none(
            self.times.is_empty(),
            self.times.iter().any(|&(start, end)| (start..end).contains(&minute)),
        ) && any_or_none(
            self.weekdays.is_empty(),
            self.weekdays.iter().any(|range| range.contains(&weekday)),
        ) && any_or_none(self.days_of_month.is_empty(), self.days_of_month.iter().any(is_day))
            && any_or_none(
                self.months.is_empty(),
                self.months.iter().any(|range| range.contains(&at.month())),
            )
            && any_or_none(
                self.years.is_empty(),
                self.years.iter().any(|range| range.contains(&at.year())),
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(interval: &TimeInterval, at: &str, expected: bool) {
        let at: Timestamp = at.parse().unwrap();
        let at_ns = i64::try_from(at.as_nanosecond()).unwrap();
        assert_eq!(interval.contains(at_ns), expected, "{at}");
    }

    #[test]
    fn office_hours_follow_daylight_saving_time() {
        let mut hours = TimeInterval::new("Europe/Berlin").unwrap();
        hours.times.push((9 * 60, 17 * 60));
        hours.weekdays.push(1..=5);
        // Friday before and Monday after the change on 2026-03-29.
        check(&hours, "2026-03-27T07:59:59Z", false);
        check(&hours, "2026-03-27T08:00:00Z", true);
        check(&hours, "2026-03-30T07:00:00Z", true);
        check(&hours, "2026-03-30T15:00:00Z", false);
        check(&hours, "2026-03-28T10:00:00Z", false);
    }

    #[test]
    fn the_last_days_of_a_month_depend_on_its_length() {
        let mut days = TimeInterval::new("UTC").unwrap();
        days.days_of_month.push((-2, -1));
        check(&days, "2026-02-27T00:00:00Z", true);
        check(&days, "2026-02-26T23:59:59Z", false);
        check(&days, "2024-02-27T00:00:00Z", false);
        days.months.push(3..=3);
        days.years.push(2026..=2027);
        check(&days, "2026-02-27T00:00:00Z", false);
        check(&days, "2026-03-31T00:00:00Z", true);
        check(&days, "2028-03-31T00:00:00Z", false);
    }

    #[test]
    fn days_from_the_middle_to_the_end_of_a_month() {
        let mut days = TimeInterval::new("UTC").unwrap();
        days.days_of_month.push((15, -1));
        check(&days, "2026-02-14T23:59:59Z", false);
        check(&days, "2026-02-15T00:00:00Z", true);
        check(&days, "2026-02-28T23:59:59Z", true);
        // Of a month that is shorter, no day.
        days.days_of_month = vec![(31, -1)];
        check(&days, "2026-04-30T12:00:00Z", false);
        check(&days, "2026-05-31T12:00:00Z", true);
    }

    #[test]
    fn an_unknown_zone_is_rejected() {
        assert!(TimeInterval::new("Mars/Base").unwrap_err().to_string().contains("Mars/Base"));
    }
}
