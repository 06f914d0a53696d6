//! Texts of time intervals: `09:00`, `monday:friday`, `-3:-1`, `march`, `2026:2027`, and names of
//! time zones, as Alertmanager writes them.

use std::ops::RangeInclusive;

use jiff::tz::TimeZone;
use serde::Deserialize;

const WEEKDAYS: [&str; 7] =
    ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Days of the longest month.
const DAYS_MAX: i8 = 31;

/// Time of day in minutes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct DayMinute(pub(super) u32);

impl TryFrom<String> for DayMinute {
    type Error = String;

    fn try_from(text: String) -> Result<DayMinute, String> {
        let number = |text: &str, max: u32| {
            let is_valid = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|&number: &u32| is_valid && number <= max)
        };
        let parsed = text
            .split_once(':')
            .and_then(|(hours, minutes)| Some(number(hours, 24)? * 60 + number(minutes, 59)?));
        let minute = parsed.filter(|&minute| minute <= 24 * 60);
        let expected = || format!("{text:?}: expected a time from \"00:00\" to \"24:00\"");
        minute.map(DayMinute).ok_or_else(expected)
    }
}

/// Range of weekdays; 0 is Sunday.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct WeekdayRange(pub(super) RangeInclusive<i8>);

impl TryFrom<String> for WeekdayRange {
    type Error = String;

    fn try_from(text: String) -> Result<WeekdayRange, String> {
        let expected = "a weekday or a range such as \"monday:friday\"";
        range(&text, expected, |name| position(&WEEKDAYS, name)).map(WeekdayRange)
    }
}

/// Range of days of the month; negative ones count from the end.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct MonthDayRange {
    pub(super) start: i8,
    pub(super) end: i8,
}

impl TryFrom<String> for MonthDayRange {
    type Error = String;

    fn try_from(text: String) -> Result<MonthDayRange, String> {
        let expected =
            "a day from 1 to 31 or -31 to -1, or a range such as \"1:5\", \"15:-1\" or \"-3:-1\"";
        let day = |text: &str| {
            text.parse::<i8>().ok().filter(|day| (1..=31).contains(&day.unsigned_abs()))
        };
        let (start, end) = pair(&text, expected, day)?;
        // Of the longest month. As in Alertmanager, a range that begins before the end of a month
        // does not end after a start.
        let from_start = |day: i8| if day < 0 { DAYS_MAX + day + 1 } else { day };
        let is_ordered = from_start(start) <= from_start(end) && !(start < 0 && end > 0);
        match is_ordered {
            true => Ok(MonthDayRange { start, end }),
            false => Err(format!("{text:?}: expected {expected}")),
        }
    }
}

/// Range of months; 1 is January.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct MonthRange(pub(super) RangeInclusive<i8>);

impl TryFrom<String> for MonthRange {
    type Error = String;

    fn try_from(text: String) -> Result<MonthRange, String> {
        let expected = "a month or a range such as \"june:august\" or \"6:8\"";
        let month = |name: &str| {
            let number = name.parse::<i8>().ok().filter(|month| (1..=12).contains(month));
            number.or_else(|| position(&MONTHS, name).map(|month| month + 1))
        };
        range(&text, expected, month).map(MonthRange)
    }
}

/// Range of years.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct YearRange(pub(super) RangeInclusive<i16>);

impl TryFrom<String> for YearRange {
    type Error = String;

    fn try_from(text: String) -> Result<YearRange, String> {
        let year = |text: &str| text.parse::<i16>().ok().filter(|year| (1..=9999).contains(year));
        range(&text, "a year or a range such as \"2026:2027\"", year).map(YearRange)
    }
}

/// Name of a time zone.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ZoneName(pub(crate) TimeZone);

impl Default for ZoneName {
    fn default() -> ZoneName {
        ZoneName(TimeZone::UTC)
    }
}

impl TryFrom<String> for ZoneName {
    type Error = String;

    fn try_from(text: String) -> Result<ZoneName, String> {
        let zone = match text.as_str() {
            "Local" => TimeZone::try_system(),
            name => TimeZone::get(name),
        };
        let expected = "expected the name of a time zone such as \"Europe/Berlin\" or \"UTC\"";
        zone.map(ZoneName).map_err(|_| format!("{text:?}: {expected}"))
    }
}

fn range<T: PartialOrd + Copy>(
    text: &str,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<RangeInclusive<T>, String> {
    let (start, end) = pair(text, expected, parse)?;
    match start <= end {
        true => Ok(start..=end),
        false => Err(format!("{:?}: expected {expected}", text.trim())),
    }
}

/// Both ends of a range, which are the same of a single one.
fn pair<T: Copy>(
    text: &str,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<(T, T), String> {
    let text = text.trim();
    let (start, end) = text.split_once(':').unwrap_or((text, text));
    let parsed = parse(start.trim()).zip(parse(end.trim()));
    parsed.ok_or_else(|| format!("{text:?}: expected {expected}"))
}

fn position(names: &[&str], name: &str) -> Option<i8> {
    let at = names.iter().position(|known| name.eq_ignore_ascii_case(known))?;
    i8::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_alertmanager_are_read() {
        let own = str::to_owned;
        assert_eq!(DayMinute::try_from(own("24:00")).unwrap().0, 1440);
        assert_eq!(DayMinute::try_from(own("09:05")).unwrap().0, 545);
        assert_eq!(WeekdayRange::try_from(own("Monday:friday")).unwrap().0, 1..=5);
        for (text, start, end) in [("-3:-1", -3, -1), ("15:-1", 15, -1), ("1:-31", 1, -31)] {
            let range = MonthDayRange::try_from(own(text)).unwrap();
            assert_eq!((range.start, range.end), (start, end), "{text}");
        }
        assert_eq!(MonthRange::try_from(own("june:8")).unwrap().0, 6..=8);
        assert_eq!(YearRange::try_from(own("2026")).unwrap().0, 2026..=2026);
        for text in ["24:01", "9:00", "09:60", "+9:00", "nine"] {
            assert!(DayMinute::try_from(own(text)).is_err(), "{text}");
        }
        for text in ["friday:monday", "mon", ""] {
            assert!(WeekdayRange::try_from(own(text)).is_err(), "{text}");
        }
        for text in ["0", "32", "-1:1", "5:1", "1:40", "16:-20"] {
            assert!(MonthDayRange::try_from(own(text)).is_err(), "{text}");
        }
    }
}
