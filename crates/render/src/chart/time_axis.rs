//! Time axis: round UTC times for ticks.

use crate::time::{self, NS_PER_S, S_PER_DAY};

const NS_PER_MIN: i64 = 60 * NS_PER_S;
const NS_PER_H: i64 = 60 * NS_PER_MIN;
const NS_PER_DAY: i64 = S_PER_DAY * NS_PER_S;

/// Round tick intervals from a second to a day.
const STEPS_NS: [i64; 18] = [
    NS_PER_S,
    2 * NS_PER_S,
    5 * NS_PER_S,
    10 * NS_PER_S,
    15 * NS_PER_S,
    30 * NS_PER_S,
    NS_PER_MIN,
    2 * NS_PER_MIN,
    5 * NS_PER_MIN,
    10 * NS_PER_MIN,
    15 * NS_PER_MIN,
    30 * NS_PER_MIN,
    NS_PER_H,
    2 * NS_PER_H,
    3 * NS_PER_H,
    6 * NS_PER_H,
    12 * NS_PER_H,
    NS_PER_DAY,
];

/// About `most` round times from `start` to `end`, ascending, with labels.
pub(crate) fn ticks(start: i64, end: i64, most: usize) -> Vec<(i64, String)> {
    let span = i128::from(end) - i128::from(start);
    let rough = (span / most.max(1) as i128).max(1);
    let step = step(rough);
    let mut ticks = Vec::new();
    let mut at = i128::from(start).div_euclid(step) * step;
    while at <= i128::from(end) {
        if let Ok(time) = i64::try_from(at)
            && time >= start
        {
            ticks.push((time, tick_label(time, step)));
        }
        at += step;
    }
    ticks
}

/// Smallest round step that is not below `rough`.
fn step(rough: i128) -> i128 {
    if let Some(&step) = STEPS_NS.iter().find(|&&step| i128::from(step) >= rough)
        && rough > i128::from(NS_PER_S / 2)
    {
        return i128::from(step);
    }
    // Fractions of a second, and days, in steps of 1, 2, 5.
    let unit = if rough > i128::from(NS_PER_DAY) { i128::from(NS_PER_DAY) } else { 1 };
    let mut power = unit;
    loop {
        for digit in [1, 2, 5] {
            if power * digit >= rough {
                return power * digit;
            }
        }
        power *= 10;
    }
}

/// `15:24`, `15:24:39`, `2015-09-09` at midnight, `+12 s` for a log without a date.
fn tick_label(time: i64, step: i128) -> String {
    if time::is_since_start(time) {
        let seconds = time as f64 / NS_PER_S as f64;
        return format!("+{seconds} s");
    }
    let written = time::time_text(time, NS_PER_S);
    let (date, clock) = written.trim_end_matches('Z').split_once(' ').unwrap_or((&written, ""));
    if time.rem_euclid(NS_PER_DAY) == 0 {
        return date.to_owned();
    }
    if step >= i128::from(NS_PER_MIN) {
        return clock.get(..5).unwrap_or(clock).to_owned();
    }
    let fraction = format!("{:09}", time.rem_euclid(NS_PER_S));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{clock}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2015-09-09 15:24:39 UTC.
    const SOME_TIME: i64 = 1_441_812_279 * NS_PER_S;

    #[track_caller]
    fn check(start: i64, span: i64, most: usize, expected: &[&str]) {
        let names: Vec<String> =
            ticks(start, start.saturating_add(span), most).into_iter().map(|t| t.1).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn marks_are_round_times() {
        check(SOME_TIME, 62 * NS_PER_S, 4, &["15:25:00", "15:25:30"]);
        check(SOME_TIME, 2 * NS_PER_H, 5, &["15:30", "16:00", "16:30", "17:00"]);
        check(SOME_TIME, 12 * NS_PER_H, 4, &["18:00", "21:00", "2015-09-10", "03:00"]);
        check(
            SOME_TIME,
            20 * NS_PER_DAY,
            4,
            &["2015-09-12", "2015-09-17", "2015-09-22", "2015-09-27"],
        );
        check(SOME_TIME, NS_PER_S / 2, 2, &["15:24:39", "15:24:39.5"]);
        check(SOME_TIME, 1, 5, &["15:24:39", "15:24:39.000000001"]);
        check(NS_PER_S / 4, 62 * NS_PER_S, 3, &["+30 s", "+60 s"]);
        check(SOME_TIME, 0, 5, &["15:24:39"]);
    }

    #[test]
    fn calendar_end_does_not_panic() {
        assert!(ticks(i64::MIN, i64::MAX, 8).len() <= 10);
        assert!(ticks(i64::MAX - 10, i64::MAX, 5).len() <= 10);
    }
}
