//! Comparison of a result with the expectation of a script.

use std::fmt::Write;

use query::{
    BucketGrid, FloatHistogram, LabelSet, ResultData, STALE_BITS, StepGrid, StepValue, Stream,
    is_stale,
};

use crate::script::{EvalCommand, ExpectedResult};
use query::notation::NotationItem;

/// Maximum relative difference of numbers.
const EPSILON: f64 = 1e-6;

/// Values of one series of a result, with timestamps.
pub(crate) struct ResultRow {
    pub(crate) labels: LabelSet,
    pub(crate) points: Vec<(i64, StepValue)>,
}

/// Normalised result.
pub(crate) enum ActualResult {
    Scalar(f64),
    Text(String),
    /// Instant vector in the order of the result.
    Vector(Vec<ResultRow>),
    Matrix(Vec<ResultRow>),
}

impl ActualResult {
    /// Normalises result data.
    pub(crate) fn from_data(data: ResultData, steps: StepGrid, is_range: bool) -> ActualResult {
        let row = |stream: Stream| {
            let points = steps.times().zip(stream.points);
            let points = points.filter_map(|(time, point)| Some((time, point?))).collect();
            ResultRow { labels: stream.labels, points }
        };
        match data {
            ResultData::Scalar(numbers) if is_range => {
                let numbers = numbers.into_iter().map(StepValue::Number);
                let points = steps.times().zip(numbers).collect();
                ActualResult::Matrix(vec![ResultRow { labels: LabelSet::default(), points }])
            }
            ResultData::Scalar(numbers) => {
                ActualResult::Scalar(numbers.first().copied().unwrap_or(f64::NAN))
            }
            ResultData::Text(text) => ActualResult::Text(text),
            ResultData::Vector(streams) => {
                ActualResult::Vector(streams.into_iter().map(row).collect())
            }
            ResultData::Matrix(streams) => {
                ActualResult::Matrix(streams.into_iter().map(row).collect())
            }
            ResultData::RawSamples(all) => {
                let row = |samples: query::SeriesPoints| ResultRow {
                    labels: samples.labels,
                    points: samples.points.into_iter().map(|r| (r.time, r.value)).collect(),
                };
                ActualResult::Matrix(all.into_iter().map(row).collect())
            }
        }
    }

    /// Text in script notation.
    pub(crate) fn show(&self) -> String {
        match self {
            ActualResult::Scalar(number) => number.to_string(),
            ActualResult::Text(text) => format!("{text:?}"),
            ActualResult::Vector(rows) | ActualResult::Matrix(rows) => {
                let mut shown = String::new();
                for row in rows {
                    let _ = write!(shown, "\n      {}", row.labels);
                    for (time, value) in &row.points {
                        let seconds = query::seconds(*time);
                        let _ = match matches!(self, ActualResult::Matrix(_)) {
                            true => write!(shown, " {}@{seconds}", show(value)),
                            false => write!(shown, " {}", show(value)),
                        };
                    }
                }
                if rows.is_empty() { "nothing".to_owned() } else { shown }
            }
        }
    }
}

/// Expected result in script notation.
pub(crate) fn show_expected(expected: &ExpectedResult) -> String {
    match expected {
        ExpectedResult::Scalar(number) => number.to_string(),
        ExpectedResult::Text(text) => format!("{text:?}"),
        ExpectedResult::Series(series) if series.is_empty() => "nothing".to_owned(),
        ExpectedResult::Series(series) => {
            let mut shown = String::new();
            for (labels, items) in series {
                let _ = write!(shown, "\n      {labels}");
                for item in items {
                    let value =
                        item.as_ref().map_or("_".to_owned(), |written| show(&written.value));
                    let _ = write!(shown, " {value}");
                }
            }
            shown
        }
    }
}

fn show(value: &StepValue) -> String {
    match (value.number(), value.histogram()) {
        (Some(number), _) if is_stale(number) => "stale".to_owned(),
        (Some(number), _) => number.to_string(),
        (None, Some(histogram)) => show_histogram(&histogram),
        (None, None) => "nothing".to_owned(),
    }
}

fn show_histogram(histogram: &FloatHistogram) -> String {
    let FloatHistogram { count, sum, zero_count, zero_threshold, .. } = histogram;
    let grid = match &histogram.grid {
        BucketGrid::Exponential(schema) => format!("schema:{schema}"),
        BucketGrid::Custom(bounds) => format!("schema:-53 custom_values:{bounds:?}"),
        BucketGrid::Scheme(scheme) => format!("{scheme:?}"),
    };
    let mut shown = format!("{{{{{grid} count:{count} sum:{sum}");
    if *zero_count != 0.0 || *zero_threshold != 0.0 {
        let _ = write!(shown, " z_bucket:{zero_count} z_bucket_w:{zero_threshold}");
    }
    for (name, buckets) in [("buckets", &histogram.positive), ("n_buckets", &histogram.negative)] {
        if !buckets.is_empty() {
            let _ = write!(shown, " {name}:{buckets:?}");
        }
    }
    let _ = write!(shown, " {:?}}}}}", histogram.hint);
    shown
}

