//! Sums over columns: from bytes of chunks and rows of heads into accumulators.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

use hist::Mixture;
use model::{Gap, SeriesId};

use crate::chunk;
use crate::error::Result;
use crate::gather::{GatheredRows, KnownPredecessors};
use crate::grid::{ColumnRun, plan};
use crate::index::SelectedSeries;
use crate::manifest::PartInfo;
use crate::merge::{COLUMN_FULL_REASON, ColumnMerge, assign_columns, rows_in_runs};
use crate::resolution::Resolution;
use crate::row::{NumberAggregate, Predecessor, Row, Rows};

use super::placement::{Placement, Plan, column_of, enclosing_range};
use super::{ChunkVisitor, ReadView, may_contain};

impl ReadView {
    /// Calls `each` with each checked chunk of a series in a part that touches `range`; damage
    /// becomes a gap.
    pub(super) fn chunks(
        &self,
        info: &PartInfo,
        id: &SeriesId,
        range: &Range<i64>,
        gaps: &mut Vec<Gap>,
        each: &mut ChunkVisitor<'_>,
    ) -> Result<()> {
        self.check()?;
        self.open_part(info).chunks(id, range, &mut Vec::new(), gaps, each);
        Ok(())
    }

    /// All base rows that ended within `range`, from the selected parts and from the heads.
    pub(super) fn base_rows(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        filter: impl Fn(&PartInfo) -> bool,
        gaps: &mut Vec<Gap>,
    ) -> Result<GatheredRows> {
        self.check()?;
        let parts = self.manifest.base_parts().filter(|info| filter(info));
        self.base_rows_of(series, range, parts, gaps)
    }

