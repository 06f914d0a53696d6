//! Functions of time: of steps, of sample timestamps, and of dates. Dates are in UTC.

use crate::error::Result;
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::plan::PlanOp;
use crate::stream::{Stream, seconds};
use crate::value::StepValue;

use super::{FunctionCall, unwrap_once};

/// Timestamp of each step, in seconds since the Unix epoch.
pub(crate) fn time(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    map_steps(evaluation, call, seconds)
}

/// Sample timestamps; for anything but a selector, the timestamp of the step.
pub(crate) fn timestamp(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let steps = call.steps;
    let PlanOp::Latest(fetch) = &unwrap_once(&call.args[0]).op else {
        return evaluation
            .map_points(call, 0, |step, _| Some(StepValue::Number(seconds(steps.time(step)))));
    };
    let streams = evaluation
        .latest_by(fetch, steps, |_, sample| Some(StepValue::Number(seconds(sample.time))))?;
    without_name(evaluation, streams, call)
}

/// Start timestamps of samples. Only selectors have them, and only if the setting enables them.
pub(crate) fn start_timestamp(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let PlanOp::Latest(fetch) = &unwrap_once(&call.args[0]).op else {
        let streams = evaluation.streams(&call.args[0], call.steps)?;
        evaluation.release(&streams);
        return Ok(Vec::new());
    };
    if !evaluation.settings.start_timestamps {
        return Ok(Vec::new());
    }
    let streams = evaluation.latest_by(fetch, call.steps, |_, sample| {
        // 0 if the source has none, as in Prometheus.
        Some(StepValue::Number(seconds(sample.start.unwrap_or(0))))
    })?;
    without_name(evaluation, streams, call)
}

fn without_name(
    evaluation: &Evaluation<'_>,
    mut streams: Vec<Stream>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    for stream in &mut streams {
        evaluation.drop_name(stream);
    }
    evaluation.merge_equal_labels(streams, call.span)
}

/// One stream computed from the timestamps of the steps.
fn map_steps(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    f: impl Fn(i64) -> f64,
) -> Result<Vec<Stream>> {
    evaluation.budget.charge_samples(call.steps.count as u64)?;
    let points = call.steps.times().map(|time| Some(StepValue::Number(f(time)))).collect();
    Ok(vec![Stream::new(LabelSet::default(), points)])
}

/// Date component of numbers as Unix seconds, or of the steps if there is no argument. NaN for NaN
/// and for numbers outside of 64-bit seconds.
pub(crate) fn date(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    f: fn(CivilDate) -> i64,
) -> Result<Vec<Stream>> {
    if call.args.is_empty() {
        return map_steps(evaluation, call, |time| {
            f(CivilDate::from_unix_seconds(time / store::SECOND)) as f64
        });
    }
    evaluation.map_points(call, 0, |_, value| {
        let number = value.number()?;
        let is_moment = number >= i64::MIN as f64 && number < i64::MAX as f64;
        Some(StepValue::Number(if is_moment {
            f(CivilDate::from_unix_seconds(number as i64)) as f64
        } else {
            f64::NAN
        }))
    })
}

/// RFC 3339 timestamp in seconds.
pub(super) fn text(time: i64) -> String {
    let seconds = time.div_euclid(store::SECOND);
    let CivilDate { year, month, day, hour, minute, .. } = CivilDate::from_unix_seconds(seconds);
    let second = seconds.rem_euclid(60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Calendar date and time (proleptic Gregorian).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CivilDate {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    /// 1 to 31.
    pub(crate) day: i64,
    /// Sunday is 0.
    pub(crate) weekday: i64,
    /// 1 to 366.
    pub(crate) day_of_year: i64,
    pub(crate) days_in_month: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
}

/// Days in 400 years, after which the calendar repeats.
const CYCLE: i64 = 146_097;
/// Days from the Unix epoch to 1 January 2000, the start of a cycle.
const EPOCH_TO_CYCLE: i64 = 10_957;

impl CivilDate {
    /// Date of Unix seconds in the proleptic Gregorian calendar.
    pub(super) fn from_unix_seconds(seconds: i64) -> CivilDate {
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let from_cycle = days - EPOCH_TO_CYCLE;
        let cycle = from_cycle.div_euclid(CYCLE);
        let mut left = from_cycle.rem_euclid(CYCLE);
        // Estimate from the mean length of a year; off by at most one.
        let mut year = left * 400 / CYCLE;
        if left < days_before(year) {
            year -= 1;
        } else if left >= days_before(year + 1) {
            year += 1;
        }
        left -= days_before(year);
        let day_of_year = left + 1;
        let mut month = 1;
        while left >= days_in_month(year, month) {
            left -= days_in_month(year, month);
            month += 1;
        }
        CivilDate {
            year: 2000 + cycle * 400 + year,
            month,
            day: left + 1,
            weekday: (days + 4).rem_euclid(7),
            day_of_year,
            days_in_month: days_in_month(year, month),
            hour: second / 3600,
            minute: second / 60 % 60,
        }
    }
}

/// Days of a cycle before one of its years; the first year is a leap year.
fn days_before(year: i64) -> i64 {
    let leaps = if year == 0 { 0 } else { (year - 1) / 4 - (year - 1) / 100 + 1 };
    year * 365 + leaps
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: i64, expected: [i64; 8]) {
        let [year, month, day, weekday, day_of_year, days_in_month, hour, minute] = expected;
        let expected =
            CivilDate { year, month, day, weekday, day_of_year, days_in_month, hour, minute };
        assert_eq!(CivilDate::from_unix_seconds(seconds), expected);
    }

    #[test]
    fn dates() {
        check(0, [1970, 1, 1, 4, 1, 31, 0, 0]);
        check(-1, [1969, 12, 31, 3, 365, 31, 23, 59]);
        check(1_136_239_445, [2006, 1, 2, 1, 2, 31, 22, 4]);
        check(1_456_790_399, [2016, 2, 29, 1, 60, 29, 23, 59]);
        check(1_456_790_400, [2016, 3, 1, 2, 61, 31, 0, 0]);
        check(1_483_191_420, [2016, 12, 31, 6, 366, 31, 13, 37]);
        check(-62_135_596_800, [1, 1, 1, 1, 1, 31, 0, 0]);
        check(951_782_400, [2000, 2, 29, 2, 60, 29, 0, 0]);
        check(4_107_542_400, [2100, 3, 1, 1, 60, 31, 0, 0]);
        CivilDate::from_unix_seconds(i64::MAX);
        CivilDate::from_unix_seconds(i64::MIN);
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = CivilDate::from_unix_seconds(-86_400 * 200_000);
        for day in -199_999..200_000 {
            let date = CivilDate::from_unix_seconds(86_400 * day);
            let next = match () {
                () if before.day < before.days_in_month => {
                    (before.year, before.month, before.day + 1)
                }
                () if before.month < 12 => (before.year, before.month + 1, 1),
                () => (before.year + 1, 1, 1),
            };
            assert_eq!((date.year, date.month, date.day), next);
            assert_eq!(date.weekday, (before.weekday + 1) % 7);
            before = date;
        }
    }
}
