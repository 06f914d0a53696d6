//! What a row of the overview is ranked by, computed for all rows, and the row as it is shown.

use std::sync::Arc;

use hist::{Bracket, LimitInclusion, Mixture};

use super::day_hours::WorstHour;
use super::excess::{ExcessSignificance, ExpectedValues};
use super::row_state::{RankClass, RowState, first_minute};
use super::row_threshold::RowThreshold;
use super::summary::RowSeverity;
use super::{OverviewRow, OverviewTimes, RowKey};
use crate::classic_buckets::distribution_count;

/// What a row is ranked by.
pub(super) struct RowRanking {
    threshold: Option<RowThreshold>,
    /// Number of values in the last five minutes, and today.
    counts: (u64, u64),
    /// Values above the threshold in the last five minutes, and today.
    above: (Option<Bracket<u64>>, Option<Bracket<u64>>),
    worst_hour: Option<WorstHour>,
    pub(super) class: RankClass,
    /// Values above it beyond those expected there: in the last five minutes, and in the worst hour
    /// of today, or in the whole day if no hour has significantly more. A day that is a little
    /// worse than expected is not an incident.
    pub(super) affected_now: f64,
    pub(super) affected_today: f64,
}

impl RowRanking {
    pub(super) fn of(
        state: &RowState,
        set: Option<RowThreshold>,
        times: OverviewTimes,
    ) -> RowRanking {
        let today_start = times.today_start;
        let threshold = state.threshold(set, today_start);
        let above = |of: &Mixture| {
            let threshold = threshold.as_ref()?;
            Some(of.count_above(threshold.value, LimitInclusion::Exclusive))
        };
        let excess = |above: Option<Bracket<u64>>, count: u64| {
            let expected = ExpectedValues::of(count, threshold.as_ref());
            match above.map_or(ExcessSignificance::Insignificant, |above| {
                ExcessSignificance::of(above, expected)
            }) {
                ExcessSignificance::Insignificant => (RankClass::Usual, 0.0),
                ExcessSignificance::Uncertain(beyond) => (RankClass::Uncertain, beyond),
                ExcessSignificance::Significant(beyond) => (RankClass::Affected, beyond),
            }
        };
        let recent = above(&state.recent);
        let today = state.day(today_start).map(|day| &day.all);
        let count_today = today.map_or(0, Mixture::count);
        let today = today.filter(|_| state.is_complete(today_start)).and_then(above);
        let count_now = state.recent.count();
        let (class, affected_now) = excess(recent, count_now);
        let (_, affected_today) = excess(today, count_today);
        // Counts that overflow have no worst hour.
        let is_complete = state.is_complete(today_start);
        let known = threshold.as_ref().filter(|_| is_complete);
        let worst_hour = known.and_then(|of| state.worst_hour(of, today_start).ok().flatten());
        let affected_today = worst_hour.as_ref().map_or(affected_today, |hour| hour.beyond);
        RowRanking {
            threshold,
            counts: (count_now, count_today),
            above: (recent, today),
            worst_hour,
            class,
            affected_now,
            affected_today,
        }
    }

    /// How bad the row is, for the headline of all rows.
    pub(super) fn severity(&self) -> RowSeverity {
        let [now, today] = [self.counts.0, self.counts.1]
            .map(|count| ExpectedValues::of(count, self.threshold.as_ref()));
        RowSeverity::of((self.above.0, now), (self.above.1, today), self.worst_hour.as_ref())
    }

    /// The row as it is shown.
    pub(super) fn row(
        &self,
        key: &RowKey,
        state: &RowState,
        (times, has_other_unit): (OverviewTimes, bool),
    ) -> OverviewRow {
        let is_affected = self.class == RankClass::Affected;
        let threshold = self.threshold.as_ref().filter(|_| is_affected);
        let affected_since =
            threshold.and_then(|of| state.affected_since(of, times).ok().flatten());
        OverviewRow {
            key: key.clone(),
            has_other_unit,
            worst_hour: self.worst_hour.clone(),
            affected_since,
            series: distribution_count(&state.series),
            recent: Arc::clone(&state.recent),
            count_today: self.counts.1,
            threshold: self.threshold.clone(),
            above: self.above,
            users: None,
            deviation: state.deviation.clone(),
            heatmap: state.minutes.picture(first_minute(times.now)),
            latest_end: state.latest_end,
            read_at: state.read_at,
            gaps: state.gaps(times.today_start),
        }
    }
}
