//! Number of values above a threshold, as a bounded count and as a sentence.

use hist::Bracket;

use crate::value_formatter::{self, ValueFormatter};

/// Threshold, in the unit of the values, and the number of values above it.
#[derive(Clone, Copy, Debug)]
pub struct ThresholdCount {
    /// Threshold in the unit of the values.
    pub threshold: f64,
    /// Number of values above the threshold.
    pub count: Bracket<u64>,
}

impl ThresholdCount {
    /// `1,204 of 88,310 (1.36 %) took longer than 1.5 s`, where `n` is the count of all values.
    pub fn sentence(&self, n: u64, formatter: &ValueFormatter) -> String {
        let bounds = self.count;
        let verb = match (formatter.is_time(), bounds.is_exact() && bounds.estimate == 1) {
            (true, _) => "took longer than",
            (false, true) => "was above",
            (false, false) => "were above",
        };
        let limit = formatter.exact(self.threshold);
        let of = format!("of {}", value_formatter::count(n));
        if bounds.is_exact() {
            let share = value_formatter::share(bounds.estimate, n);
            return format!(
                "{} {of} ({share}) {verb} {limit}",
                value_formatter::count(bounds.estimate)
            );
        }
        let (low, high) =
            (value_formatter::share(bounds.lower, n), value_formatter::share(bounds.upper, n));
        let shares = format!("{} to {high}", low.trim_end_matches(" %"));
        format!(
            "between {} and {} {of} ({shares}) {verb} {limit}, likely {}",
            value_formatter::count(bounds.lower),
            value_formatter::count(bounds.upper),
            value_formatter::count(bounds.estimate)
        )
    }
}
