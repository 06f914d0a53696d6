//! Errors of a range query: the value at the end of each window against its exact value.

use anyhow::Result;
use serde_json::Value;
use synthetic::{ExpectedStats, ExpectedWindow, MINUTE_NS};

use super::prometheus::series_of;
use crate::report::number;

/// Errors, one per window, ascending.
pub(super) struct WindowErrors(Vec<f64>);

impl WindowErrors {
    /// In percent.
    pub(super) fn median(&self) -> String {
        percent(self.0.get(self.0.len() / 2).copied())
    }

    /// In percent.
    pub(super) fn worst(&self) -> String {
        percent(self.0.last().copied())
    }
}

/// Compares the value at the end of each window with its exact value.
pub(super) fn window_errors(
    answer: &Value,
    start_s: i64,
    truth: &ExpectedStats,
    error: impl Fn(&ExpectedWindow, f64) -> Option<f64>,
) -> Result<WindowErrors> {
    let window_s = ExpectedStats::WINDOW_MINUTES as i64 * MINUTE_NS / 1_000_000_000;
    let of = |(time_s, value): &(i64, Value)| {
        let window = truth.windows().get(((time_s - start_s) / window_s - 1) as usize)?;
        error(window, value.as_str()?.parse().ok()?)
    };
    let mut all: Vec<f64> = series_of(answer, "values")?.iter().filter_map(of).collect();
    all.sort_by(f64::total_cmp);
    Ok(WindowErrors(all))
}

fn percent(share: Option<f64>) -> String {
    number(share.unwrap_or(f64::NAN) * 100.0)
}
