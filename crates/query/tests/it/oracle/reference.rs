//! Reference implementation: every result from raw measurements, step by step.

use std::collections::BTreeMap;

use model::SeriesKind;

use super::random_request::{
    AggregateKind, GroupBy, HistogramStatistic, RandomQuery, RangeStatistic, SeriesPick,
};
use super::raw::{RawData, RawSample, RawSeries, TagMap};

/// Expected value at a step.
#[derive(Clone, Debug)]
pub(crate) enum ExpectedValue {
    /// Measured values, ascending; each has this weight.
    Values(Vec<f64>, f64),
    Number(f64, Tolerance),
}

/// Tolerance of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tolerance {
    /// Exact.
    None,
    /// Rounding of sums in another order.
    Rounding,
    /// The true value must be within the bounds.
    Bounds,
    /// No check: a division by a range that contains 0 has no bounds.
    Unbounded,
}

/// Expected values at each step, by labels.
pub(crate) type ExpectedSeries = BTreeMap<TagMap, Vec<Option<ExpectedValue>>>;

/// Expected values of a query at some steps.
pub(crate) fn expected_series(raw: &RawData, ask: &RandomQuery, times: &[i64]) -> ExpectedSeries {
    let mut truths: ExpectedSeries = match ask {
        RandomQuery::ExactIncrease { pick, is_rate, .. } => {
            for_each_series(raw, pick, times, |series, from, to| {
                exact_increase(series, from, to, *is_rate)
            })
        }
        RandomQuery::RangeStatistic { statistic: over, pick } => {
            for_each_series(raw, pick, times, |series, from, to| {
                gauge_statistic(*over, series, from, to)
                    .map(|x| ExpectedValue::Number(x, Tolerance::Rounding))
            })
        }
        RandomQuery::Rate { is_rate, pick } => {
            for_each_series(raw, pick, times, |series, from, to| {
                extrapolated(series, from, to, *is_rate)
                    .map(|x| ExpectedValue::Number(x, Tolerance::Rounding))
            })
        }
        RandomQuery::Statistic { statistic, input: of } => {
            let is_whole = of.is_whole();
            map(expected_series(raw, of, times), |truth| match truth {
                ExpectedValue::Values(values, times) => {
                    Some(statistic_of(statistic, values, *times, is_whole))
                }
                ExpectedValue::Number(..) => None,
            })
        }
        RandomQuery::Fold { fold, by, input: of } => {
            fold_series(expected_series(raw, of, times), *fold, by, times.len())
        }
        RandomQuery::Running(of) => {
            let mut truths = expected_series(raw, of, times);
            for points in truths.values_mut() {
                let mut total = (0.0, Tolerance::None);
                for point in points.iter_mut() {
                    if let Some(ExpectedValue::Number(more, tolerance)) = point {
                        total = (total.0 + *more, total.1.max(*tolerance));
                        *point =
                            Some(ExpectedValue::Number(total.0, total.1.max(Tolerance::Rounding)));
                    } else {
                        *point = None;
                    }
                }
            }
            truths
        }
        RandomQuery::Binary { operator, left, right } => {
            let (left, right) =
                (expected_series(raw, left, times), expected_series(raw, right, times));
            let pair = |(tags, a): (&TagMap, &Vec<Option<ExpectedValue>>)| {
                let b = right.get(tags)?;
                let points = a.iter().zip(b).map(|pair| match pair {
                    (Some(ExpectedValue::Number(a, x)), Some(ExpectedValue::Number(b, y))) => {
                        let may_be_nought = *operator == '/' && *y >= Tolerance::Bounds;
                        let own =
                            if may_be_nought { Tolerance::Unbounded } else { Tolerance::Rounding };
                        let tolerance = (*x).max(*y).max(own);
                        Some(ExpectedValue::Number(apply_operator(*operator, *a, *b), tolerance))
                    }
                    _ => None,
                });
                Some((tags.clone(), points.collect()))
            };
            left.iter().filter_map(pair).collect()
        }
        RandomQuery::Scaled { operator, input: of, number } => {
            map(expected_series(raw, of, times), |truth| match truth {
                ExpectedValue::Number(x, tolerance) => {
                    let tolerance = (*tolerance).max(Tolerance::Rounding);
                    Some(ExpectedValue::Number(apply_operator(*operator, *x, *number), tolerance))
                }
                ExpectedValue::Values(..) => None,
            })
        }
    };
    truths.retain(|_, points| points.iter().any(Option::is_some));
    truths
}

fn map(
    truths: ExpectedSeries,
    of: impl Fn(&ExpectedValue) -> Option<ExpectedValue>,
) -> ExpectedSeries {
    let points = |points: Vec<Option<ExpectedValue>>| {
        points.iter().map(|point| of(point.as_ref()?)).collect()
    };
    truths.into_iter().map(|(tags, of)| (tags, points(of))).collect()
}

