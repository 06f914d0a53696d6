//! Histograms as PromQL reckons with them: counts are floats, for rates and differences have fractions.

use std::sync::Arc;

use hist::Scheme;

/// Which buckets there are.
#[derive(Clone, Debug, PartialEq)]
pub enum Grid {
    /// Prometheus' exponential schema, −4 to 8: bucket `i` is `(2^((i-1)/2^schema), 2^(i/2^schema)]`.
    Exponential(i32),
    /// Custom upper bounds (schema −53): bucket `i` ends at `bounds[i]`, inclusive; the last, `bounds.len()`, at infinity.
    Custom(Arc<[f64]>),
    /// Another family's buckets, as `hist` numbers them.
    Native(Scheme),
}

/// What is known of a counter's reset before this histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetHint {
    /// Nothing: it has to be looked for.
    #[default]
    Unknown,
    /// There was one.
    Reset,
    /// There was none.
    NotReset,
    /// It is no counter.
    Gauge,
}

/// A histogram with counts that may be fractions, or negative.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatHistogram {
    /// Which buckets.
    pub grid: Grid,
    /// Values this near to zero are in the zero bucket.
    pub zero_threshold: f64,
    /// How many are.
    pub zero_count: f64,
    /// How many there are in all.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// Counts by index, in rising order of it, none of which is 0.
    pub positive: Vec<(i32, f64)>,
    /// Those of negative values, by the index of their magnitude.
    pub negative: Vec<(i32, f64)>,
    /// About resets.
    pub hint: ResetHint,
}

impl From<&hist::Mixture> for FloatHistogram {
    fn from(_: &hist::Mixture) -> FloatHistogram {
        unimplemented!("replaced by the float branch")
    }
}
