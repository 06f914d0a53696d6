//! Times and lengths of events (RFC 5545, 3.3.4 to 3.3.6): dates, local times in a zone, UTC,
//! and durations.
//!
//! A date or a time without a zone is in the zone of the rotation. A local time that exists twice
//! is the first one; one that does not exist is as much later as the clock steps.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use super::CalendarProblem;
use super::content_line::ContentLine;
use crate::rotation::instant_ns;

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventTimeFormat {
    /// `20260105`.
    Date,
    /// `20260105T090000`, in no zone.
    Floating,
    /// `20260105T090000` with a zone.
    Zoned,
    /// `20260105T090000Z`.
    Utc,
}

/// A time of an event.
#[derive(Clone, Debug)]
pub(super) struct EventTime {
    pub(super) form: EventTimeFormat,
    /// Midnight of a date.
    pub(super) local: DateTime,
    pub(super) zone: TimeZone,
}

impl EventTime {
    /// The time of a property that has one.
    pub(super) fn read(line: &ContentLine, zone: &TimeZone) -> Result<EventTime, CalendarProblem> {
        match <[EventTime; 1]>::try_from(EventTime::read_list(line, zone)?) {
            Ok([time]) => Ok(time),
            Err(_) => Err(line.problem("expected one time")),
        }
    }

    /// The times of a property, separated by commas.
    pub(super) fn read_list(
        line: &ContentLine,
        zone: &TimeZone,
    ) -> Result<Vec<EventTime>, CalendarProblem> {
        let is_date = match line.parameter("VALUE") {
            None | Some("DATE-TIME") => false,
            Some("DATE") => true,
            Some(other) => {
                return Err(line.problem(format!("VALUE={other} is not supported; use DATE-TIME")));
            }
        };
        let named = line.parameter("TZID").map(|name| read_zone(line, name)).transpose()?;
        let time = |text: &str| {
            let (local, is_utc) = parse_time(text).ok_or_else(|| {
                let expected = "expected 20260105T090000, 20260105T090000Z or 20260105";
                line.problem(format!("{text:?}: {expected}"))
            })?;
            match (local, is_date) {
                (ParsedTime::Date(date), true) => {
                    let local = date.to_datetime(Time::midnight());
                    Ok(EventTime { form: EventTimeFormat::Date, local, zone: zone.clone() })
                }
                (ParsedTime::Date(_), false) => {
                    Err(line.problem(format!("{text:?} is a date; add ;VALUE=DATE")))
                }
                (ParsedTime::Time(_), true) => {
                    Err(line.problem(format!("{text:?} is not a date; remove ;VALUE=DATE")))
                }
                (ParsedTime::Time(_), false) if is_utc && named.is_some() => {
                    Err(line.problem("a time in UTC has no TZID; remove the Z or the TZID"))
                }
                (ParsedTime::Time(local), false) => {
                    let (form, zone) = match (&named, is_utc) {
                        (_, true) => (EventTimeFormat::Utc, TimeZone::UTC),
                        (Some(named), false) => (EventTimeFormat::Zoned, named.clone()),
                        (None, false) => (EventTimeFormat::Floating, zone.clone()),
                    };
                    Ok(EventTime { form, local, zone })
                }
            }
        };
        line.value.split(',').map(time).collect()
    }

    /// In nanoseconds since the Unix epoch.
    pub(super) fn instant_ns(&self) -> i64 {
        instant_ns(&self.zone, self.local)
    }
}

/// A zone by its IANA name: definitions in the file (VTIMEZONE) are not used.
pub(super) fn read_zone(line: &ContentLine, name: &str) -> Result<TimeZone, CalendarProblem> {
    TimeZone::get(name).map_err(|_| {
        let expected = "expected the IANA name of a time zone such as Europe/Berlin";
        line.problem(format!("unknown time zone {name:?}; {expected}"))
    })
}

enum ParsedTime {
    Date(Date),
    Time(DateTime),
}

/// A date or a time, and whether it ends with `Z`.
fn parse_time(text: &str) -> Option<(ParsedTime, bool)> {
    let date = parse_date(text.get(..8)?)?;
    let Some(rest) = text[8..].strip_prefix('T') else {
        return (text.len() == 8).then_some((ParsedTime::Date(date), false));
    };
    let (digits, is_utc) = match rest.strip_suffix('Z') {
        Some(digits) => (digits, true),
        None => (rest, false),
    };
    let [hour, minute, second] = three_numbers(digits, [2, 2, 2])?;
    // 60 is a leap second.
    let second = if second == 60 { 59 } else { second };
    let part = |number: u16| i8::try_from(number).ok();
    let time = Time::new(part(hour)?, part(minute)?, part(second)?, 0).ok()?;
    Some((ParsedTime::Time(date.to_datetime(time)), is_utc))
}

