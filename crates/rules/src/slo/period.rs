//! Period of an objective: rolling, or of the calendar.

use std::fmt;
use std::ops::Range;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use query::promql::parse_duration;
use store::DAY;

/// Bounds of a rolling period. The windows of alerts are a part of a shorter one's budget that is
/// too large; a longer one asks for more history than a page shows.
const ROLLING_MIN: i64 = 7 * DAY;
const ROLLING_MAX: i64 = 400 * DAY;

/// Period in which an objective applies.
#[derive(Clone, Debug, PartialEq)]
pub enum Period {
    /// The time before now, in nanoseconds.
    Rolling(i64),
    /// The current month, quarter or year.
    Calendar(CalendarUnit, TimeZone),
}

/// Unit of a period of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// Month.
    Month,
    /// Three months, from January, April, July and October.
    Quarter,
    /// Year.
    Year,
}

impl CalendarUnit {
    fn parse(text: &str) -> Option<CalendarUnit> {
        match text {
            "month" => Some(CalendarUnit::Month),
            "quarter" => Some(CalendarUnit::Quarter),
            "year" => Some(CalendarUnit::Year),
            _ => None,
        }
    }

    /// Name, as in settings.
    pub fn text(self) -> &'static str {
        match self {
            CalendarUnit::Month => "month",
            CalendarUnit::Quarter => "quarter",
            CalendarUnit::Year => "year",
        }
    }

    fn months(self) -> i8 {
        match self {
            CalendarUnit::Month => 1,
            CalendarUnit::Quarter => 3,
            CalendarUnit::Year => 12,
        }
    }
}

impl Period {
    /// `30d`, or `month`, `quarter`, `year` with a zone; UTC by default.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Period, String> {
        if let Some(unit) = CalendarUnit::parse(text) {
            let zone = match zone {
                None => TimeZone::UTC,
                Some(name) => TimeZone::get(name).map_err(|_| {
                    format!("zone: found {name:?}, expected a name such as Europe/Berlin")
                })?,
            };
            return Ok(Period::Calendar(unit, zone));
        }
        if zone.is_some() {
            return Err("zone: only periods of the calendar have a zone; remove it".to_owned());
        }
        let expected = "a duration such as 30d, or month, quarter or year";
        let length = parse_duration(text)
            .map_err(|_| format!("period: found {text:?}, expected {expected}"))?;
        if !(ROLLING_MIN..=ROLLING_MAX).contains(&length) {
            return Err(format!("period: found {text}, expected 7d to 400d"));
        }
        Ok(Period::Rolling(length))
    }

    /// Length in nanoseconds for burn factors: 30, 90 and 365 days for periods of the calendar.
    pub(crate) fn nominal_ns(&self) -> i64 {
        match self {
            Period::Rolling(length) => *length,
            Period::Calendar(CalendarUnit::Month, _) => 30 * DAY,
            Period::Calendar(CalendarUnit::Quarter, _) => 90 * DAY,
            Period::Calendar(CalendarUnit::Year, _) => 365 * DAY,
        }
    }

    /// Zone of its days: UTC for a rolling one.
    pub fn zone(&self) -> TimeZone {
        match self {
            Period::Rolling(_) => TimeZone::UTC,
            Period::Calendar(_, zone) => zone.clone(),
        }
    }

    /// Part of the period until a time: the time before it, or since the start of the month.
    pub fn until(&self, time_ns: i64) -> Range<i64> {
        let start = match self {
            Period::Rolling(length) => time_ns.saturating_sub(*length),
            // The last instant that belongs to the period: at midnight a month is complete.
            Period::Calendar(unit, zone) => {
                calendar_start(*unit, zone, time_ns.saturating_sub(1)).unwrap_or(time_ns)
            }
        };
        start..time_ns
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Rolling(length) => f.write_str(&decode::duration_text(*length)),
            Period::Calendar(unit, zone) => {
                let zone = zone.iana_name().unwrap_or("UTC");
                write!(f, "calendar {} ({zone})", unit.text())
            }
        }
    }
}

/// Start of the period of the calendar that has a time.
fn calendar_start(unit: CalendarUnit, zone: &TimeZone, time_ns: i64) -> Option<i64> {
    let time = Timestamp::from_nanosecond(time_ns.into()).ok()?.to_zoned(zone.clone());
    let month = (time.month() - 1) / unit.months() * unit.months() + 1;
    zoned_start(Date::new(time.year(), month, 1).ok()?, zone)
}

/// Start of the day that has a time, and of the next one.
pub(super) fn day_around(zone: &TimeZone, time_ns: i64) -> Option<Range<i64>> {
    let date = Timestamp::from_nanosecond(time_ns.into()).ok()?.to_zoned(zone.clone()).date();
    let next = date.checked_add(1.day()).ok()?;
    Some(zoned_start(date, zone)?..zoned_start(next, zone)?)
}

fn zoned_start(date: Date, zone: &TimeZone) -> Option<i64> {
    let start = date.to_zoned(zone.clone()).ok()?.timestamp();
    i64::try_from(start.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> i64 {
        let time: Timestamp = text.parse().unwrap();
        i64::try_from(time.as_nanosecond()).unwrap()
    }

    #[track_caller]
    fn check(period: &str, zone: Option<&str>, until: &str, start: &str) {
        let period = Period::parse(period, zone).unwrap();
        assert_eq!(period.until(ns(until)), ns(start)..ns(until));
    }

    #[test]
    fn periods_of_the_calendar_start_at_midnight_of_their_zone() {
        check("month", None, "2026-11-26T12:00:00Z", "2026-11-01T00:00:00Z");
        // Winter time begins on October 25.
        check("month", Some("Europe/Berlin"), "2026-10-31T12:00:00Z", "2026-09-30T22:00:00Z");
        check("month", Some("Europe/Berlin"), "2026-11-01T00:00:00Z", "2026-10-31T23:00:00Z");
        check("quarter", None, "2026-11-26T12:00:00Z", "2026-10-01T00:00:00Z");
        check("year", None, "2026-11-26T12:00:00Z", "2026-01-01T00:00:00Z");
        check("30d", None, "2026-11-30T00:00:00Z", "2026-10-31T00:00:00Z");
        // At its end a month is complete.
        check("month", None, "2026-12-01T00:00:00Z", "2026-11-01T00:00:00Z");
    }

    #[test]
    fn day_of_a_clock_change_has_23_or_25_hours() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let hours = |text: &str| {
            let day = day_around(&zone, ns(text)).unwrap();
            (day.end - day.start) / store::HOUR
        };
        assert_eq!(hours("2026-10-25T12:00:00Z"), 25);
        assert_eq!(hours("2026-03-29T12:00:00Z"), 23);
        assert_eq!(hours("2026-11-26T12:00:00Z"), 24);
    }

    #[test]
    fn invalid_periods_are_explained() {
        let error = |period: &str, zone| Period::parse(period, zone).unwrap_err();
        assert!(error("week", None).contains("month, quarter or year"));
        assert!(error("1d", None).contains("7d to 400d"));
        assert!(error("month", Some("Berlin")).contains("Europe/Berlin"));
        assert!(error("30d", Some("UTC")).contains("remove it"));
    }
}
