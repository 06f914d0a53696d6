//! Settings of the query engine.

use crate::limits::Limits;

/// Query engine settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Cost limits of a query.
    pub limits: Limits,
    /// Maximum age of the latest sample at a step (lookback), in nanoseconds. Prometheus' default,
    /// 5 minutes.
    pub lookback: i64,
    /// Default step of subqueries in nanoseconds. Prometheus' default, 1 minute.
    pub subquery_step: i64,
    /// Whether metric names are removed at the end of the evaluation rather than by the first
    /// function that changes the meaning; labels derived from the name are kept.
    pub delayed_name_removal: bool,
    /// Whether series have the labels `__type__` and `__unit__`.
    pub type_and_unit_labels: bool,
    /// Whether the start timestamp of a sample counts as a sample of 0.
    pub start_timestamps: bool,
    /// Whether averages of quantiles are evaluated rather than rejected.
    pub averaged_quantiles: bool,
    /// Whether quantiles of `rate` and `increase` are clipped to the recorded minimum and maximum.
    /// Prometheus has neither.
    pub clips_quantiles: bool,
    /// Whether series of deltas are read as running totals from the start of the range where a
    /// range selector is the whole query, as functions of counters read them.
    pub sums_deltas: bool,
    /// Threads that read series.
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limits: Limits::default(),
            lookback: 5 * 60 * store::SECOND,
            subquery_step: store::MINUTE,
            delayed_name_removal: false,
            type_and_unit_labels: false,
            start_timestamps: false,
            averaged_quantiles: false,
            clips_quantiles: false,
            sums_deltas: false,
            threads: 1,
        }
    }
}
