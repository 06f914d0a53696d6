//! Recurrence rules of events (RFC 5545, 3.3.10): the dates on which an event begins.
//!
//! Supported are DAILY, WEEKLY and MONTHLY rules with INTERVAL, COUNT, UNTIL, BYDAY, BYMONTHDAY
//! (of months) and WKST. A *period* is the day, week or month in which a rule has dates; periods
//! are numbered from that of the first date.

use jiff::SignedDuration;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;

use super::CalendarProblem;
use super::content_line::ContentLine;
use super::event_time::{EventTime, EventTimeFormat};

/// Largest COUNT: 13 years of days.
const COUNT_MAX: u32 = 5_000;
/// Largest INTERVAL.
const INTERVAL_MAX: i64 = 10_000;
/// More days than the years 0 to 9999 have.
const DAYS_MAX: i64 = 4_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecurrenceFrequency {
    Daily,
    Weekly,
    Monthly,
}

/// Weekday of BYDAY, with its number in the month: `MO`, `1MO`, `-1FR`.
#[derive(Clone, Copy, Debug)]
struct OrdinalWeekday {
    ordinal: Option<i8>,
    weekday: Weekday,
}

/// A property RRULE.
#[derive(Clone, Debug)]
pub(super) struct RecurrenceRule {
    frequency: RecurrenceFrequency,
    /// At least 1.
    interval: i64,
    pub(super) count: Option<u32>,
    /// The last occurrence begins at this time or before.
    pub(super) until: Option<EventTime>,
    by_day: Vec<OrdinalWeekday>,
    by_month_day: Vec<i8>,
    week_start: Weekday,
}

impl RecurrenceRule {
    /// Whether it may have several dates in a month.
    pub(super) fn recurs_within_month(&self) -> bool {
        let is_single = match self.by_day[..] {
            [] => self.by_month_day.len() <= 1,
            [day] => day.ordinal.is_some(),
            _ => false,
        };
        self.frequency != RecurrenceFrequency::Monthly || !is_single
    }