fn for_each_series(
    raw: &RawData,
    pick: &SeriesPick,
    times: &[i64],
    of: impl Fn(&RawSeries, i64, i64) -> Option<ExpectedValue>,
) -> ExpectedSeries {
    let picked = raw.series.iter().filter(|series| pick.picks(series));
    let points = |series: &RawSeries| {
        let point = |&time: &i64| {
            let to = pick.at.unwrap_or(time) - pick.offset;
            of(series, to - pick.range, to)
        };
        times.iter().map(point).collect()
    };
    picked.map(|series| (series.tags.clone(), points(series))).collect()
}

fn samples_within(
    series: &RawSeries,
    from: i64,
    to: i64,
) -> impl Iterator<Item = (usize, &RawSample)> {
    series.samples.iter().enumerate().filter(move |(_, taken)| from < taken.end && taken.end <= to)
}

fn exact_increase(series: &RawSeries, from: i64, to: i64, is_rate: bool) -> Option<ExpectedValue> {
    let kind = series.series.kind();
    let scale = if is_rate { 1e9 / (to - from) as f64 } else { 1.0 };
    // The first sample of a counter without a start timestamp has no increase.
    let is_known = |at: usize, taken: &RawSample| {
        !kind.is_cumulative() || at > 0 || taken.start < taken.end || taken.is_restart
    };
    let taken = samples_within(series, from, to).filter(|(at, taken)| is_known(*at, taken));
    if matches!(kind, SeriesKind::Histogram(_)) {
        let mut values: Vec<f64> = taken.flat_map(|(_, taken)| &taken.values).copied().collect();
        values.sort_by(f64::total_cmp);
        return (!values.is_empty()).then_some(ExpectedValue::Values(values, scale));
    }
    let numbers: Vec<f64> = taken
        .map(|(at, taken)| match kind.is_cumulative() && at > 0 && !taken.is_restart {
            true => taken.number - series.samples[at - 1].number,
            false => taken.number,
        })
        .collect();
    let tolerance = if is_rate { Tolerance::Rounding } else { Tolerance::None };
    (!numbers.is_empty())
        .then(|| ExpectedValue::Number(numbers.iter().sum::<f64>() * scale, tolerance))
}

fn gauge_statistic(over: RangeStatistic, series: &RawSeries, from: i64, to: i64) -> Option<f64> {
    let numbers: Vec<f64> =
        samples_within(series, from, to).map(|(_, taken)| taken.number).collect();
    let n = numbers.len() as f64;
    let (first, last) = (numbers.first()?, numbers.last()?);
    let mean = numbers.iter().sum::<f64>() / n;
    let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let mut sorted = numbers.clone();
    sorted.sort_by(f64::total_cmp);
    Some(match over {
        RangeStatistic::Avg => mean,
        RangeStatistic::Sum => mean * n,
        RangeStatistic::Count => n,
        RangeStatistic::Min => sorted[0],
        RangeStatistic::Max => sorted[sorted.len() - 1],
        RangeStatistic::First => *first,
        RangeStatistic::Last => *last,
        RangeStatistic::Stddev => variance.sqrt(),
        RangeStatistic::Stdvar => variance,
        RangeStatistic::Changes => {
            numbers.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64
        }
        RangeStatistic::Median => {
            let (a, b) = ((sorted.len() - 1) / 2, sorted.len() / 2);
            (sorted[a] + sorted[b]) / 2.0
        }
    })
}

/// Prometheus' definition of `rate`: the difference of the last and the first sample, corrected for
/// resets, extrapolated to both boundaries of the window if samples are near.
fn extrapolated(series: &RawSeries, from: i64, to: i64, is_rate: bool) -> Option<f64> {
    let is_delta = !series.series.kind().is_cumulative();
    let mut samples: Vec<(f64, f64)> = Vec::new();
    let mut total = 0.0;
    for (_, taken) in samples_within(series, from, to) {
        total += taken.number;
        let number = if is_delta { total } else { taken.number };
        let time = taken.end as f64 / 1e9;
        match samples.last_mut() {
            Some(last) if last.0 == time => last.1 = number,
            _ => samples.push((time, number)),
        }
    }
    let [first, .., last] = samples[..] else { return None };
    let seconds = |from: i64, to: i64| (to - from) as f64 / 1e9;
    let ends: Vec<i64> = samples_within(series, from, to).map(|(_, taken)| taken.end).collect();
    let (first_end, last_end) = (ends[0], ends[ends.len() - 1]);
    let mut grown = 0.0;
    for pair in samples.windows(2) {
        grown += if pair[1].1 < pair[0].1 { pair[1].1 } else { pair[1].1 - pair[0].1 };
    }
    let _ = last;
    let length = seconds(first_end, last_end);
    let interval = length / (samples.len() - 1) as f64;
    let near = |distance: f64| if distance < interval * 1.1 { distance } else { interval / 2.0 };
    let mut to_start = near(seconds(from, first_end));
    // A counter is not extrapolated below zero; deltas turned into a counter have no zero.
    if !is_delta && grown > 0.0 {
        to_start = to_start.min(length * first.1 / grown);
    }
    let grown = grown * (length + to_start + near(seconds(last_end, to))) / length;
    Some(if is_rate { grown / seconds(from, to) } else { grown })
}

