//! Times and durations as Go prints them, and the layouts of `Format`. All times are UTC.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The civil time of nanoseconds since 1970.
pub(super) fn civil(time_ns: i64) -> DateTime {
    // Every i64 of nanoseconds is within jiff's years -9999..9999.
    let timestamp =
        Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or(Timestamp::UNIX_EPOCH);
    timestamp.to_zoned(TimeZone::UTC).datetime()
}

/// The name of a month, 1..=12.
pub(super) fn month_name(month: i8) -> &'static str {
    usize::try_from(month - 1).ok().and_then(|index| MONTHS.get(index)).unwrap_or(&"")
}

/// The name of the weekday of a time.
pub(super) fn weekday_name(time: DateTime) -> &'static str {
    let index = time.weekday().to_sunday_zero_offset();
    usize::try_from(index).ok().and_then(|index| WEEKDAYS.get(index)).unwrap_or(&"")
}

/// `2006-01-02 15:04:05.999999999 +0000 UTC`.
pub(super) fn time_text(time_ns: i64) -> String {
    format_time(time_ns, "2006-01-02 15:04:05.999999999 -0700 MST")
}

/// A duration as `1h2m3.5s`.
pub(super) fn duration_text(span_ns: i64) -> String {
    let sign = if span_ns < 0 { "-" } else { "" };
    let total = span_ns.unsigned_abs();
    if total < 1_000_000_000 {
        let (unit, size) = match total {
            0 => return "0s".to_owned(),
            1..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{sign}{}{unit}", fraction(total, size));
    }
    let (hours, rest) = (total / 3_600_000_000_000, total % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    let mut out = sign.to_owned();
    if hours > 0 {
        let _ = write!(out, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(out, "{minutes}m");
    }
    out.push_str(&fraction(rest, 1_000_000_000));
    out.push('s');
    out
}

/// `amount / size` without trailing zeros; `size` is a power of ten.
fn fraction(amount: u64, size: u64) -> String {
    let (whole, rest) = (amount / size, amount % size);
    if rest == 0 {
        return whole.to_string();
    }
    let length = size.ilog10() as usize;
    let digits = format!("{rest:0length$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// A time in a layout of Go: the reference time Mon Jan 2 15:04:05 MST 2006, written as wanted.
pub(super) fn format_time(time_ns: i64, layout: &str) -> String {
    let time = civil(time_ns);
    let mut out = String::with_capacity(layout.len() + 16);
    let mut rest = layout;
    while !rest.is_empty() {
        match ELEMENTS.iter().find(|(pattern, _)| starts_element(rest, pattern)) {
            Some((pattern, write_element)) => {
                out.push_str(&write_element(&time));
                rest = &rest[pattern.len()..];
            }
            None => match sub_second(rest) {
                Some(length) => {
                    out.push_str(&sub_second_text(&time, &rest[..length]));
                    rest = &rest[length..];
                }
                None => {
                    let next = rest.chars().next().map_or(0, char::len_utf8);
                    out.push_str(&rest[..next]);
                    rest = &rest[next..];
                }
            },
        }
    }
    out
}

type Element = (&'static str, fn(&DateTime) -> String);

/// Elements of a layout; a longer one stands before its prefix.
const ELEMENTS: [Element; 34] = [
    ("January", |time| month_name(time.month()).to_owned()),
    ("Jan", |time| month_name(time.month())[..3].to_owned()),
    ("Monday", |time| weekday_name(*time).to_owned()),
    ("Mon", |time| weekday_name(*time)[..3].to_owned()),
    ("MST", |_| "UTC".to_owned()),
    ("002", |time| format!("{:03}", time.day_of_year())),
    ("01", |time| format!("{:02}", time.month())),
    ("02", |time| format!("{:02}", time.day())),
    ("03", |time| format!("{:02}", hour_of_12(time))),
    ("04", |time| format!("{:02}", time.minute())),
    ("05", |time| format!("{:02}", time.second())),
    ("06", |time| format!("{:02}", time.year().rem_euclid(100))),
    ("15", |time| format!("{:02}", time.hour())),
    ("1", |time| time.month().to_string()),
    ("2006", |time| format!("{:04}", time.year())),
    ("_2006", |time| format!("_{:04}", time.year())),
    ("__2", |time| format!("{:>3}", time.day_of_year())),
    ("_2", |time| format!("{:>2}", time.day())),
    ("2", |time| time.day().to_string()),
    ("3", |time| hour_of_12(time).to_string()),
    ("4", |time| time.minute().to_string()),
    ("5", |time| time.second().to_string()),
    ("PM", |time| if time.hour() < 12 { "AM" } else { "PM" }.to_owned()),
    ("pm", |time| if time.hour() < 12 { "am" } else { "pm" }.to_owned()),
    ("-07:00:00", |_| "+00:00:00".to_owned()),
    ("-07:00", |_| "+00:00".to_owned()),
    ("-070000", |_| "+000000".to_owned()),
    ("-0700", |_| "+0000".to_owned()),
    ("-07", |_| "+00".to_owned()),
    ("Z07:00:00", |_| "Z".to_owned()),
    ("Z07:00", |_| "Z".to_owned()),
    ("Z070000", |_| "Z".to_owned()),
    ("Z0700", |_| "Z".to_owned()),
    ("Z07", |_| "Z".to_owned()),
];

/// Whether `rest` starts with an element. `Jan` and `Mon` are none before a lower case letter.
fn starts_element(rest: &str, pattern: &str) -> bool {
    let Some(after) = rest.strip_prefix(pattern) else { return false };
    match pattern {
        "Jan" | "Mon" => !after.starts_with(|c: char| c.is_ascii_lowercase()),
        _ => true,
    }
}

fn hour_of_12(time: &DateTime) -> i8 {
    match time.hour() % 12 {
        0 => 12,
        hour => hour,
    }
}

/// Length of a fraction of a second: `.000`, `,000`, `.999`, not followed by a digit.
fn sub_second(rest: &str) -> Option<usize> {
    let digit = *rest.as_bytes().get(1)?;
    if !rest.starts_with(['.', ',']) || !matches!(digit, b'0' | b'9') {
        return None;
    }
    let length = rest.bytes().skip(1).take_while(|byte| *byte == digit).count();
    let followed = rest.as_bytes().get(length + 1).is_some_and(u8::is_ascii_digit);
    (!followed).then_some(length + 1)
}

fn sub_second_text(time: &DateTime, layout: &str) -> String {
    let length = (layout.len() - 1).min(9);
    let digits = &format!("{:09}", time.subsec_nanosecond())[..length];
    if layout.as_bytes()[1] == b'0' {
        return format!("{}{digits}", &layout[..1]);
    }
    match digits.trim_end_matches('0') {
        "" => String::new(),
        digits => format!("{}{digits}", &layout[..1]),
    }
}
