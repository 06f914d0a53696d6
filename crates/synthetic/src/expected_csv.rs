//! Expected statistics as CSV.

use std::fmt::Write as _;

use crate::{ExpectedStats, ExpectedWindow, MINUTE_NS, THRESHOLD_NS};

/// Expected statistics of each window and of all of them, a row each.
///
/// Column names include units. A quantile is a bucket with two bounds.
pub fn expected_csv(truth: &ExpectedStats) -> String {
    const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];
    let mut text = format!(
        "start_s,length_s,count,at_or_below_{:.1}ms,sum_ns,min_ns,max_ns",
        THRESHOLD_NS as f64 / 1e6
    );
    for (_, name) in QUANTILES {
        let _ = write!(text, ",{name}_bucket_lower_ns,{name}_bucket_upper_ns");
    }
    text.push('\n');
    let total = truth.total();
    for window in truth.windows().iter().chain([&total]) {
        let ExpectedWindow {
            count,
            at_or_below_threshold: at_or_below_limit,
            sum_ns,
            min_ns,
            max_ns,
            start_ns,
            end_ns,
            ..
        } = window;
        let (start_s, length_s) = (start_ns / SECOND_NS, (end_ns - start_ns) / SECOND_NS);
        let _ = write!(
            text,
            "{start_s},{length_s},{count},{at_or_below_limit},{sum_ns},{min_ns},{max_ns}"
        );
        for (q, _) in QUANTILES {
            let (lower, upper) = window.quantile_ns(q).unwrap_or_default();
            let _ = write!(text, ",{lower},{upper}");
        }
        text.push('\n');
    }
    text
}

const SECOND_NS: i64 = MINUTE_NS / 60;
