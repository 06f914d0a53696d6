//! What functions over time have to say about a series. Texts are Prometheus' own.

use std::collections::BTreeSet;

use crate::error::Place;
use crate::histogram::{Incompatible, Number};
use crate::note::Notes;

/// A remark or warning; the series' name and the place come when it is complete.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Remark {
    /// Numbers and histograms, of which the function takes only one kind at a time.
    Mixed,
    /// Histograms beside numbers did not count.
    HistogramsIgnored,
    /// Histograms whose buckets cannot be put together: exponential and custom ones.
    ExponentialWithCustom,
    /// Histograms whose buckets cannot be put together: of different families.
    NoCommonBuckets,
    /// Gauges were given to a function of counters.
    NotCounter,
    /// Counters were given to a function of gauges.
    NotGauge,
    /// What a reading counts began before an earlier reading, and not where that one began.
    StartOverlap,
    /// Custom bounds differed; only those of both remain.
    BoundsReconciled(Operation),
    /// Some histograms were said to follow a reset, others not to.
    ResetsCollide,
    /// A quantile that is none, by its bits.
    InvalidQuantile(u64),
    /// By its name it is no counter.
    NoCounterName,
    /// By its label it is no counter; this is what it is.
    NoCounterType(String),
}

/// What was done to histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Addition,
    Subtraction,
    Aggregation,
}

impl From<Incompatible> for Remark {
    fn from(error: Incompatible) -> Remark {
        match error {
            Incompatible::ExponentialWithCustom => Remark::ExponentialWithCustom,
            _ => Remark::NoCommonBuckets,
        }
    }
}

/// What is to be said about one series, each once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Remarks(BTreeSet<Remark>);

impl Remarks {
    pub(super) fn add(&mut self, remark: Remark) {
        self.0.insert(remark);
    }

    /// Notes that a sum or difference had custom bounds to reconcile.
    pub(super) fn reconciled(&mut self, combined: crate::histogram::Combined, by: Operation) {
        if combined.bounds_reconciled {
            self.add(Remark::BoundsReconciled(by));
        }
    }

    /// Adds one, if there is one.
    pub(super) fn extend(&mut self, remark: Option<Remark>) {
        self.0.extend(remark);
    }

    /// Adds those of another.
    pub(super) fn append(&mut self, mut other: Remarks) {
        self.0.append(&mut other.0);
    }

    /// Writes them down, of a series of this name.
    pub(super) fn note(self, name: &str, place: Place, notes: &mut Notes) {
        for remark in self.0 {
            match remark {
                Remark::HistogramsIgnored
                | Remark::BoundsReconciled(_)
                | Remark::NoCounterName
                | Remark::NoCounterType(_) => {
                    notes.info(place, format!("PromQL info: {}", remark.text(name)));
                }
                _ => notes.warn(place, format!("PromQL warning: {}", remark.text(name))),
            }
        }
    }
}

impl Remark {
    fn text(&self, name: &str) -> String {
        match self {
            Remark::Mixed => {
                format!("encountered a mix of histograms and floats for metric name {name:?}")
            }
            Remark::HistogramsIgnored => format!(
                "ignored histograms in a range containing both floats and histograms for metric name {name:?}"
            ),
            Remark::ExponentialWithCustom => format!(
                "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {name:?}"
            ),
            Remark::NoCommonBuckets => format!(
                "vector contains a mix of histograms that have no coarser buckets in common for metric name {name:?}"
            ),
            Remark::NotCounter => {
                format!("this native histogram metric is not a counter: {name:?}")
            }
            Remark::NotGauge => format!("this native histogram metric is not a gauge: {name:?}"),
            Remark::StartOverlap => format!(
                "sample has start time that overlaps with previous sample timestamp for metric {name:?}"
            ),
            Remark::BoundsReconciled(operation) => {
                format!("mismatched custom buckets were reconciled during {}", operation.word())
            }
            Remark::ResetsCollide => {
                "conflicting counter resets during histogram aggregation".to_owned()
            }
            Remark::InvalidQuantile(bits) => format!(
                "quantile value should be between 0 and 1, got {}",
                Number(f64::from_bits(*bits))
            ),
            Remark::NoCounterName => format!(
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {name:?}"
            ),
            Remark::NoCounterType(kind) => format!(
                "metric might not be a counter, __type__ label is not set to \"counter\" or \"histogram\", got {kind:?}: {name:?}"
            ),
        }
    }
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Operation::Addition => "addition",
            Operation::Subtraction => "subtraction",
            Operation::Aggregation => "aggregation",
        }
    }
}
