//! Time intervals: times of day, weekdays, days of the month, months and years in a time zone.

use std::ops::{Range, RangeInclusive};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};

const SECOND_NS: i64 = 1_000_000_000;
const DAY_S: i64 = 86_400;

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
        let at = self.zone.to_datetime(timestamp(at_ns));
        let minute = (i32::from(at.hour()) * 60 + i32::from(at.minute())).unsigned_abs();
        let is_time = self.times.is_empty()
            || self.times.iter().any(|&(start, end)| (start..end).contains(&minute));
        is_time && self.contains_day(at.date())
    }

    /// Whether times of a local day may be inside.
    fn contains_day(&self, date: Date) -> bool {
        let (day, days) = (date.day(), date.days_in_month());
        let from_start = |day: i8| if day < 0 { days + day + 1 } else { day };
        let is_day =
            |&(first, last): &(i8, i8)| (from_start(first)..=from_start(last)).contains(&day);
        let weekday = date.weekday().to_sunday_zero_offset();
        (self.weekdays.is_empty() || self.weekdays.iter().any(|range| range.contains(&weekday)))
            && (self.days_of_month.is_empty() || self.days_of_month.iter().any(is_day))
            && (self.months.is_empty()
                || self.months.iter().any(|range| range.contains(&date.month())))
            && (self.years.is_empty()
                || self.years.iter().any(|range| range.contains(&date.year())))
    }

    /// Times of a range (start inclusive, end exclusive; nanoseconds since the Unix epoch) that are
    /// inside, in any order; some may touch or overlap. The work is that of its days.
    pub(crate) fn ranges_within(&self, range: &Range<i64>) -> Vec<Range<i64>> {
        let mut found = Vec::new();
        let mut start_ns = range.start;
        // Between two changes of its clocks, the time of a zone is a sum.
        while start_ns < range.end {
            let change = self.zone.following(timestamp(start_ns)).next();
            let change_ns = change.map(|change| change.timestamp().as_nanosecond());
            let change_ns = change_ns.and_then(|change_ns| i64::try_from(change_ns).ok());
            let is_inside = |at_ns: &i64| start_ns < *at_ns && *at_ns < range.end;
            let end_ns = change_ns.filter(is_inside).unwrap_or(range.end);
            let offset = self.zone.to_offset(timestamp(start_ns));
            self.add_ranges(&(start_ns..end_ns), offset, &mut found);
            start_ns = end_ns;
        }
        found
    }

    /// The same while the offset of the zone stays the same.
    fn add_ranges(&self, range: &Range<i64>, offset: Offset, found: &mut Vec<Range<i64>>) {
        let offset_s = i64::from(offset.seconds());
        let local_day = |at_ns: i64| (at_ns.div_euclid(SECOND_NS) + offset_s).div_euclid(DAY_S);
        let whole_day = [(0, 24 * 60)];
        let times = if self.times.is_empty() { &whole_day[..] } else { &self.times[..] };
        let first = local_day(range.start);
        for day in first..=local_day(range.end.saturating_sub(1)) {
            let Some(date) = date_of(day) else { continue };
            if !self.contains_day(date) {
                continue;
            }
            let at_ns = |minute: u32| {
                (day * DAY_S - offset_s + i64::from(minute) * 60).saturating_mul(SECOND_NS)
            };
            for &(start, end) in times {
                let part = at_ns(start).max(range.start)..at_ns(end).min(range.end);
                if !part.is_empty() {
                    found.push(part);
                }
            }
        }
    }
}

fn timestamp(at_ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(at_ns.into()).unwrap_or_default()
}

/// Date of a day since 1970-01-01.
fn date_of(day: i64) -> Option<Date> {
    let at = Timestamp::from_second(day.checked_mul(DAY_S)?).ok()?;
    Some(Offset::UTC.to_datetime(at).date())
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

    /// Ranges that touch are one.
    fn united(mut ranges: Vec<Range<i64>>) -> Vec<Range<i64>> {
        ranges.sort_by_key(|range| range.start);
        let mut all: Vec<Range<i64>> = Vec::new();
        for range in ranges {
            match all.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => all.push(range),
            }
        }
        all
    }

    /// The slow way: each minute.
    fn minutes_within(interval: &TimeInterval, range: &Range<i64>) -> Vec<Range<i64>> {
        const MINUTE_NS: i64 = 60 * SECOND_NS;
        let mut found = Vec::new();
        let mut at_ns = range.start;
        while at_ns < range.end {
            let next_ns = (at_ns.div_euclid(MINUTE_NS) + 1) * MINUTE_NS;
            if interval.contains(at_ns) {
                found.push(at_ns..next_ns.min(range.end));
            }
            at_ns = next_ns;
        }
        united(found)
    }

    #[test]
    fn the_ranges_of_an_interval_are_the_minutes_that_it_contains() {
        let at = |text: &str| {
            let at: Timestamp = text.parse().unwrap();
            i64::try_from(at.as_nanosecond()).unwrap()
        };
        // Both changes of the clocks; by half an hour on Lord Howe, at 00:01 in Newfoundland in
        // 2007, and by a day on Samoa.
        let ranges = [
            ("2026-03-26T11:11:11Z", "2026-04-06T00:00:00Z"),
            ("2026-10-22T00:00:00Z", "2026-11-03T23:59:59.5Z"),
            ("2007-03-10T00:00:00Z", "2007-03-13T00:00:00Z"),
            ("2011-12-28T00:00:00Z", "2012-01-03T00:00:00Z"),
        ];
        let zones = [
            "UTC",
            "Europe/Berlin",
            "America/St_Johns",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            "Asia/Kathmandu",
        ];
        for zone in zones {
            let mut all = TimeInterval::new(zone).unwrap();
            let mut nights = all.clone();
            nights.times.extend([(0, 1), (95, 185), (22 * 60, 24 * 60)]);
            let mut days = nights.clone();
            days.weekdays.extend([0..=0, 5..=6]);
            let mut ends = all.clone();
            ends.days_of_month.extend([(-1, -1), (29, 29)]);
            all.months.extend([3..=3, 11..=12]);
            all.years.push(2026..=2026);
            for interval in [all, nights, days, ends] {
                for (start, end) in ranges {
                    let range = at(start)..at(end);
                    let found = united(interval.ranges_within(&range));
                    assert_eq!(found, minutes_within(&interval, &range), "{interval:?} {start}");
                }
            }
        }
    }

    #[test]
    fn the_ranges_of_all_times_and_of_none_are_found() {
        let all = TimeInterval::new("Europe/Berlin").unwrap();
        let everything = i64::MIN..i64::MAX;
        assert_eq!(united(all.ranges_within(&everything)), std::slice::from_ref(&everything));
        let mut never = all.clone();
        never.years.push(3000..=3000);
        assert_eq!(never.ranges_within(&everything), []);
        assert_eq!(all.ranges_within(&(5..5)), []);
    }

    #[test]
    fn an_unknown_zone_is_rejected() {
        assert!(TimeInterval::new("Mars/Base").unwrap_err().to_string().contains("Mars/Base"));
    }
}
