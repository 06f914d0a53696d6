//! Plan nodes that read series.

use std::ops::Range;

use model::Selector;

use crate::error::SourceSpan;
use crate::promql::Matcher;
use crate::stream::StepGrid;

use super::{Grouping, PlanNode};

/// Series selection, offset and extension.
#[derive(Clone, Debug)]
pub(crate) struct SeriesFetch {
    pub(crate) selector: Selector,
    /// Matchers as written, for `absent`.
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) shift: TimeShift,
    pub(crate) extension: RangeExtension,
    /// Whether resets are detected between successive histograms. Prometheus does so if only counts
    /// and sums are used, and warnings about sums of counters depend on it.
    pub(crate) detects_resets: bool,
    pub(crate) span: SourceSpan,
}

/// Time shift: `@` and `offset`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeShift {
    /// Distance before the step; negative for a time after it.
    pub(crate) offset: i64,
    /// Fixed timestamp instead of the step.
    pub(crate) at: Option<i64>,
}

impl TimeShift {
    /// Shifted timestamp of a step.
    pub(crate) fn apply(self, time: i64) -> i64 {
        self.at.unwrap_or(time).saturating_sub(self.offset)
    }
}

/// Range extension: anchored or smoothed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RangeExtension {
    #[default]
    None,
    /// The sample before the range is used at its start.
    Anchored,
    /// Values at both ends are interpolated.
    Smoothed,
}

/// Range vector selection.
#[derive(Clone, Debug)]
pub(crate) struct RangeSelection {
    pub(crate) source: RangeSource,
    /// Length of the window in nanoseconds; start exclusive, end inclusive.
    pub(crate) range: i64,
    /// Whether the function is for counters: series of deltas are read as running totals.
    pub(crate) is_for_counters: bool,
    pub(crate) span: SourceSpan,
}

#[derive(Clone, Debug)]
pub(crate) enum RangeSource {
    Series(SeriesFetch),
    Subquery { inner: PlanNode, step: Option<i64>, shift: TimeShift },
}

impl RangeSelection {
    pub(crate) fn shift(&self) -> TimeShift {
        match &self.source {
            RangeSource::Series(fetch) => fetch.shift,
            RangeSource::Subquery { shift, .. } => *shift,
        }
    }

    pub(crate) fn extension(&self) -> RangeExtension {
        match &self.source {
            RangeSource::Series(fetch) => fetch.extension,
            RangeSource::Subquery { .. } => RangeExtension::None,
        }
    }

    /// Time range of the samples for the windows of all steps, start exclusive, end inclusive.
    pub(crate) fn samples_range(
        &self,
        fetch: &SeriesFetch,
        steps: StepGrid,
        lookback: i64,
    ) -> Range<i64> {
        let (before, after) = match fetch.extension {
            RangeExtension::None => (0, 0),
            RangeExtension::Anchored => (lookback, 0),
            RangeExtension::Smoothed => (lookback, lookback),
        };
        let first = fetch.shift.apply(steps.start).saturating_sub(self.range);
        first.saturating_sub(before)..fetch.shift.apply(steps.end()).saturating_add(after)
    }
}

/// Exact delta in a window before each step.
#[derive(Clone, Debug)]
pub(crate) struct ExactRange {
    pub(crate) fetch: SeriesFetch,
    /// Length of the window in nanoseconds.
    pub(crate) range: i64,
    /// Whether the delta is divided by the seconds of the range.
    pub(crate) is_rate: bool,
    /// Labels by which series are merged.
    pub(crate) grouping: Option<Grouping>,
    /// Plan of the expression in standard PromQL. Used unless all selected series are delta
    /// histograms: only for those are both results equal.
    pub(crate) standard_expr: Option<PlanNode>,
}

impl ExactRange {
    /// Whether classic histograms are read by the name of the histogram: by functions that
    /// Prometheus does not have.
    pub(crate) fn finds_classic(&self) -> bool {
        self.standard_expr.is_none()
    }
}
