//! Deltas of cumulative samples.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::cumulative_value::CumulativeValue;
use crate::row::Row;

/// The increase up to each of some samples, which are in order.
///
/// A sample whose start is after the sample before it, or whose value is smaller, follows a reset:
/// it counts whole. A first sample without a start time yields nothing, because its increase is
/// unknown.
pub(crate) fn deltas<T: CumulativeValue>(samples: &[Row<T>]) -> Vec<Row<T>> {
    let mut before: Option<&Row<T>> = None;
    let mut deltas = Vec::with_capacity(samples.len());
    for sample in samples.iter().filter(|sample| sample.value.is_amount()) {
        let says_since = sample.start < sample.end;
        let began_anew = |before: &Row<T>| says_since && sample.start >= before.end;
        match before {
            Some(before) if !began_anew(before) => {
                let value = sample.value.since(&before.value);
                let value = value.unwrap_or_else(|| sample.value.clone());
                deltas.push(Row { start: before.end, end: sample.end, value });
            }
            _ if says_since => deltas.push(sample.clone()),
            _ => {}
        }
        before = Some(sample);
    }
    deltas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(samples: &[(i64, i64, f64)], expected: &[(i64, i64, f64)]) {
        let rows = |rows: &[(i64, i64, f64)]| -> Vec<Row<f64>> {
            rows.iter().map(|&(start, end, value)| Row { start, end, value }).collect()
        };
        assert_eq!(deltas(&rows(samples)), rows(expected));
    }

    #[test]
    fn readings_become_deltas() {
        check(&[(5, 5, 100.0)], &[]);
        check(&[(0, 5, 100.0)], &[(0, 5, 100.0)]);
        check(&[(0, 5, 1.0), (0, 7, 4.0), (0, 9, 4.0)], &[(0, 5, 1.0), (5, 7, 3.0), (7, 9, 0.0)]);
        // Smaller than before: reset at an unknown time.
        check(&[(5, 5, 9.0), (7, 7, 2.0)], &[(5, 7, 2.0)]);
        // The series was stale in between, which is not a reset.
        check(&[(5, 5, 9.0), (6, 6, f64::NAN), (7, 7, 11.0)], &[(5, 7, 2.0)]);
        // The start time shows a reset although the value is larger.
        check(&[(0, 5, 1.0), (6, 8, 4.0)], &[(0, 5, 1.0), (6, 8, 4.0)]);
    }
}
