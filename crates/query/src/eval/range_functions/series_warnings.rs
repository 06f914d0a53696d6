//! Warnings of range functions about a series. Texts are Prometheus' own.

use std::collections::BTreeSet;

use crate::error::SourceSpan;
use crate::histogram::{GoNumber, IncompatibleHistograms};
use crate::query_warnings::QueryWarnings;

/// Warning about a series; name and position are added on emit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SeriesWarning {
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
    BoundsReconciled(HistogramOperation),
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
pub(super) enum HistogramOperation {
    Addition,
    Subtraction,
    Aggregation,
}

impl From<IncompatibleHistograms> for SeriesWarning {
    fn from(error: IncompatibleHistograms) -> SeriesWarning {
        match error {
            IncompatibleHistograms::ExponentialWithCustom => SeriesWarning::ExponentialWithCustom,
            _ => SeriesWarning::NoCommonBuckets,
        }
    }
}

/// Deduplicated warnings of one series.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SeriesWarnings(BTreeSet<SeriesWarning>);

impl SeriesWarnings {
    pub(super) fn add(&mut self, remark: SeriesWarning) {
        self.0.insert(remark);
    }

    /// Notes that a sum or difference had custom bounds to reconcile.
    pub(super) fn add_reconciled(
        &mut self,
        combined: crate::histogram::AddOutcome,
        by: HistogramOperation,
    ) {
        if combined.bounds_reconciled {
            self.add(SeriesWarning::BoundsReconciled(by));
        }
    }

    /// Adds one, if there is one.
    pub(super) fn extend(&mut self, remark: Option<SeriesWarning>) {
        self.0.extend(remark);
    }

    /// Adds those of another.
    pub(super) fn append(&mut self, mut other: SeriesWarnings) {
        self.0.append(&mut other.0);
    }

    /// Writes them down, of a series of this name.
    pub(super) fn emit(self, name: &str, place: SourceSpan, notes: &mut QueryWarnings) {
        for remark in self.0 {
            match remark {
                SeriesWarning::HistogramsIgnored
                | SeriesWarning::BoundsReconciled(_)
                | SeriesWarning::NoCounterName
                | SeriesWarning::NoCounterType(_) => {
                    notes.info(place, format!("PromQL info: {}", remark.text(name)));
                }
                _ => notes.warn(place, format!("PromQL warning: {}", remark.text(name))),
            }
        }
    }
}

impl SeriesWarning {
    fn text(&self, name: &str) -> String {
        match self {
            SeriesWarning::Mixed => {
                format!("encountered a mix of histograms and floats for metric name {name:?}")
            }
            SeriesWarning::HistogramsIgnored => format!(
                "ignored histograms in a range containing both floats and histograms for metric \
                 name {name:?}"
            ),
            SeriesWarning::ExponentialWithCustom => format!(
                "vector contains a mix of histograms with exponential and custom buckets schemas \
                 for metric name {name:?}"
            ),
            SeriesWarning::NoCommonBuckets => format!(
                "vector contains a mix of histograms that have no coarser buckets in common for \
                 metric name {name:?}"
            ),
            SeriesWarning::NotCounter => {
                format!("this native histogram metric is not a counter: {name:?}")
            }
            SeriesWarning::NotGauge => {
                format!("this native histogram metric is not a gauge: {name:?}")
            }
            SeriesWarning::StartOverlap => format!(
                "sample has start time that overlaps with previous sample timestamp for metric \
                 {name:?}"
            ),
            SeriesWarning::BoundsReconciled(operation) => {
                format!("mismatched custom buckets were reconciled during {}", operation.word())
            }
            SeriesWarning::ResetsCollide => {
                "conflicting counter resets during histogram aggregation".to_owned()
            }
            SeriesWarning::InvalidQuantile(bits) => format!(
                "quantile value should be between 0 and 1, got {}",
                GoNumber(f64::from_bits(*bits))
            ),
            SeriesWarning::NoCounterName => format!(
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \
                 {name:?}"
            ),
            SeriesWarning::NoCounterType(kind) => format!(
                "metric might not be a counter, __type__ label is not set to \"counter\" or \
                 \"histogram\", got {kind:?}: {name:?}"
            ),
        }
    }
}

impl HistogramOperation {
    fn word(self) -> &'static str {
        match self {
            HistogramOperation::Addition => "addition",
            HistogramOperation::Subtraction => "subtraction",
            HistogramOperation::Aggregation => "aggregation",
        }
    }
}