    /// Reads a property; `zone` is that of times without one.
    pub(super) fn read(
        line: &ContentLine,
        zone: &TimeZone,
    ) -> Result<RecurrenceRule, CalendarProblem> {
        let mut rule = RecurrenceRule {
            frequency: RecurrenceFrequency::Daily,
            interval: 1,
            count: None,
            until: None,
            by_day: Vec::new(),
            by_month_day: Vec::new(),
            week_start: Weekday::Monday,
        };
        let mut known: Vec<String> = Vec::new();
        for part in line.value.split(';') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = name.to_ascii_uppercase();
            rule.set(&name, value, line, zone)?;
            if known.contains(&name) {
                return Err(line.problem(format!("{name} is given twice")));
            }
            known.push(name);
        }
        if !known.iter().any(|name| name == "FREQ") {
            return Err(line.problem("FREQ is missing"));
        }
        rule.check().map_err(|what| line.problem(what))?;
        Ok(rule)
    }

    fn set(
        &mut self,
        name: &str,
        value: &str,
        line: &ContentLine,
        zone: &TimeZone,
    ) -> Result<(), CalendarProblem> {
        let invalid = |expected: &str| line.problem(format!("{name}={value}: expected {expected}"));
        match name {
            "FREQ" => {
                self.frequency = match value.to_ascii_uppercase().as_str() {
                    "DAILY" => RecurrenceFrequency::Daily,
                    "WEEKLY" => RecurrenceFrequency::Weekly,
                    "MONTHLY" => RecurrenceFrequency::Monthly,
                    _ => return Err(invalid("DAILY, WEEKLY or MONTHLY")),
                };
            }
            "INTERVAL" => {
                let interval = parse_digits(value).filter(|of| (1..=INTERVAL_MAX).contains(of));
                self.interval = interval.ok_or_else(|| invalid("a number from 1 to 10000"))?;
            }
            "COUNT" => {
                let count = parse_digits(value).and_then(|count| u32::try_from(count).ok());
                let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
                self.count = Some(count.ok_or_else(|| invalid("a number from 1 to 5000"))?);
            }
            "UNTIL" => self.until = Some(read_until(value, line, zone)?),
            "WKST" => {
                self.week_start = parse_weekday(value).ok_or_else(|| invalid("MO to SU"))?;
            }
            "BYDAY" => {
                let days = value.split(',').map(parse_ordinal_weekday).collect::<Option<_>>();
                self.by_day = days.ok_or_else(|| invalid("weekdays such as MO,TU or 1MO,-1FR"))?;
            }
            "BYMONTHDAY" => {
                let days = value.split(',').map(parse_month_day).collect::<Option<_>>();
                self.by_month_day =
                    days.ok_or_else(|| invalid("days from 1 to 31 or -31 to -1"))?;
            }
            _ => {
                let supported = "FREQ, INTERVAL, COUNT, UNTIL, BYDAY, BYMONTHDAY and WKST";
                let what = format!("{name:?} is not supported; known: {supported}");
                return Err(line.problem(what));
            }
        }
        Ok(())
    }

    /// Parts that exclude each other.
    fn check(&self) -> Result<(), &'static str> {
        let is_monthly = self.frequency == RecurrenceFrequency::Monthly;
        if self.count.is_some() && self.until.is_some() {
            return Err("COUNT and UNTIL exclude each other; keep one");
        }
        if !is_monthly && self.by_day.iter().any(|day| day.ordinal.is_some()) {
            return Err("a weekday has a number in MONTHLY rules only");
        }
        if !is_monthly && !self.by_month_day.is_empty() {
            return Err("BYMONTHDAY is supported in MONTHLY rules only");
        }
        if !self.by_day.is_empty() && !self.by_month_day.is_empty() {
            return Err("BYDAY and BYMONTHDAY in one rule are not supported");
        }
        Ok(())
    }

    /// Number of the period of a date.
    pub(super) fn period_of(&self, first: Date, date: Date) -> i64 {
        let passed = match self.frequency {
            RecurrenceFrequency::Daily => days_between(first, date),
            RecurrenceFrequency::Weekly => {
                let date_start = days_between(first, date) - self.day_of_week(date);
                (date_start + self.day_of_week(first)).div_euclid(7)
            }
            RecurrenceFrequency::Monthly => month_number(date) - month_number(first),
        };
        passed.div_euclid(self.interval)
    }

    /// The dates of a period in their order, including those before the first one; `None` beyond
    /// the end of the calendar.
    pub(super) fn dates_of(&self, first: Date, period: i64) -> Option<Vec<Date>> {
        let passed = self.interval.checked_mul(period)?;
        let mut dates = match self.frequency {
            RecurrenceFrequency::Daily => {
                let date = add_days(first, passed)?;
                let is_meant = |day: &OrdinalWeekday| day.weekday == date.weekday();
                let is_date = self.by_day.is_empty() || self.by_day.iter().any(is_meant);
                if is_date { vec![date] } else { Vec::new() }
            }
            RecurrenceFrequency::Weekly => {
                let start = passed.checked_mul(7)?.checked_sub(self.day_of_week(first))?;
                let of_first = [OrdinalWeekday { ordinal: None, weekday: first.weekday() }];
                let days: &[_] = if self.by_day.is_empty() { &of_first } else { &self.by_day };
                let date = |day: &OrdinalWeekday| {
                    let offset = i64::from(day.weekday.since(self.week_start));
                    add_days(first, start.checked_add(offset)?)
                };
                days.iter().map(date).collect::<Option<Vec<Date>>>()?
            }
            RecurrenceFrequency::Monthly => {
                self.dates_of_month(first, month_number(first).checked_add(passed)?)?
            }
        };
        model::sort::by(&mut dates, Ord::cmp);
        dates.dedup();
        Some(dates)
    }

    fn dates_of_month(&self, first: Date, month: i64) -> Option<Vec<Date>> {
        let year = i16::try_from(month.div_euclid(12)).ok()?;
        let start = Date::new(year, i8::try_from(month.rem_euclid(12)).ok()? + 1, 1).ok()?;
        let of_day = |day: i8| {
            let day = if day < 0 { start.days_in_month() + day + 1 } else { day };
            Date::new(start.year(), start.month(), day).ok()
        };
        if self.by_day.is_empty() {
            let of_first = [first.day()];
            let days: &[i8] =
                if self.by_month_day.is_empty() { &of_first } else { &self.by_month_day };
            // Months without this day are skipped.
            return Some(days.iter().filter_map(|&day| of_day(day)).collect());
        }
        let of_weekday = |day: &OrdinalWeekday| -> Vec<Date> {
            let nth = |nth: i8| start.nth_weekday_of_month(nth, day.weekday).ok();
            match day.ordinal {
                Some(ordinal) => nth(ordinal).into_iter().collect(),
                None => (1..=5).filter_map(nth).collect(),
            }
        };
        Some(self.by_day.iter().flat_map(of_weekday).collect())
    }

    /// Days since the start of the week.
    fn day_of_week(&self, date: Date) -> i64 {
        date.weekday().since(self.week_start).into()
    }
}

