//! What one contender was asked, what that cost, and how near its answers were to the truth.

use super::accuracy::Accuracy;
use super::question::Sweep;
use crate::report::Samples;
use crate::store::Query;

/// All that was asked of one contender: a server, or a language of topdeck's.
pub(crate) struct Asked {
    pub(crate) name: String,
    /// Why there is nothing.
    pub(crate) skipped: Option<String>,
    pub(super) timed: Vec<Timed>,
    pub(super) swept: Vec<Swept>,
    pub(super) accuracies: Vec<Accuracy>,
    /// Measurements in the heatmap, as they were found and as they are.
    pub(super) total: Option<(f64, u64)>,
}

/// A question and its cost.
pub(super) struct Timed {
    pub(super) text: String,
    pub(super) query: Query,
}

/// A question of some size and its cost.
pub(super) struct Swept {
    pub(super) sweep: Sweep,
    pub(super) size: f64,
    pub(super) query: Query,
}

impl Asked {
    pub(crate) fn new(name: &str) -> Asked {
        Asked {
            name: name.to_owned(),
            skipped: None,
            timed: Vec::new(),
            swept: Vec::new(),
            accuracies: Vec::new(),
            total: None,
        }
    }

    pub(crate) fn skipped(name: &str, why: &str) -> Asked {
        Asked { skipped: Some(why.to_owned()), ..Asked::new(name) }
    }

    pub(super) fn timed(&self, key: &str) -> Option<&Timed> {
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
