//! What one contender was asked, what that cost, and how near its answers were to the truth.

use super::accuracy::Accuracy;
use super::range_query::Sweep;
use crate::report::Samples;
use crate::store::QueryCost;

/// All that was asked of one contender: a server, or a language of topdeck's.
pub(crate) struct QueryResults {
    pub(crate) name: String,
    /// Why there is nothing.
    pub(crate) skipped: Option<String>,
    pub(super) timed: Vec<TimedQuery>,
    pub(super) sweep_points: Vec<SweepPoint>,
    pub(super) accuracies: Vec<Accuracy>,
    /// Measurements in the heatmap, as they were found and as they are.
    pub(super) total: Option<(f64, u64)>,
}

/// A question and its cost.
pub(super) struct TimedQuery {
    pub(super) text: String,
    pub(super) query: QueryCost,
}

/// A question of some size and its cost.
pub(super) struct SweepPoint {
    pub(super) sweep: Sweep,
    pub(super) size: f64,
    pub(super) query: QueryCost,
}

impl QueryResults {
    pub(crate) fn new(name: &str) -> QueryResults {
        QueryResults {
            name: name.to_owned(),
            skipped: None,
            timed: Vec::new(),
            sweep_points: Vec::new(),
            accuracies: Vec::new(),
            total: None,
        }
    }

    pub(crate) fn skipped(name: &str, why: &str) -> QueryResults {
        QueryResults { skipped: Some(why.to_owned()), ..QueryResults::new(name) }
    }

    pub(super) fn timed(&self, key: &str) -> Option<&TimedQuery> {
        self.timed.iter().find(|timed| timed.query.key == key)
    }

    pub(super) fn cpu_ms(&self, key: &str) -> Option<f64> {
        Some(samples(&self.timed(key)?.query.cpu_ms).median())
    }

    pub(super) fn accuracy(&self, key: &str) -> Option<&Accuracy> {
        self.accuracies.iter().find(|accuracy| accuracy.key == key)
    }
}

pub(super) fn samples(values: &[f64]) -> Samples {
    Samples { values: values.to_vec(), ..Samples::new("", "") }
}