/// The time of UNTIL has the form of DTSTART; with a zone it is in UTC.
fn read_until(
    value: &str,
    line: &ContentLine,
    zone: &TimeZone,
) -> Result<EventTime, CalendarProblem> {
    let form = if value.contains('T') { "DATE-TIME" } else { "DATE" };
    let time = ContentLine::new(line.line, "UNTIL", &[("VALUE", form)], value);
    EventTime::read(&time, zone)
}

/// Whether RFC 5545 allows the format of UNTIL beside that of DTSTART.
pub(super) fn is_until_format_valid(start: EventTimeFormat, until: EventTimeFormat) -> bool {
    match start {
        EventTimeFormat::Zoned | EventTimeFormat::Utc => until == EventTimeFormat::Utc,
        EventTimeFormat::Date | EventTimeFormat::Floating => until == start,
    }
}

pub(super) fn add_days(date: Date, days: i64) -> Option<Date> {
    let days = Some(days).filter(|days| days.abs() <= DAYS_MAX)?;
    date.checked_add(SignedDuration::from_hours(24 * days)).ok()
}

fn days_between(from: Date, to: Date) -> i64 {
    to.duration_since(from).as_hours().div_euclid(24)
}

/// Months since the year 0.
fn month_number(date: Date) -> i64 {
    12 * i64::from(date.year()) + i64::from(date.month()) - 1
}