fn parse_date(text: &str) -> Option<Date> {
    let [year, month, day] = three_numbers(text, [4, 2, 2])?;
    let year = i16::try_from(year).ok()?;
    Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

/// Three numbers of fixed numbers of digits.
fn three_numbers(text: &str, digits: [usize; 3]) -> Option<[u16; 3]> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || text.len() != digits.iter().sum::<usize>() {
        return None;
    }
    let (first, rest) = text.split_at(digits[0]);
    let (second, third) = rest.split_at(digits[1]);
    Some([first.parse().ok()?, second.parse().ok()?, third.parse().ok()?])
}

/// Duration of an event. Local time passes first: a day has 23 or 25 hours when the clock steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventDuration {
    pub(super) local: SignedDuration,
    pub(super) exact: SignedDuration,
}

/// Longest event.
const LENGTH_DAYS_MAX: i64 = 366;
/// Longest event that recurs often: all occurrences that overlap are looked at.
const OFTEN_DAYS_MAX: i64 = 31;

impl EventDuration {
    /// A difference of local times.
    pub(super) fn of_local(local: SignedDuration) -> EventDuration {
        EventDuration { local, exact: SignedDuration::ZERO }
    }

    /// A property DURATION.
    pub(super) fn read(line: &ContentLine) -> Result<EventDuration, CalendarProblem> {
        parse_duration(&line.value).ok_or_else(|| {
            let expected = "expected a duration such as P1W, P1D or PT12H";
            line.problem(format!("{:?}: {expected}", line.value))
        })
    }

    /// Why an event cannot have this length.
    pub(super) fn defect(&self) -> Option<String> {
        let total = self.local.saturating_add(self.exact);
        if total <= SignedDuration::ZERO {
            return Some("the event does not end after it begins".to_owned());
        }
        let max = SignedDuration::from_hours(24 * LENGTH_DAYS_MAX);
        (total > max).then(|| format!("the event is longer than {LENGTH_DAYS_MAX} days"))
    }

    /// Why an event that recurs often cannot have this length.
    pub(super) fn defect_of_often(&self) -> Option<String> {
        let max = SignedDuration::from_hours(24 * OFTEN_DAYS_MAX);
        let is_longer = self.local.saturating_add(self.exact) > max;
        is_longer.then(|| {
            format!(
                "an event of a DAILY or WEEKLY rule, or of one with several days of a month, \
                 lasts at most {OFTEN_DAYS_MAX} days; add an event for each occurrence"
            )
        })
    }

    /// Days that have begun when it ends.
    pub(super) fn days(&self) -> i64 {
        self.local.saturating_add(self.exact).as_hours() / 24 + 1
    }

    /// End of an occurrence that begins at a local time.
    pub(super) fn end_ns(&self, zone: &TimeZone, start: DateTime) -> i64 {
        let Ok(local) = start.checked_add(self.local) else { return i64::MAX };
        let exact_ns = i64::try_from(self.exact.as_nanos()).unwrap_or(i64::MAX);
        instant_ns(zone, local).saturating_add(exact_ns)
    }
}

