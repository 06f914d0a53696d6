//! Whether an answer is what a script expects.

use std::fmt::Write;

use query::{Data, FloatHistogram, Grid, Labels, STALE_BITS, Steps, Stream, Value, is_stale};

use crate::notation::Item;
use crate::script::{Eval, Expected};

/// How far numbers may be apart, as a part of both together.
const EPSILON: f64 = 1e-6;

/// Values of one series of an answer, with their moments.
pub(crate) struct Row {
    pub(crate) labels: Labels,
    pub(crate) points: Vec<(i64, Value)>,
}

/// An answer in one form.
pub(crate) enum Found {
    Scalar(f64),
    Text(String),
    /// Of one moment, in the answer's order.
    Vector(Vec<Row>),
    Matrix(Vec<Row>),
}

impl Found {
    /// Of the data of an answer.
    pub(crate) fn of(data: Data, steps: Steps, is_range: bool) -> Found {
        let row = |stream: Stream| {
            let points = steps.times().zip(stream.points);
            let points = points.filter_map(|(time, point)| Some((time, point?))).collect();
            Row { labels: stream.labels, points }
        };
        match data {
            Data::Scalar(numbers) if is_range => {
                let numbers = numbers.into_iter().map(Value::Number);
                let points = steps.times().zip(numbers).collect();
                Found::Matrix(vec![Row { labels: Labels::default(), points }])
            }
            Data::Scalar(numbers) => Found::Scalar(numbers.first().copied().unwrap_or(f64::NAN)),
            Data::Text(text) => Found::Text(text),
            Data::Vector(streams) => Found::Vector(streams.into_iter().map(row).collect()),
            Data::Matrix(streams) => Found::Matrix(streams.into_iter().map(row).collect()),
            Data::Readings(all) => {
                let row = |readings: query::Readings| Row {
                    labels: readings.labels,
                    points: readings.readings.into_iter().map(|r| (r.time, r.value)).collect(),
                };
                Found::Matrix(all.into_iter().map(row).collect())
            }
        }
    }

    /// As a script would write it.
    pub(crate) fn show(&self) -> String {
        match self {
            Found::Scalar(number) => number.to_string(),
            Found::Text(text) => format!("{text:?}"),
            Found::Vector(rows) | Found::Matrix(rows) => {
                let mut shown = String::new();
                for row in rows {
                    let _ = write!(shown, "\n      {}", row.labels);
                    for (time, value) in &row.points {
                        let seconds = query::seconds(*time);
                        let _ = match matches!(self, Found::Matrix(_)) {
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

/// An expected answer as a script writes it.
pub(crate) fn show_expected(expected: &Expected) -> String {
    match expected {
        Expected::Scalar(number) => number.to_string(),
        Expected::Text(text) => format!("{text:?}"),
        Expected::Series(series) if series.is_empty() => "nothing".to_owned(),
        Expected::Series(series) => {
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

fn show(value: &Value) -> String {
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
        Grid::Exponential(schema) => format!("schema:{schema}"),
        Grid::Custom(bounds) => format!("schema:-53 custom_values:{bounds:?}"),
        Grid::Native(scheme) => format!("{scheme:?}"),
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

/// What is wrong with an answer.
pub(crate) fn check(eval: &Eval, found: &Found) -> Result<(), String> {
    match (&eval.answer, found) {
        (Expected::Scalar(expected), Found::Scalar(found)) => match almost(*expected, *found) {
            true => Ok(()),
            false => Err("the number is another".to_owned()),
        },
        (Expected::Text(expected), Found::Text(found)) if expected == found => Ok(()),
        (Expected::Series(expected), Found::Vector(rows)) => check_vector(eval, expected, rows),
        (Expected::Series(expected), Found::Matrix(rows)) => check_matrix(eval, expected, rows),
        _ => Err("the answer is of another kind".to_owned()),
    }
}

fn check_vector(eval: &Eval, expected: &[(Labels, Vec<Item>)], rows: &[Row]) -> Result<(), String> {
    for (at, row) in rows.iter().enumerate() {
        let [(_, value)] = &row.points[..] else {
            return Err(format!("{} has {} values", row.labels, row.points.len()));
        };
        // Of two lines for the same series the last counts.
        let place = expected.iter().rposition(|(labels, _)| *labels == row.labels);
        let place = place.ok_or_else(|| format!("{} is not expected", row.labels))?;
        if eval.expect.ordered && place != at {
            return Err(format!("{} is at place {}", row.labels, at + 1));
        }
        let item = expected[place].1.first().and_then(Option::as_ref);
        let item = item.ok_or_else(|| format!("no value is expected of {}", row.labels))?;
        if !is_same(&item.value, value, item.says_hint) {
            return Err(format!("the value of {} is another", row.labels));
        }
    }
    all_there(expected, rows)
}

fn check_matrix(eval: &Eval, expected: &[(Labels, Vec<Item>)], rows: &[Row]) -> Result<(), String> {
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
            if !is_same(&item.value, value, item.says_hint) {
                return Err(format!("the value of {labels} at {seconds} s is another"));
            }
        }
    }
    all_there(expected, rows)
}

fn all_there(expected: &[(Labels, Vec<Item>)], rows: &[Row]) -> Result<(), String> {
    let is_there = |labels: &Labels| rows.iter().any(|row| row.labels == *labels);
    match expected.iter().find(|(labels, _)| !is_there(labels)) {
        Some((labels, _)) => Err(format!("{labels} is missing")),
        None => Ok(()),
    }
}

fn is_same(expected: &Value, found: &Value, says_hint: bool) -> bool {
    match (expected.number(), found.number(), expected.histogram(), found.histogram()) {
        (Some(expected), Some(found), _, _) => almost(expected, found),
        (None, None, Some(expected), Some(found)) => {
            same_histogram(&expected, &found) && (!says_hint || expected.hint == found.hint)
        }
        _ => false,
    }
}

fn same_histogram(expected: &FloatHistogram, found: &FloatHistogram) -> bool {
    let same_buckets = |a: &[(i32, f64)], b: &[(i32, f64)]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && almost(a.1, b.1))
    };
    expected.grid == found.grid
        && expected.zero_threshold == found.zero_threshold
        && almost(expected.zero_count, found.zero_count)
        && almost(expected.count, found.count)
        && almost(expected.sum, found.sum)
        && same_buckets(&expected.positive, &found.positive)
        && same_buckets(&expected.negative, &found.negative)
}

/// Whether two numbers are the same but for what adding up in another order makes.
fn almost(a: f64, b: f64) -> bool {
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
        assert!(almost(1.0, 1.000_001));
        assert!(!almost(1.0, 1.000_01));
        assert!(almost(f64::NAN, -f64::NAN));
        assert!(!almost(f64::NAN, f64::from_bits(STALE_BITS)));
        assert!(almost(f64::INFINITY, f64::INFINITY));
        assert!(!almost(0.0, 1e-300));
        assert!(!almost(f64::INFINITY, f64::MAX));
    }
}
