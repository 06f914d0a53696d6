//! Queries of one contender, with cost and accuracy.

use super::accuracy::Accuracy;
use super::range_query::Sweep;
use crate::report::Samples;
use crate::store::QueryCost;

/// All queries of one contender: a server, or one query language of topdeck.
pub(crate) struct QueryResults {
    pub(crate) name: String,
    /// Reason for missing results.
    pub(crate) skipped: Option<String>,
    pub(super) timed: Vec<TimedQuery>,
    pub(super) sweep_points: Vec<SweepPoint>,
    pub(super) accuracies: Vec<Accuracy>,
    /// Measurements in the heatmap: found and expected.
    pub(super) total: Option<(f64, u64)>,
}

/// A query and its cost.
pub(super) struct TimedQuery {
    pub(super) text: String,
    pub(super) query: QueryCost,
}

/// A query of some size and its cost.
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
