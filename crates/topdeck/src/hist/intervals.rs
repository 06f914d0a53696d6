//! The table over time: one row for each interval.

use anyhow::{Result, bail};
use collect::{Quantity, Unit, hlog};

use crate::hist::group::DistributionGroup;
use crate::hist::options::Options;
use crate::hist::terminal::{Terminal, TextStyle};
use crate::hist::threshold_count;
use crate::hist::value_formatter::{self, ValueFormatter};

pub(crate) const NS_PER_S: i64 = 1_000_000_000;
pub(crate) const S_PER_DAY: i64 = 86_400;

pub(crate) fn lines(
    options: &Options,
    group: &DistributionGroup,
    show: &ValueFormatter,
    terminal: &Terminal,
) -> Result<Vec<String>> {
    let written = options.interval.as_ref().expect("BUG: called for --interval only");
    let row_ns = interval_ns(written)?;
    check_times(written, group)?;
    let limits = threshold_count::count_all(options, group)?;
    let mut table: Vec<Vec<String>> = Vec::new();
    let mut heading =
        vec!["from".to_owned(), "count".into(), "p50".into(), "p99".into(), "max".into()];
    heading.extend(limits.iter().map(|above| format!("> {}", show.exact(above.threshold))));
    table.push(heading);
    let mut expected: Option<i64> = None;
    for (&start, row) in &group.rows {
        if let Some(missing) =
            expected.map(|expected| start.saturating_sub(expected)).filter(|&ns| ns > 0)
        {
            table.push(vec!["(no data".to_owned(), format!("for {})", duration_text(missing))]);
        }
        expected = Some(start.saturating_add(row_ns));
        let value = |value: Option<hist::Bracket>| value.map_or("-".to_owned(), |v| show.value(v));
        let mut cells = vec![
            time_text(start, row_ns),
            value_formatter::count(row.distribution.count()),
            value(row.distribution.quantile(0.5)),
            value(row.distribution.quantile(0.99)),
            value(row.distribution.max()),
        ];
        cells.extend(limits.iter().map(|above| {
            value_formatter::count_estimate(row.distribution.count_above(above.threshold))
        }));
        table.push(cells);
    }
    let columns = table[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = table.iter().filter(|row| row.len() == columns);
            cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut lines = Vec::new();
    for (at, row) in table.iter().enumerate() {
        if row.len() < columns {
            lines.push(terminal.paint(TextStyle::Faint, &format!("  {}", row.join(" "))));
            continue;
        }
        let mut line = format!("  {:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        lines.push(if at == 0 { terminal.paint(TextStyle::Faint, &line) } else { line });
    }
    let total: u64 = group.rows.values().map(|row| row.histograms).sum();
    let past: u64 = group.rows.values().map(|row| row.reach_past).sum();
    if past > 0 {
        let (past, total) = (value_formatter::count(past), value_formatter::count(total));
        lines.push(format!(
            "  {past} of {total} histograms end after the row they begin in; they are counted there whole."
        ));
    }
    if group.untimed > 0 {
        let n = value_formatter::count(group.untimed);
        lines.push(format!("  {n} histograms without a time stamp are left out."));
    }
    Ok(lines)
}

/// Refuses a table over time of what has no time stamps.
pub(crate) fn check_times(written: &Quantity, group: &DistributionGroup) -> Result<()> {
    if group.rows.is_empty() {
        bail!("--interval {written}: the input has no time stamps");
    }
    Ok(())
}

/// Length of a row of the table over time, in nanoseconds.
pub(crate) fn interval_ns(written: &Quantity) -> Result<i64> {
    let ns = written.unit().and_then(|_| written.value_in(Some(&Unit::Nanoseconds)));
    match ns {
        Some(ns) if (1.0..1e18).contains(&ns) => Ok(ns as i64),
        _ => bail!("--interval {written}: expected a length of time with its unit, such as 10s"),
    }
}

/// A length of time.
pub(crate) fn duration_text(ns: i64) -> String {
    ValueFormatter::new(Some(&Unit::Nanoseconds)).exact(ns as f64)
}

/// Whether a time is shown as counted from the beginning of a log that does not know the date. One below zero is not:
/// `-1 s` would be read as a second ago.
pub(crate) fn is_since_start(ns: i64) -> bool {
    ns >= 0 && hlog::is_since_start(ns)
}

/// `2015-09-09 15:24:39 UTC`, or `+12 s` for a log that does not know the date.
pub(crate) fn time_text(ns: i64, row_ns: i64) -> String {
    let seconds = ns.div_euclid(NS_PER_S);
    let fraction = ns.rem_euclid(NS_PER_S);
    let decimals = if row_ns % NS_PER_S == 0 {
        String::new()
    } else {
        format!(".{:03}", fraction / 1_000_000)
    };
    if is_since_start(ns) {
        return format!("+{seconds}{decimals} s");
    }
    let (days, second) = (seconds.div_euclid(S_PER_DAY), seconds.rem_euclid(S_PER_DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{decimals}Z")
}

/// Year, month and day of a count of days since 1970, in the Gregorian calendar. Years are counted from March,
/// so that the leap day is their last.
pub(crate) fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_400_YEARS: i64 = 146_097;
    // From 1970-01-01 back to 0000-03-01.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(DAYS_PER_400_YEARS), days.rem_euclid(DAYS_PER_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: i64, expected: &str) {
        assert_eq!(time_text(seconds * NS_PER_S, 10 * NS_PER_S), expected);
    }

    #[test]
    fn consecutive_days_are_consecutive_dates() {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..200_000 {
            assert_eq!(date(days), (year, month, day));
            let length = match month {
                2 => 28 + i64::from(is_leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    #[test]
    fn times_are_dates() {
        check(1_441_812_279, "2015-09-09 15:24:39Z");
        check(951_782_400, "2000-02-29 00:00:00Z");
        check(1_709_164_799, "2024-02-28 23:59:59Z");
        check(4_107_542_400, "2100-03-01 00:00:00Z");
        check(-1, "1969-12-31 23:59:59Z");
        check(12, "+12 s");
    }
}
