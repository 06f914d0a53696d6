//! Summary of all rows of an overview: how many are affected, and the worst of them, whether they
//! are on the page or not.
//!
//! Rows are ranked by affected requests. The worst row is another one: that with the largest lower
//! bound of the burn rate, so that a small service of which half fails comes before a large one
//! that is a little slower than usual.

use hist::Bracket;

use super::day_hours::WorstHour;
use super::excess::ExpectedValues;
use super::{OverviewRow, RowStatus};

/// Number of the worst rows, one of which a headline is about, and which it also names.
const WORST_ROWS: usize = 4;

/// What is worst among all rows of a group.
#[derive(Clone, Debug, Default)]
pub struct OverviewSummary {
    /// Number of rows that are affected now.
    pub affected: usize,
    /// Number of rows that are uncertain now.
    pub uncertain: usize,
    /// Number of rows that are usual now.
    pub usual: usize,
    /// Number of rows of which nothing is known now.
    pub unknown: usize,
    /// Number of these that have values now, but no threshold yet.
    pub without_threshold: usize,
    /// Number of rows that were affected earlier today, but are not now.
    pub affected_earlier: usize,
    /// Number of these that are usual now.
    pub usual_again: usize,
    /// The worst rows now, by the lower bound of their burn rate; without heatmaps.
    pub worst_now: Vec<OverviewRow>,
    /// The worst rows among those that were affected earlier today, by that of their worst hour;
    /// without heatmaps.
    pub worst_earlier: Vec<OverviewRow>,
}

impl OverviewSummary {
    /// Summary of rows with their severities, in the order of their rank. `row` makes a row.
    pub(super) fn of<T>(
        all: impl Iterator<Item = (T, RowSeverity)>,
        row: impl Fn(T) -> OverviewRow,
    ) -> OverviewSummary {
        let mut summary = OverviewSummary::default();
        let (mut now, mut earlier) = (Vec::new(), Vec::new());
        for (one, RowSeverity { state, lacks_threshold, rate_now, rate_earlier }) in all {
            summary.without_threshold += usize::from(lacks_threshold);
            match state {
                RowStatus::Affected => summary.affected += 1,
                RowStatus::Uncertain => summary.uncertain += 1,
                RowStatus::Usual => summary.usual += 1,
                RowStatus::Unknown => summary.unknown += 1,
            }
            match (rate_now, rate_earlier) {
                (Some(rate), _) => now.push((rate, one)),
                (None, Some(rate)) => {
                    summary.affected_earlier += 1;
                    summary.usual_again += usize::from(state == RowStatus::Usual);
                    earlier.push((rate, one));
                }
                (None, None) => {}
            }
        }
        let worst = |mut rows: Vec<(f64, T)>| {
            model::sort::by(&mut rows, |(a, _), (b, _)| b.total_cmp(a));
            rows.into_iter().take(WORST_ROWS).map(|(_, one)| row(one)).collect()
        };
        (summary.worst_now, summary.worst_earlier) = (worst(now), worst(earlier));
        summary
    }

    /// The worst rows.
    pub(super) fn rows_mut(&mut self) -> impl Iterator<Item = &mut OverviewRow> {
        self.worst_now.iter_mut().chain(&mut self.worst_earlier)
    }
}

/// How bad a row is.
pub(super) struct RowSeverity {
    /// Of the last five minutes.
    state: RowStatus,
    /// Whether there are values now, but no threshold for them.
    lacks_threshold: bool,
    /// Lower bound of the burn rate now; `None` if the row is not affected.
    rate_now: Option<f64>,
    /// Lower bound of the burn rate in the worst hour of today. 1 if it was affected today, but in
    /// no hour more than in the others: such an hour says more.
    rate_earlier: Option<f64>,
}

impl RowSeverity {
    pub(super) fn of(
        (above_now, now): (Option<Bracket<u64>>, ExpectedValues),
        (above_today, today): (Option<Bracket<u64>>, ExpectedValues),
        worst_hour: Option<&WorstHour>,
    ) -> RowSeverity {
        let state = RowStatus::of(above_now, now);
        let is_affected = state == RowStatus::Affected;
        let rate_now = above_now.filter(|_| is_affected).and_then(|above| now.burn_rate(above));
        let was_affected = RowStatus::of(above_today, today) == RowStatus::Affected;
        let of_hour = worst_hour.map(|hour| hour.burn_rate.lower);
        RowSeverity {
            state,
            lacks_threshold: above_now.is_none() && now.count > 0,
            rate_now: rate_now.map(|rate| rate.lower),
            rate_earlier: of_hour.or(was_affected.then_some(1.0)),
        }
    }
}
