//! Assembles a classic histogram from its lines.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::prometheus::ClassicHistogram;
use hist::Histogram;

use crate::decimal;
use crate::exemplar::DecodedExemplar;
use crate::exposition::{ExpositionError, LabelPairs};
use crate::input_error::quote;

/// Lines of one classic histogram.
pub(super) struct ClassicHistogramLines {
    pub(super) line: u64,
    pub(super) metric: String,
    pub(super) labels: LabelPairs,
    pub(super) time: Option<i64>,
    pub(super) created: Option<i64>,
    /// Upper bound and cumulative count.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum: Option<f64>,
    pub(super) count: Option<u64>,
    pub(super) exemplars: Vec<DecodedExemplar>,
}

impl ClassicHistogramLines {
    /// Creates an instance without lines.
    pub(super) fn new(
        line: u64,
        metric: String,
        labels: LabelPairs,
        time: Option<i64>,
    ) -> ClassicHistogramLines {
        ClassicHistogramLines {
            line,
            metric,
            labels,
            time,
            created: None,
            buckets: Vec::new(),
            sum: None,
            count: None,
            exemplars: Vec::new(),
        }
    }

    /// Converts cumulative counts to counts per bucket with explicit bounds.
    pub(super) fn histogram(&self) -> Result<Histogram, ExpositionError> {
        let mut buckets = self.buckets.clone();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(pair) = buckets.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(("each le once", format!("le=\"{}\" twice", pair[0].0)));
        }
        if buckets.last().is_none_or(|last| last.0 != f64::INFINITY) {
            let count = self.count.ok_or(("a bucket le=\"+Inf\"", "none".to_owned()))?;
            buckets.push((f64::INFINITY, count));
        }
        if buckets[0].0 == f64::NEG_INFINITY {
            return Err(("bounds above -Inf", "le=\"-Inf\"".to_owned()));
        }
        if let Some(pair) = buckets.windows(2).find(|pair| pair[0].1 > pair[1].1) {
            let found = format!("{} at le=\"{}\" after {}", pair[1].1, pair[1].0, pair[0].1);
            return Err(("non-decreasing cumulative counts", found));
        }
        let total = buckets.last().map_or(0, |bucket| bucket.1);
        if let Some(count) = self.count.filter(|&count| count != total) {
            let found = format!("_count {count} and le=\"+Inf\" {total}");
            return Err(("_count equal to the bucket le=\"+Inf\"", found));
        }
        let classic = ClassicHistogram { buckets, sum: self.sum, count: total };
        classic.to_histogram().map_err(|error| ("a valid histogram", error.to_string()))
    }
}

/// Parses a count in any spelling of a number.
pub(super) fn parse_count(text: &str) -> Result<u64, ExpositionError> {
    let spelled = || {
        let number = decimal::parse(text.as_bytes())?;
        let is_count = number >= 0.0 && number < u64::MAX as f64 && number.fract() == 0.0;
        is_count.then_some(number as u64)
    };
    text.parse().ok().or_else(spelled).ok_or_else(|| ("a count", quote(text.as_bytes())))
}