fn parse_digits(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn parse_weekday(text: &str) -> Option<Weekday> {
    Some(match text.to_ascii_uppercase().as_str() {
        "MO" => Weekday::Monday,
        "TU" => Weekday::Tuesday,
        "WE" => Weekday::Wednesday,
        "TH" => Weekday::Thursday,
        "FR" => Weekday::Friday,
        "SA" => Weekday::Saturday,
        "SU" => Weekday::Sunday,
        _ => return None,
    })
}

fn parse_ordinal_weekday(text: &str) -> Option<OrdinalWeekday> {
    let (ordinal, name) = text.split_at_checked(text.len().checked_sub(2)?)?;
    let weekday = parse_weekday(name)?;
    if ordinal.is_empty() {
        return Some(OrdinalWeekday { ordinal: None, weekday });
    }
    let ordinal = parse_signed(ordinal).filter(|ordinal| (1..=5).contains(&ordinal.abs()))?;
    Some(OrdinalWeekday { ordinal: Some(ordinal), weekday })
}

fn parse_month_day(text: &str) -> Option<i8> {
    parse_signed(text).filter(|day| (1..=31).contains(&day.abs()))
}

/// A number of at most two digits.
fn parse_signed(text: &str) -> Option<i8> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = parse_digits(digits).filter(|&number| number < 100)?;
    let number = i8::try_from(number).ok()?;
    Some(if text.starts_with('-') { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::super::content_line::read_lines;
    use super::*;

    fn read(text: &str) -> Result<RecurrenceRule, CalendarProblem> {
        let line = read_lines(format!("RRULE:{text}").as_bytes()).0.remove(0);
        RecurrenceRule::read(&line, &TimeZone::UTC)
    }

    /// The first dates of a rule, from its first one on.
    #[track_caller]
    fn check(text: &str, first: &str, expected: &[&str]) {
        let rule = read(text).unwrap();
        let first: Date = first.parse().unwrap();
        let dates = (0..).map_while(|period| rule.dates_of(first, period)).flatten();
        let dates: Vec<Date> = dates.filter(|date| *date >= first).take(expected.len()).collect();
        let shown: Vec<String> = dates.iter().map(ToString::to_string).collect();
        assert_eq!(shown, expected, "{text}");
        for date in dates {
            let period = rule.period_of(first, date);
            assert!(rule.dates_of(first, period).unwrap().contains(&date), "{text}: {date}");
        }
    }

    #[test]
    fn days_have_an_interval_and_may_be_of_the_working_week() {
        check("FREQ=DAILY;INTERVAL=3", "2026-02-26", &["2026-02-26", "2026-03-01", "2026-03-04"]);
        let friday = ["2026-01-02", "2026-01-05", "2026-01-06"];
        check("FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR", "2026-01-02", &friday);
    }

    #[test]
    fn weeks_have_an_interval_days_and_a_first_day() {
        check("FREQ=WEEKLY;INTERVAL=2", "2026-01-07", &["2026-01-07", "2026-01-21", "2026-02-04"]);
        let days = ["2026-01-06", "2026-01-08", "2026-01-13"];
        check("FREQ=WEEKLY;BYDAY=TH,TU", "2026-01-06", &days);
        // The example of RFC 5545, 3.3.10: the first day of the week counts.
        let monday = ["1997-08-05", "1997-08-10", "1997-08-19", "1997-08-24"];
        check("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=MO", "1997-08-05", &monday);
        let sunday = ["1997-08-05", "1997-08-17", "1997-08-19", "1997-08-31"];
        check("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=SU", "1997-08-05", &sunday);
    }

    #[test]
    fn months_have_days_and_numbered_weekdays() {
        // Months without a 31st are skipped.
        check("FREQ=MONTHLY", "2026-01-31", &["2026-01-31", "2026-03-31", "2026-05-31"]);
        let last = ["2026-01-31", "2026-02-28", "2026-03-31"];
        check("FREQ=MONTHLY;BYMONTHDAY=-1", "2026-01-31", &last);
        let both = ["2026-01-01", "2026-01-15", "2026-03-01"];
        check("FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=15,1", "2026-01-01", &both);
        let ends = ["2026-01-05", "2026-01-30", "2026-02-02", "2026-02-27"];
        check("FREQ=MONTHLY;BYDAY=1MO,-1FR", "2026-01-05", &ends);
        let mondays = ["2026-01-26", "2026-02-02", "2026-02-09"];
        check("FREQ=MONTHLY;BYDAY=MO", "2026-01-26", &mondays);
        let fifth = ["2026-03-30", "2026-06-29", "2026-08-31"];
        check("FREQ=MONTHLY;BYDAY=5MO", "2026-03-30", &fifth);
        check("FREQ=MONTHLY;INTERVAL=12", "2096-02-29", &["2096-02-29", "2104-02-29"]);
    }

    #[test]
    fn a_rule_ends_with_the_calendar() {
        let rule = read("FREQ=MONTHLY;INTERVAL=10000").unwrap();
        let first = Date::new(2026, 1, 1).unwrap();
        assert!(rule.dates_of(first, 9).is_some());
        assert_eq!(rule.dates_of(first, 10), None);
        assert_eq!(rule.dates_of(first, i64::MAX), None);
        let rule = read("FREQ=WEEKLY;INTERVAL=10000").unwrap();
        assert_eq!(rule.dates_of(first, i64::MAX / 10_000), None);
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let check = |text: &str, expected: &str| {
            assert_eq!(read(text).unwrap_err().what, format!("RRULE: {expected}"), "{text}");
        };
        check("FREQ=YEARLY", "FREQ=YEARLY: expected DAILY, WEEKLY or MONTHLY");
        check("INTERVAL=2", "FREQ is missing");
        check("FREQ=DAILY;FREQ=DAILY", "FREQ is given twice");
        check("FREQ=DAILY;INTERVAL=0", "INTERVAL=0: expected a number from 1 to 10000");
        check("FREQ=DAILY;COUNT=5001", "COUNT=5001: expected a number from 1 to 5000");
        let exclude = "COUNT and UNTIL exclude each other; keep one";
        check("FREQ=DAILY;COUNT=5;UNTIL=20260101T000000Z", exclude);
        check("FREQ=WEEKLY;BYDAY=1MO", "a weekday has a number in MONTHLY rules only");
        check("FREQ=DAILY;BYMONTHDAY=1", "BYMONTHDAY is supported in MONTHLY rules only");
        let both = "BYDAY and BYMONTHDAY in one rule are not supported";
        check("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", both);
        let supported = "is not supported; known: FREQ, INTERVAL, COUNT, UNTIL, BYDAY, BYMONTHDAY \
                         and WKST";
        check("FREQ=MONTHLY;BYSETPOS=1", &format!("\"BYSETPOS\" {supported}"));
        check("FREQ=DAILY;", &format!("\"\" {supported}"));
        for day in ["", "M", "XX", "0MO", "6MO", "1", "--1MO", "MOx", "é", "100MO"] {
            let expected = format!("BYDAY={day}: expected weekdays such as MO,TU or 1MO,-1FR");
            check(&format!("FREQ=MONTHLY;BYDAY={day}"), &expected);
        }
        for day in ["", "0", "32", "-32", "x"] {
            let expected = format!("BYMONTHDAY={day}: expected days from 1 to 31 or -31 to -1");
            check(&format!("FREQ=MONTHLY;BYMONTHDAY={day}"), &expected);
        }
        let until = read("FREQ=DAILY;UNTIL=2026").unwrap_err().what;
        assert!(until.starts_with("UNTIL: \"2026\": expected 20260105T090000"), "{until}");
    }
}