/// Difference between a result and the expectation.
pub(crate) fn check(eval: &EvalCommand, found: &ActualResult) -> Result<(), String> {
    match (&eval.answer, found) {
        (ExpectedResult::Scalar(expected), ActualResult::Scalar(found)) => {
            match almost_equal(*expected, *found) {
                true => Ok(()),
                false => Err("the number is another".to_owned()),
            }
        }
        (ExpectedResult::Text(expected), ActualResult::Text(found)) if expected == found => Ok(()),
        (ExpectedResult::Series(expected), ActualResult::Vector(rows)) => {
            check_vector(eval, expected, rows)
        }
        (ExpectedResult::Series(expected), ActualResult::Matrix(rows)) => {
            check_matrix(eval, expected, rows)
        }
        _ => Err("the answer is of another kind".to_owned()),
    }
}

fn check_vector(
    eval: &EvalCommand,
    expected: &[(LabelSet, Vec<NotationItem>)],
    rows: &[ResultRow],
) -> Result<(), String> {
    for (at, row) in rows.iter().enumerate() {
        let [(_, value)] = &row.points[..] else {
            return Err(format!("{} has {} values", row.labels, row.points.len()));
        };
        // Of two lines for the same series, the last one counts.
        let place = expected.iter().rposition(|(labels, _)| *labels == row.labels);
        let place = place.ok_or_else(|| format!("{} is not expected", row.labels))?;
        if eval.expect.ordered && place != at {
            return Err(format!("{} is at place {}", row.labels, at + 1));
        }
        let item = expected[place].1.first().and_then(Option::as_ref);
        let item = item.ok_or_else(|| format!("no value is expected of {}", row.labels))?;
        if !is_same(&item.value, value, item.has_hint) {
            return Err(format!("the value of {} is another", row.labels));
        }
    }
    check_all_present(expected, rows)
}

fn check_matrix(
    eval: &EvalCommand,
    expected: &[(LabelSet, Vec<NotationItem>)],
    rows: &[ResultRow],
) -> Result<(), String> {
    if eval.expect.ordered {
        return Err("values over time have no order".to_owned());
    }
    if !rows.is_sorted_by(|a, b| a.labels <= b.labels) {
        return Err("the series are not in the order of their labels".to_owned());
    }
    for row in rows {
        let place = expected.iter().rposition(|(labels, _)| *labels == row.labels);
        let place = place.ok_or_else(|| format!("{} is not expected", row.labels))?;
        let items = expected[place].1.iter().enumerate();
        let items: Vec<_> = items
            .filter_map(|(at, item)| Some((eval.start + eval.step * at as i64, item.as_ref()?)))
            .collect();
        if items.len() != row.points.len() {
            let (found, labels) = (row.points.len(), &row.labels);
            return Err(format!("{labels} has {found} values, not {}", items.len()));
        }
        for ((expected_at, item), (time, value)) in items.iter().zip(&row.points) {
            let (labels, seconds) = (&row.labels, query::seconds(*time));
            if expected_at != time {
                let expected = query::seconds(*expected_at);
                return Err(format!("{labels} has a value at {seconds} s, not at {expected} s"));
            }
            if !is_same(&item.value, value, item.has_hint) {
                return Err(format!("the value of {labels} at {seconds} s is another"));
            }
        }
    }
    check_all_present(expected, rows)
}

fn check_all_present(
    expected: &[(LabelSet, Vec<NotationItem>)],
    rows: &[ResultRow],
) -> Result<(), String> {
    let is_there = |labels: &LabelSet| rows.iter().any(|row| row.labels == *labels);
    match expected.iter().find(|(labels, _)| !is_there(labels)) {
        Some((labels, _)) => Err(format!("{labels} is missing")),
        None => Ok(()),
    }
}

fn is_same(expected: &StepValue, found: &StepValue, says_hint: bool) -> bool {
    match (expected.number(), found.number(), expected.histogram(), found.histogram()) {
        (Some(expected), Some(found), _, _) => almost_equal(expected, found),
        (None, None, Some(expected), Some(found)) => {
            same_histogram(&expected, &found) && (!says_hint || expected.hint == found.hint)
        }
        _ => false,
    }
}

fn same_histogram(expected: &FloatHistogram, found: &FloatHistogram) -> bool {
    let same_buckets = |a: &[(i32, f64)], b: &[(i32, f64)]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && almost_equal(a.1, b.1))
    };
    expected.grid == found.grid
        && expected.zero_threshold == found.zero_threshold
        && almost_equal(expected.zero_count, found.zero_count)
        && almost_equal(expected.count, found.count)
        && almost_equal(expected.sum, found.sum)
        && same_buckets(&expected.positive, &found.positive)
        && same_buckets(&expected.negative, &found.negative)
}

/// Whether two numbers are equal up to the rounding of sums in another order.
fn almost_equal(a: f64, b: f64) -> bool {
    if is_stale(a) || is_stale(b) {
        return a.to_bits() == STALE_BITS && b.to_bits() == STALE_BITS;
    }
    if a == b || a.is_nan() && b.is_nan() {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    match a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        true => difference < EPSILON * f64::MIN_POSITIVE,
        false => difference / sum.min(f64::MAX) < EPSILON,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_almost_the_same() {
        assert!(almost_equal(1.0, 1.000_001));
        assert!(!almost_equal(1.0, 1.000_01));
        assert!(almost_equal(f64::NAN, -f64::NAN));
        assert!(!almost_equal(f64::NAN, f64::from_bits(STALE_BITS)));
        assert!(almost_equal(f64::INFINITY, f64::INFINITY));
        assert!(!almost_equal(0.0, 1e-300));
        assert!(!almost_equal(f64::INFINITY, f64::MAX));
    }
}
