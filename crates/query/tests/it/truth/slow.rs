//! The slow way: every answer out of all raw measurements, at one step after the other.

use std::collections::BTreeMap;

use model::Kind;

use super::question::{Ask, By, Fold, Over, Pick, Statistic};
use super::raw::{Raw, RawSeries, Tags, Taken};

/// What is true at a step.
#[derive(Clone, Debug)]
pub(crate) enum Truth {
    /// These values were measured, ascending; each counts for so many.
    Values(Vec<f64>, f64),
    Number(f64, Doubt),
}

/// What an answer may leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    /// Nothing.
    None,
    /// What comes of adding up in another order.
    Rounding,
    /// It has to be within the bounds.
    Bounds,
}

/// By labels, what is true at each step.
pub(crate) type Truths = BTreeMap<Tags, Vec<Option<Truth>>>;

/// What is true of a question at some steps.
pub(crate) fn truth(raw: &Raw, ask: &Ask, times: &[i64]) -> Truths {
    let mut truths: Truths = match ask {
        Ask::Happened { pick, is_rate, .. } => {
            each(raw, pick, times, |series, from, to| happened(series, from, to, *is_rate))
        }
        Ask::Over { over, pick } => each(raw, pick, times, |series, from, to| {
            of_gauge(*over, series, from, to).map(|x| Truth::Number(x, Doubt::Rounding))
        }),
        Ask::Rate { is_rate, pick } => each(raw, pick, times, |series, from, to| {
            extrapolated(series, from, to, *is_rate).map(|x| Truth::Number(x, Doubt::Rounding))
        }),
        Ask::Statistic { statistic, of } => {
            let is_whole = of.is_whole();
            map(truth(raw, of, times), |truth| match truth {
                Truth::Values(values, scale) => {
                    Some(statistic_of(statistic, values, *scale, is_whole))
                }
                Truth::Number(..) => None,
            })
        }
        Ask::Fold { fold, by, of } => folded(truth(raw, of, times), *fold, by, times.len()),
        Ask::Running(of) => {
            let mut truths = truth(raw, of, times);
            for points in truths.values_mut() {
                let mut total = (0.0, Doubt::None);
                for point in points.iter_mut() {
                    if let Some(Truth::Number(more, doubt)) = point {
                        total = (total.0 + *more, total.1.max(*doubt));
                        *point = Some(Truth::Number(total.0, total.1.max(Doubt::Rounding)));
                    } else {
                        *point = None;
                    }
                }
            }
            truths
        }
        Ask::Binary { operator, left, right } => {
            let (left, right) = (truth(raw, left, times), truth(raw, right, times));
            let pair = |(tags, a): (&Tags, &Vec<Option<Truth>>)| {
                let b = right.get(tags)?;
                let points = a.iter().zip(b).map(|pair| match pair {
                    (Some(Truth::Number(a, x)), Some(Truth::Number(b, y))) => {
                        let doubt = (*x).max(*y).max(Doubt::Rounding);
                        Some(Truth::Number(computed(*operator, *a, *b), doubt))
                    }
                    _ => None,
                });
                Some((tags.clone(), points.collect()))
            };
            left.iter().filter_map(pair).collect()
        }
        Ask::Scaled { operator, of, number } => map(truth(raw, of, times), |truth| match truth {
            Truth::Number(x, doubt) => {
                let doubt = (*doubt).max(Doubt::Rounding);
                Some(Truth::Number(computed(*operator, *x, *number), doubt))
            }
            Truth::Values(..) => None,
        }),
    };
    truths.retain(|_, points| points.iter().any(Option::is_some));
    truths
}

fn map(truths: Truths, of: impl Fn(&Truth) -> Option<Truth>) -> Truths {
    let points =
        |points: Vec<Option<Truth>>| points.iter().map(|point| of(point.as_ref()?)).collect();
    truths.into_iter().map(|(tags, of)| (tags, points(of))).collect()
}

