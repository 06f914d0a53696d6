//! Findings of the last evaluation of a rule, for streams whose windows still have the same rows.
//!
//! Rows arrive once per interval of their sender, and a rule is evaluated when they arrive and on
//! schedule. The evaluations in between find the same rows, unless one has left the window: they
//! have the same finding without a read.

use query::{SeriesHandle, WindowSource};
use store::WindowRows;

use crate::alert_table::CriterionMatch;

/// The first criterion that holds for a stream.
#[derive(Clone, Debug)]
pub(super) enum WindowOutcome {
    Holds(Box<CriterionMatch>),
    Clear,
    Unknown,
}

/// Finding of a stream.
#[derive(Clone, Debug)]
pub(super) enum StreamFinding {
    /// Somebody retired it.
    Retired,
    /// The error is the cause why it cannot be measured.
    Measured(Result<WindowOutcome, String>),
}

/// Findings of the streams of a rule, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct FindingCache {
    streams: Vec<Option<CachedFinding>>,
}

#[derive(Clone, Debug)]
pub(super) struct CachedFinding {
    /// Rows of its window.
    pub(super) rows: WindowRows,
    /// Whether it had an active alert: of others that do not fire, nobody asks whether they were
    /// retired.
    pub(super) is_watched: bool,
    pub(super) finding: StreamFinding,
}

impl FindingCache {
    /// Finding of a stream of which these are the series.
    pub(super) fn find(
        &self,
        stream: usize,
        is_watched: bool,
        windows: &dyn WindowSource,
        series: &[&SeriesHandle],
    ) -> Option<&CachedFinding> {
        let cached = self.streams.get(stream)?.as_ref()?;
        let is_same = cached.is_watched == is_watched && windows.is_same(&cached.rows, series);
        is_same.then_some(cached)
    }

    /// Adds the next stream.
    pub(super) fn push(&mut self, finding: Option<CachedFinding>) {
        self.streams.push(finding);
    }
}