    /// The same; `parts` are the selected ones.
    pub(super) fn base_rows_of<'p>(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        parts: impl Iterator<Item = &'p PartInfo>,
        gaps: &mut Vec<Gap>,
    ) -> Result<GatheredRows> {
        let kind = series.kind;
        let mut rows = Rows::empty_for(kind);
        let mut predecessors = KnownPredecessors::default();
        for info in parts {
            if info.end <= range.start || info.start > range.end {
                continue;
            }
            self.chunks(info, &series.id, range, gaps, &mut |_, header, bytes| {
                let (mut more, mut predecessor) = chunk::decode(header, bytes)?;
                if kind.is_cumulative() {
                    // Where the range cuts a chunk, the predecessor of the first row is in the
                    // chunk.
                    let before = more.last_sample(range.start);
                    predecessor = before.map_or(predecessor, Predecessor::Sample);
                }
                more.retain(|_, end| range.contains(&end.saturating_sub(1)));
                predecessors.add(&more, predecessor);
                rows.append(more);
                Ok(())
            })?;
        }
        for head in self.heads() {
            head.add_rows(series.number, range, &mut rows, kind);
        }
        Ok(GatheredRows { rows, predecessors })
    }

    pub(super) fn merge_histograms(
        &self,
        series: &[SelectedSeries],
        columns: &[Range<i64>],
        points_by_start: bool,
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<Mixture>> {
        let plan = plan(columns);
        let placement = Placement { columns, points_by_start };
        let mut merge = ColumnMerge::new(columns.len());
        let (adding, samples): (Vec<&SelectedSeries>, Vec<&SelectedSeries>) =
            series.iter().partition(|series| !series.kind.is_cumulative());
        if !adding.is_empty() {
            let plan = placement.extend_with_points(plan.clone());
            let dropped = self.dropped_gaps(&adding, &plan)?;
            gaps.extend(dropped.gaps.iter().map(|gap| placement.shown(gap.clone())));
            let (single_series, others): (Vec<&SelectedSeries>, Vec<&SelectedSeries>) =
                adding.iter().partition(|series| dropped.plans.contains_key(&series.id));
            let single_series = single_series
                .iter()
                .map(|series| (std::slice::from_ref(series), &dropped.plans[&series.id]));
            for (series, plan) in single_series.chain([(&others[..], &plan)]) {
                self.add_rollups(series, plan, placement, gaps, &mut merge)?;
                self.add_base(series, plan, placement, gaps, &mut merge)?;
            }
        }
        let dropped = self.dropped_gaps(&samples, &plan)?;
        for series in samples {
            let plan = dropped.plan_of(series, &plan);
            let Rows::Histograms(rows) = self.deltas_in_pieces(series, plan, columns, gaps)? else {
                panic!("BUG: deltas of histograms are histograms")
            };
            for row in rows {
                if let Some(column) = column_of(columns, row.end) {
                    merge.add(column, row.value);
                }
            }
        }
        gaps.extend(dropped.gaps);
        let merged = merge.finish();
        gaps.extend(merged.full_columns.into_iter().map(|at| {
            let Range { start, end } = columns[at].clone();
            Gap { start, end, producer: None, lost: None, reason: COLUMN_FULL_REASON.to_owned() }
        }));
        Ok(merged.columns)
    }

    /// Adds rollups of histograms according to the plan.
    pub(super) fn add_rollups(
        &self,
        series: &[&SelectedSeries],
        plan: &Plan,
        placement: Placement<'_>,
        gaps: &mut Vec<Gap>,
        merge: &mut ColumnMerge,
    ) -> Result<()> {
        for info in self.manifest.parts.values() {
            let runs = &plan[info.resolution as usize];
            if info.resolution == Resolution::Base
                || !runs.iter().any(|(range, _)| may_contain(info, range))
            {
                continue;
            }
            self.add_part(info, series, runs, placement, gaps, merge)?;
        }
        Ok(())
    }

    /// Adds base histograms: where the plan uses no rollup, and rows that no rollup covers.
    pub(super) fn add_base(
        &self,
        series: &[&SelectedSeries],
        plan: &Plan,
        placement: Placement<'_>,
        gaps: &mut Vec<Gap>,
        merge: &mut ColumnMerge,
    ) -> Result<()> {
        for info in self.manifest.base_parts() {
            let mut runs: Vec<ColumnRun> = Vec::new();
            for resolution in Resolution::ALL {
                if self.is_not_rolled_up(info, resolution) {
                    runs.extend(
                        plan[resolution as usize]
                            .iter()
                            .filter(|(range, _)| may_contain(info, range))
                            .cloned(),
                    );
                }
            }
            if !runs.is_empty() {
                model::sort::by_key(&mut runs, |(range, _)| range.start);
                self.add_part(info, series, &runs, placement, gaps, merge)?;
            }
        }
        let mut runs: Vec<&ColumnRun> = plan.iter().flatten().collect();
        model::sort::by_key(&mut runs, |(range, _)| range.start);
        let Some(range) = enclosing_range(runs.iter().map(|(range, _)| range)) else {
            return Ok(());
        };
        for head in self.heads() {
            for series in series {
                self.check()?;
                let rows = head.rows_of(series.number, series.kind, &range);
                let Some(Rows::Histograms(rows)) = rows else { continue };
                for row in rows {
                    let at = runs.partition_point(|(range, _)| range.end < row.end);
                    let run = runs.get(at).filter(|run| run.0.contains(&row.end.saturating_sub(1)));
                    let column =
                        run.and_then(|run| placement.column_of((row.start, row.end), run.1));
                    if let Some(column) = column {
                        merge.add(column, row.value);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_part(
        &self,
        info: &PartInfo,
        series: &[&SelectedSeries],
        runs: &[ColumnRun],
        placement: Placement<'_>,
        gaps: &mut Vec<Gap>,
        merge: &mut ColumnMerge,
    ) -> Result<()> {
        let Some(range) = enclosing_range(runs.iter().map(|(range, _)| range)) else {
            return Ok(());
        };
        for series in series {
            self.chunks(info, &series.id, &range, gaps, &mut |location, header, bytes| {
                let after = runs.partition_point(|(range, _)| range.end < location.start);
                if runs.get(after).is_none_or(|(range, _)| range.start >= location.end) {
                    return Ok(());
                }
                let (times, block) = chunk::read_times(header, bytes)?;
                let rows = rows_in_runs(&times, runs);
                let rows = match placement.points_by_start {
                    true => assign_columns(rows, &times, |time, column| {
                        placement.column_of(time, column)
                    }),
                    false => rows,
                };
                merge.add_block(block, &rows)
            })?;
        }
        Ok(())
    }

    pub(super) fn sum_numbers(
        &self,
        series: &[SelectedSeries],
        columns: &[Range<i64>],
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<Option<NumberAggregate>>> {
        let mut sums: Vec<Option<NumberAggregate>> = vec![None; columns.len()];
        self.each_number_row(
            series,
            columns,
            gaps,
            &mut |_, column, row| match &mut sums[column] {
                Some(sum) => sum.add(&row.value),
                empty => *empty = Some(row.value),
            },
        )?;
        Ok(sums)
    }

    /// Sums of each series, with the times of their rows.
    pub(super) fn sum_increases(
        &self,
        series: &[SelectedSeries],
        columns: &[Range<i64>],
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<Vec<Option<Row<NumberAggregate>>>>> {
        let mut sums = vec![vec![None::<Row<NumberAggregate>>; columns.len()]; series.len()];
        self.each_number_row(series, columns, gaps, &mut |at, column, row| match &mut sums[at]
            [column]
        {
            Some(sum) => {
                sum.end = row.end;
                sum.value.add(&row.value);
            }
            empty => *empty = Some(row),
        })?;
        Ok(sums)
    }

    /// Calls `each` with the rows of numbers in columns, by series and time: the position of the
    /// series, that of the column, and the row.
    fn each_number_row(
        &self,
        series: &[SelectedSeries],
        columns: &[Range<i64>],
        gaps: &mut Vec<Gap>,
        each: &mut dyn FnMut(usize, usize, Row<NumberAggregate>),
    ) -> Result<()> {
        let plan = plan(columns);
        let dropped = self.dropped_gaps(&series.iter().collect::<Vec<_>>(), &plan)?;
        for (at, series) in series.iter().enumerate() {
            let plan = dropped.plan_of(series, &plan);
            let Rows::Aggregates(rows) = self.deltas_in_pieces(series, plan, columns, gaps)? else {
                panic!("BUG: merged numbers are summaries")
            };
            // The increase of a sample without a known one is not 0.
            for row in rows.into_iter().filter(|row| !row.value.is_empty()) {
                if let Some(column) = column_of(columns, row.end) {
                    each(at, column, row);
                }
            }
        }
        gaps.extend(dropped.gaps);
        Ok(())
    }
}
