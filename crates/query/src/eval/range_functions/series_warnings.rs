//! Warnings of range functions about a series, with Prometheus' texts.

use std::collections::BTreeSet;

use crate::error::SourceSpan;
use crate::histogram::{GoNumber, IncompatibleHistograms};
use crate::query_warnings::QueryWarnings;

/// Warning about a series; name and position are added on emit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SeriesWarning {
    /// Floats and histograms in a window of a function that accepts one kind at a time.
    MixedFloatsHistograms,
    /// Histograms among floats were ignored.
    HistogramsIgnored,
    /// Incompatible histograms: exponential and custom buckets.
    ExponentialWithCustom,
    /// Incompatible histograms: different bucket families.
    NoCommonBuckets,
    /// Gauges in a counter function.
    NotCounter,
    /// Counters in a gauge function.
    NotGauge,
    /// A start timestamp precedes an earlier sample and differs from that sample's start.
    StartOverlap,
    /// Custom bounds differed; only common bounds remain.
    BoundsReconciled(HistogramOperation),
    /// Hints for a reset and for no reset.
    ResetsCollide,
    /// Invalid quantile, as its bits.
    InvalidQuantile(u64),
    /// The name is not that of a counter.
    NoCounterName,
    /// The type label is not that of a counter; holds the label value.
    NoCounterType(String),
}

/// Operation on histograms.
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
    pub(super) fn add(&mut self, warning: SeriesWarning) {
        self.0.insert(warning);
    }

    /// Records that a sum or difference reconciled custom bounds.
    pub(super) fn add_reconciled(
        &mut self,
        combined: crate::histogram::AddOutcome,
        by: HistogramOperation,
    ) {
        if combined.bounds_reconciled {
            self.add(SeriesWarning::BoundsReconciled(by));
        }
    }

    /// Adds a warning, if there is one.
    pub(super) fn extend(&mut self, warning: Option<SeriesWarning>) {
        self.0.extend(warning);
    }

    /// Adds the warnings of another set.
    pub(super) fn append(&mut self, mut other: SeriesWarnings) {
        self.0.append(&mut other.0);
    }

    /// Adds the warnings to the query's, with the metric name.
    pub(super) fn emit(self, name: &str, span: SourceSpan, notes: &mut QueryWarnings) {
        for warning in self.0 {
            match warning {
                SeriesWarning::HistogramsIgnored
                | SeriesWarning::BoundsReconciled(_)
                | SeriesWarning::NoCounterName
                | SeriesWarning::NoCounterType(_) => {
                    notes.info(span, format!("PromQL info: {}", warning.text(name)));
                }
                _ => notes.warn(span, format!("PromQL warning: {}", warning.text(name))),
            }
        }
    }
}

impl SeriesWarning {
    fn text(&self, name: &str) -> String {
        match self {
            SeriesWarning::MixedFloatsHistograms => {
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
