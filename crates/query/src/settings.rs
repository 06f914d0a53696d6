//! Settings of the query engine.

use crate::limits::Limits;

/// Query engine settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a question may cost.
    pub limits: Limits,
    /// How old the latest reading may be at a step, in nanoseconds. Prometheus' default, 5 minutes.
    pub lookback: i64,
    /// Step of subqueries that name none, in nanoseconds. Prometheus' default, 1 minute.
    pub subquery_step: i64,
    /// A metric's name goes at the end, not with the first function that makes it untrue; so labels
    /// made of it stay.
    pub delayed_name_removal: bool,
    /// Series have labels `__type__` and `__unit__`.
    pub type_and_unit_labels: bool,
    /// Since when a reading counts is taken for a reading of nought.
    pub start_timestamps: bool,
    /// Averages of quantiles are worked out and not refused.
    pub averaged_quantiles: bool,
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
            threads: 1,
        }
    }
}
