//! Plan nodes that read series: which series, and which time of them.

use model::Selector;

use crate::error::SourceSpan;
use crate::promql::Matcher;

use super::{Grouping, PlanNode};

/// Series selection, offset and extension.
#[derive(Clone, Debug)]
pub(crate) struct SeriesFetch {
    pub(crate) selector: Selector,
    /// The same as it was written, for what is absent.
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) shift: TimeShift,
    pub(crate) extension: RangeExtension,
    /// Each histogram is told whether its counter began anew after the one before. Prometheus does
    /// so where nothing but counts and sums is asked for, and remarks on sums of counters depend on
    /// it.
    pub(crate) detects_resets: bool,
    pub(crate) span: SourceSpan,
}

/// Time shift: `@` and `offset`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeShift {
    /// How long before the step; negative, after it.
    pub(crate) offset: i64,
    /// Not at the step but at this moment.
    pub(crate) at: Option<i64>,
}

impl TimeShift {
    /// The moment that is meant at a step.
    pub(crate) fn apply(self, time: i64) -> i64 {
        self.at.unwrap_or(time).saturating_sub(self.offset)
    }
}

/// Range extension: anchored or smoothed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RangeExtension {
    #[default]
    None,
    /// The reading before the range stands at its start.
    Anchored,
    /// Values at both ends are interpolated.
    Smoothed,
}

/// Range vector selection.
#[derive(Clone, Debug)]
pub(crate) struct RangeSelection {
    pub(crate) source: RangeSource,
    /// Nanoseconds of the stretch; its start is excluded, its end included.
    pub(crate) range: i64,
    /// Counters are meant: of a series of deltas its running total is read.
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
}

/// What happened in a stretch of time before each step.
#[derive(Clone, Debug)]
pub(crate) struct ExactRange {
    pub(crate) fetch: SeriesFetch,
    /// Nanoseconds of the stretch.
    pub(crate) range: i64,
    /// Divided by the seconds of the range.
    pub(crate) is_rate: bool,
    /// Series whose labels agree are put together.
    pub(crate) grouping: Option<Grouping>,
    /// What the expression says in standard PromQL: the same only for distributions that are
    /// deltas, and done where something else was selected.
    pub(crate) standard_expr: Option<PlanNode>,
}