fn statistic_of(
    statistic: &HistogramStatistic,
    values: &[f64],
    scale: f64,
    is_whole: bool,
) -> ExpectedValue {
    let n = values.len() as f64;
    let above = |limit: f64| values.iter().filter(|&&value| value > limit).count() as f64;
    let sum: f64 = values.iter().sum();
    let variance = values.iter().map(|x| (x - sum / n) * (x - sum / n)).sum::<f64>() / n;
    let is_whole = is_whole && scale == 1.0;
    let number = |x: f64, tolerance: Tolerance| ExpectedValue::Number(x, tolerance);
    match *statistic {
        HistogramStatistic::Count if scale == 1.0 => number(n, Tolerance::None),
        HistogramStatistic::Count => number(n * scale, Tolerance::Rounding),
        HistogramStatistic::Sum if is_whole => number(sum, Tolerance::Rounding),
        HistogramStatistic::Sum => number(sum * scale, Tolerance::Bounds),
        HistogramStatistic::Avg => number(sum / n, Tolerance::Bounds),
        HistogramStatistic::Stddev => number(variance.sqrt(), Tolerance::Bounds),
        HistogramStatistic::Stdvar => number(variance, Tolerance::Bounds),
        HistogramStatistic::Max if is_whole => number(values[values.len() - 1], Tolerance::None),
        HistogramStatistic::Min if is_whole => number(values[0], Tolerance::None),
        HistogramStatistic::Max => number(values[values.len() - 1], Tolerance::Bounds),
        HistogramStatistic::Min => number(values[0], Tolerance::Bounds),
        HistogramStatistic::Quantile(percent) => {
            // In integers, because the share is a decimal fraction.
            let rank = (u64::from(percent) * values.len() as u64).div_ceil(100).max(1);
            number(values[rank as usize - 1], Tolerance::Bounds)
        }
        HistogramStatistic::Fraction(lower, upper) => {
            number((above(lower) - above(upper.max(lower))) / n, Tolerance::Bounds)
        }
        HistogramStatistic::Between(lower, upper) => {
            number((above(lower) - above(upper.max(lower))) * scale, Tolerance::Bounds)
        }
        HistogramStatistic::Above(limit) => number(above(limit) * scale, Tolerance::Bounds),
        HistogramStatistic::Below(limit) => number((n - above(limit)) * scale, Tolerance::Bounds),
        HistogramStatistic::Share(limit) => number((n - above(limit)) / n, Tolerance::Bounds),
        HistogramStatistic::UsersAffected(limit, people) => {
            number(above(limit) / n * people, Tolerance::Bounds)
        }
    }
}

fn fold_series(
    truths: ExpectedSeries,
    fold: AggregateKind,
    by: &GroupBy,
    count: usize,
) -> ExpectedSeries {
    let mut groups: BTreeMap<TagMap, Vec<Vec<ExpectedValue>>> = BTreeMap::new();
    for (tags, points) in truths {
        let group = groups.entry(by.tags(&tags)).or_insert_with(|| vec![Vec::new(); count]);
        for (members, point) in group.iter_mut().zip(points) {
            members.extend(point);
        }
    }
    let fold = |members: Vec<ExpectedValue>| {
        let n = members.len() as f64;
        let first = members.first()?;
        if let ExpectedValue::Values(_, scale) = first {
            let scale = *scale;
            let values = members.into_iter().flat_map(|truth| match truth {
                ExpectedValue::Values(values, _) => values,
                ExpectedValue::Number(..) => Vec::new(),
            });
            let mut values: Vec<f64> = values.collect();
            values.sort_by(f64::total_cmp);
            return match fold {
                AggregateKind::Sum => Some(ExpectedValue::Values(values, scale)),
                AggregateKind::Count => Some(ExpectedValue::Number(n, Tolerance::None)),
                _ => None,
            };
        }
        let numbers = || {
            members.iter().filter_map(|truth| match truth {
                ExpectedValue::Number(x, tolerance) => Some((*x, *tolerance)),
                ExpectedValue::Values(..) => None,
            })
        };
        let tolerance = numbers().map(|(_, tolerance)| tolerance).max()?.max(Tolerance::Rounding);
        let numbers = || numbers().map(|(x, _)| x);
        Some(match fold {
            AggregateKind::Sum => ExpectedValue::Number(numbers().sum(), tolerance),
            AggregateKind::Avg => ExpectedValue::Number(numbers().sum::<f64>() / n, tolerance),
            AggregateKind::Max => {
                ExpectedValue::Number(numbers().fold(f64::NEG_INFINITY, f64::max), tolerance)
            }
            AggregateKind::Min => {
                ExpectedValue::Number(numbers().fold(f64::INFINITY, f64::min), tolerance)
            }
            AggregateKind::Count => ExpectedValue::Number(n, Tolerance::None),
        })
    };
    let points = |points: Vec<Vec<ExpectedValue>>| points.into_iter().map(fold).collect();
    groups.into_iter().map(|(tags, of)| (tags, points(of))).collect()
}

fn apply_operator(operator: char, a: f64, b: f64) -> f64 {
    match operator {
        '+' => a + b,
        '-' => a - b,
        '*' => a * b,
        _ => a / b,
    }
}