/// `P1W`, `P1DT12H`, `PT30M`.
fn parse_duration(text: &str) -> Option<EventDuration> {
    let text = text.strip_prefix('+').unwrap_or(text).strip_prefix('P')?;
    let (days, time) = match text.split_once('T') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None => (text, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let local = sum_of_units(days, &[('W', 7 * 86_400), ('D', 86_400)])?;
    let exact = sum_of_units(time, &[('H', 3600), ('M', 60), ('S', 1)])?;
    Some(EventDuration { local, exact })
}

/// Numbers with units, in the order of the units.
fn sum_of_units(text: &str, units: &[(char, i64)]) -> Option<SignedDuration> {
    let (mut rest, mut seconds) = (text, 0_i64);
    for (unit, unit_seconds) in units {
        let Some(end) = rest.find(|one: char| !one.is_ascii_digit()) else { break };
        if !rest[end..].starts_with(*unit) {
            continue;
        }
        // More digits would exceed any length.
        let number: i64 = rest.get(..end).filter(|digits| digits.len() <= 9)?.parse().ok()?;
        seconds = seconds.checked_add(number.checked_mul(*unit_seconds)?)?;
        rest = &rest[end + 1..];
    }
    rest.is_empty().then(|| SignedDuration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::super::content_line::read_lines;
    use super::*;

    fn line(text: &str) -> ContentLine {
        read_lines(text.as_bytes()).0.remove(0)
    }

    fn berlin() -> TimeZone {
        TimeZone::get("Europe/Berlin").unwrap()
    }

    #[track_caller]
    fn check(text: &str, form: EventTimeFormat, instant: &str) {
        let time = EventTime::read(&line(text), &berlin()).unwrap();
        let instant: jiff::Timestamp = instant.parse().unwrap();
        assert_eq!(time.form, form, "{text}");
        assert_eq!(i128::from(time.instant_ns()), instant.as_nanosecond(), "{text}");
    }

    #[track_caller]
    fn problem(text: &str) -> String {
        EventTime::read(&line(text), &berlin()).unwrap_err().what
    }

    #[test]
    fn a_time_is_in_utc_in_its_zone_or_in_that_of_the_rotation() {
        check("A:20260105T090000Z", EventTimeFormat::Utc, "2026-01-05T09:00:00Z");
        check("A:20260105T090000", EventTimeFormat::Floating, "2026-01-05T08:00:00Z");
        check(
            "A;TZID=America/New_York:20260105T090000",
            EventTimeFormat::Zoned,
            "2026-01-05T14:00:00Z",
        );
        check("A;VALUE=DATE:20260705", EventTimeFormat::Date, "2026-07-04T22:00:00Z");
        check("A:20261231T235960Z", EventTimeFormat::Utc, "2026-12-31T23:59:59Z");
        // It does not exist, and exists twice.
        check("A:20260329T023000", EventTimeFormat::Floating, "2026-03-29T01:30:00Z");
        check("A:20261025T023000", EventTimeFormat::Floating, "2026-10-25T00:30:00Z");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let text = "A;TZID=W. Europe Standard Time:20260105T090000";
        let expected = "A: unknown time zone \"W. Europe Standard Time\"; expected the IANA name \
                        of a time zone such as Europe/Berlin";
        assert_eq!(problem(text), expected);
        assert_eq!(problem("A:20260105"), "A: \"20260105\" is a date; add ;VALUE=DATE");
        let expected = "A: \"20260105T090000\" is not a date; remove ;VALUE=DATE";
        assert_eq!(problem("A;VALUE=DATE:20260105T090000"), expected);
        assert_eq!(problem("A:20260105T090000,20260106T090000"), "A: expected one time");
        let expected = "A: VALUE=PERIOD is not supported; use DATE-TIME";
        assert_eq!(problem("A;VALUE=PERIOD:20260105T090000Z/P1D"), expected);
        let expected = "A: a time in UTC has no TZID; remove the Z or the TZID";
        assert_eq!(problem("A;TZID=Europe/Berlin:20260105T090000Z"), expected);
        for text in ["", "2026", "20261301T000000", "20260230", "20260105T0900", "2026010５", "x"]
        {
            assert!(problem(&format!("A:{text}")).contains("expected 2026"), "{text}");
        }
    }

    #[test]
    fn days_of_a_duration_pass_in_local_time_and_hours_exactly() {
        let length = |text: &str| EventDuration::read(&line(&format!("DURATION:{text}")));
        let hours = |hours| SignedDuration::from_hours(hours);
        let check = |text: &str, local: i64, exact: i64| {
            let expected = EventDuration { local: hours(local), exact: hours(exact) };
            assert_eq!(length(text), Ok(expected), "{text}");
        };
        check("P1W", 168, 0);
        check("P1DT12H", 24, 12);
        check("+PT90M1800S", 0, 2);
        let invalid = "P PT P1DT -P1D P1H PT1D PT1M1H P1.5D P9999999999D";
        for text in invalid.split(' ').chain([""]) {
            assert!(length(text).is_err(), "{text}");
        }
        let day = length("P1D").unwrap();
        let start = "2026-03-28T09:00".parse().unwrap();
        let expected: jiff::Timestamp = "2026-03-29T07:00:00Z".parse().unwrap();
        assert_eq!(i128::from(day.end_ns(&berlin(), start)), expected.as_nanosecond());
        let exact = length("PT24H").unwrap();
        let expected: jiff::Timestamp = "2026-03-29T08:00:00Z".parse().unwrap();
        assert_eq!(i128::from(exact.end_ns(&berlin(), start)), expected.as_nanosecond());
    }

    #[test]
    fn an_event_has_a_length_of_at_most_a_year() {
        let length = |text: &str| EventDuration::read(&line(&format!("A:{text}"))).unwrap();
        let defect = |text: &str| length(text).defect();
        assert_eq!(defect("P366D"), None);
        assert_eq!(defect("P366DT1S").unwrap(), "the event is longer than 366 days");
        assert_eq!(defect("PT0S").unwrap(), "the event does not end after it begins");
    }
}