fn each(
    raw: &Raw,
    pick: &Pick,
    times: &[i64],
    of: impl Fn(&RawSeries, i64, i64) -> Option<Truth>,
) -> Truths {
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

fn within(series: &RawSeries, from: i64, to: i64) -> impl Iterator<Item = (usize, &Taken)> {
    series.taken.iter().enumerate().filter(move |(_, taken)| from < taken.end && taken.end <= to)
}

fn happened(series: &RawSeries, from: i64, to: i64, is_rate: bool) -> Option<Truth> {
    let kind = series.series.kind();
    let scale = if is_rate { 1e9 / (to - from) as f64 } else { 1.0 };
    // Of what counts since a start that nobody said, the first tells nothing.
    let is_known = |at: usize, taken: &Taken| {
        !kind.is_cumulative() || at > 0 || taken.start < taken.end || taken.is_anew
    };
    let taken = within(series, from, to).filter(|(at, taken)| is_known(*at, taken));
    if matches!(kind, Kind::Histogram(_)) {
        let mut values: Vec<f64> = taken.flat_map(|(_, taken)| &taken.values).copied().collect();
        values.sort_by(f64::total_cmp);
        return (!values.is_empty()).then_some(Truth::Values(values, scale));
    }
    let numbers: Vec<f64> = taken
        .map(|(at, taken)| match kind.is_cumulative() && at > 0 && !taken.is_anew {
            true => taken.number - series.taken[at - 1].number,
            false => taken.number,
        })
        .collect();
    let doubt = if is_rate { Doubt::Rounding } else { Doubt::None };
    (!numbers.is_empty()).then(|| Truth::Number(numbers.iter().sum::<f64>() * scale, doubt))
}

fn of_gauge(over: Over, series: &RawSeries, from: i64, to: i64) -> Option<f64> {
    let numbers: Vec<f64> = within(series, from, to).map(|(_, taken)| taken.number).collect();
    let n = numbers.len() as f64;
    let (first, last) = (numbers.first()?, numbers.last()?);
    let mean = numbers.iter().sum::<f64>() / n;
    let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let mut sorted = numbers.clone();
    sorted.sort_by(f64::total_cmp);
    Some(match over {
        Over::Avg => mean,
        Over::Sum => mean * n,
        Over::Count => n,
        Over::Min => sorted[0],
        Over::Max => sorted[sorted.len() - 1],
        Over::First => *first,
        Over::Last => *last,
        Over::Stddev => variance.sqrt(),
        Over::Stdvar => variance,
        Over::Changes => numbers.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64,
        Over::Median => {
            let (a, b) = ((sorted.len() - 1) / 2, sorted.len() / 2);
            (sorted[a] + sorted[b]) / 2.0
        }
    })
}

/// Prometheus' documentation of `rate`: the difference of the last and the first, with breaks made good, extended
/// to both ends of the stretch as far as readings are near to them.
fn extrapolated(series: &RawSeries, from: i64, to: i64, is_rate: bool) -> Option<f64> {
    let is_delta = !series.series.kind().is_cumulative();
    let mut readings: Vec<(f64, f64)> = Vec::new();
    let mut total = 0.0;
    for (_, taken) in within(series, from, to) {
        total += taken.number;
        let number = if is_delta { total } else { taken.number };
        let time = taken.end as f64 / 1e9;
        match readings.last_mut() {
            Some(last) if last.0 == time => last.1 = number,
            _ => readings.push((time, number)),
        }
    }
    let [first, .., last] = readings[..] else { return None };
    let seconds = |from: i64, to: i64| (to - from) as f64 / 1e9;
    let ends: Vec<i64> = within(series, from, to).map(|(_, taken)| taken.end).collect();
    let (first_end, last_end) = (ends[0], ends[ends.len() - 1]);
    let mut grown = 0.0;
    for pair in readings.windows(2) {
        grown += if pair[1].1 < pair[0].1 { pair[1].1 } else { pair[1].1 - pair[0].1 };
    }
    let _ = last;
    let length = seconds(first_end, last_end);
    let interval = length / (readings.len() - 1) as f64;
    let near = |distance: f64| if distance < interval * 1.1 { distance } else { interval / 2.0 };
    let mut to_start = near(seconds(from, first_end));
    // A counter is not extended below nought; what is no counter but made into one has no nought.
    if !is_delta && grown > 0.0 {
        to_start = to_start.min(length * first.1 / grown);
    }
    let grown = grown * (length + to_start + near(seconds(last_end, to))) / length;
    Some(if is_rate { grown / seconds(from, to) } else { grown })
}

fn statistic_of(statistic: &Statistic, values: &[f64], scale: f64, is_whole: bool) -> Truth {
    let n = values.len() as f64;
    let above = |limit: f64| values.iter().filter(|&&value| value > limit).count() as f64;
    let sum: f64 = values.iter().sum();
    let variance = values.iter().map(|x| (x - sum / n) * (x - sum / n)).sum::<f64>() / n;
    let is_whole = is_whole && scale == 1.0;
    let number = |x: f64, doubt: Doubt| Truth::Number(x, doubt);
    match *statistic {
        Statistic::Count if scale == 1.0 => number(n, Doubt::None),
        Statistic::Count => number(n * scale, Doubt::Rounding),
        Statistic::Sum if is_whole => number(sum, Doubt::Rounding),
        Statistic::Sum => number(sum * scale, Doubt::Bounds),
        Statistic::Avg => number(sum / n, Doubt::Bounds),
        Statistic::Stddev => number(variance.sqrt(), Doubt::Bounds),
        Statistic::Stdvar => number(variance, Doubt::Bounds),
        Statistic::Max if is_whole => number(values[values.len() - 1], Doubt::None),
        Statistic::Min if is_whole => number(values[0], Doubt::None),
        Statistic::Max => number(values[values.len() - 1], Doubt::Bounds),
        Statistic::Min => number(values[0], Doubt::Bounds),
        Statistic::Quantile(percent) => {
            // In whole numbers: the share of all is a decimal fraction.
            let rank = (u64::from(percent) * values.len() as u64).div_ceil(100).max(1);
            number(values[rank as usize - 1], Doubt::Bounds)
        }
        Statistic::Fraction(lower, upper) => {
            number((above(lower) - above(upper.max(lower))) / n, Doubt::Bounds)
        }
        Statistic::Between(lower, upper) => {
            number((above(lower) - above(upper.max(lower))) * scale, Doubt::Bounds)
        }
        Statistic::Above(limit) => number(above(limit) * scale, Doubt::Bounds),
        Statistic::Below(limit) => number((n - above(limit)) * scale, Doubt::Bounds),
        Statistic::Share(limit) => number((n - above(limit)) / n, Doubt::Bounds),
        Statistic::Harmed(limit, people) => number(above(limit) / n * people, Doubt::Bounds),
    }
}

fn folded(truths: Truths, fold: Fold, by: &By, count: usize) -> Truths {
    let mut groups: BTreeMap<Tags, Vec<Vec<Truth>>> = BTreeMap::new();
    for (tags, points) in truths {
        let group = groups.entry(by.tags(&tags)).or_insert_with(|| vec![Vec::new(); count]);
        for (members, point) in group.iter_mut().zip(points) {
            members.extend(point);
        }
    }
    let fold = |members: Vec<Truth>| {
        let n = members.len() as f64;
        let first = members.first()?;
        if let Truth::Values(_, scale) = first {
            let scale = *scale;
            let values = members.into_iter().flat_map(|truth| match truth {
                Truth::Values(values, _) => values,
                Truth::Number(..) => Vec::new(),
            });
            let mut values: Vec<f64> = values.collect();
            values.sort_by(f64::total_cmp);
            return match fold {
                Fold::Sum => Some(Truth::Values(values, scale)),
                Fold::Count => Some(Truth::Number(n, Doubt::None)),
                _ => None,
            };
        }
        let numbers = || {
            members.iter().filter_map(|truth| match truth {
                Truth::Number(x, doubt) => Some((*x, *doubt)),
                Truth::Values(..) => None,
            })
        };
        let doubt = numbers().map(|(_, doubt)| doubt).max()?.max(Doubt::Rounding);
        let numbers = || numbers().map(|(x, _)| x);
        Some(match fold {
            Fold::Sum => Truth::Number(numbers().sum(), doubt),
            Fold::Avg => Truth::Number(numbers().sum::<f64>() / n, doubt),
            Fold::Max => Truth::Number(numbers().fold(f64::NEG_INFINITY, f64::max), doubt),
            Fold::Min => Truth::Number(numbers().fold(f64::INFINITY, f64::min), doubt),
            Fold::Count => Truth::Number(n, Doubt::None),
        })
    };
    let points = |points: Vec<Vec<Truth>>| points.into_iter().map(fold).collect();
    groups.into_iter().map(|(tags, of)| (tags, points(of))).collect()
}

fn computed(operator: char, a: f64, b: f64) -> f64 {
    match operator {
        '+' => a + b,
        '-' => a - b,
        '*' => a * b,
        _ => a / b,
    }
}
