//! Rollups: 1m, 5m, 1h, 1d, exact sums of base rows.
//!
//! A day (UTC) is rolled up after its end, from all its base parts, in one commit. A base part that
//! arrives later is read beside the rollup until the day is rolled up again; both give the same
//! counts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod increment_rollup;
mod rewritten_day;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hist::Histogram;
use hist::codec::header::Temporality;
use model::{Gap, SeriesId, SeriesKind};

use crate::backend::Part;
use crate::base_parts::{ALL_TIME, BaseParts, RowFilter, drops_whole_day};
use crate::change::{PartBuilder, StoreChange};
use crate::chunk;
use crate::coverage::days_without_rollup;
use crate::delta::deltas;
use crate::error::Result;
use crate::gather;
use crate::grid::ColumnRun;
use crate::inner::StoreInner;
use crate::late_samples::late_gap;
use crate::manifest::{Manifest, PartInfo, RetentionRule, SourceParts};
use crate::merge::{COLUMN_FULL_REASON, ColumnMerge, assign_columns, rows_in_runs};
use crate::resolution::{DAY, Resolution, SECOND, interval_start};
use crate::row::{
    NumberAggregate, Predecessor, Row, Rows, is_between_intervals, merge_into_rows, row_order,
};

use rewritten_day::RewrittenDay;

/// Days whose rows are closer together than this get a rollup of minutes.
const MINUTE_ROLLUP_SPACING: i64 = 45 * SECOND;

impl StoreInner {
    /// Rolls up closed days.
    pub(crate) fn run_due_rollups(&self) -> Result<bool> {
        let latest = self.now().saturating_sub(self.options.late_grace).saturating_sub(DAY);
        let (mut changed, mut failed) = (false, None);
        let mut tried: BTreeSet<i64> = BTreeSet::new();
        loop {
            let days = days_without_rollup(&self.state().manifest);
            let due = days.keys().find(|&&day| day <= latest && !tried.contains(&day));
            let Some(&day) = due else { return failed.map_or(Ok(changed), Err) };
            // An unreadable day does not stop the rollup of others.
            tried.insert(day);
            let name = format!("rolling up day {}", day.div_euclid(DAY));
            match self.run_guarded(&name, || self.rollup_day(day).map(|()| true)) {
                Ok(rolled) => changed |= rolled,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
    }

    /// Rolls up a day, or rolls it up again.
    pub(crate) fn rollup_day(&self, day: i64) -> Result<()> {
        let mut change = StoreChange::new(self)?;
        let mut gaps = Vec::new();
        let days = self.rollup_queue(&change.base_manifest, day, BTreeSet::new())?;
        self.rollup_days(&mut change, &days, None, &mut gaps)?;
        change.commit(|manifest| gaps.into_iter().for_each(|gap| manifest.add_gap(gap)))
    }

    /// The day, and the days whose first delta starts from a sample that changed: of a series with
    /// new rows, or of `changed`. All new rows of those days are rolled up too, so the same check
    /// applies to them.
    pub(crate) fn rollup_queue(
        &self,
        manifest: &Manifest,
        day: i64,
        changed: BTreeSet<SeriesId>,
    ) -> Result<BTreeSet<i64>> {
        let uncovered = days_without_rollup(manifest);
        let (mut days, mut open) = (BTreeSet::from([day]), vec![day]);
        let mut ids = changed;
        while let Some(day) = open.pop() {
            for &number in uncovered.get(&day).into_iter().flatten() {
                ids.extend(
                    self.part(number)?.chunk_locations()?.iter().map(|location| location.series),
                );
            }
            open.extend(self.days_after(manifest, day, &ids)?.difference(&days));
            days.extend(&open);
            ids.clear();
        }
        Ok(days)
    }

    /// Days whose first delta starts from a sample of `day`.
    fn days_after(
        &self,
        manifest: &Manifest,
        day: i64,
        ids: &BTreeSet<SeriesId>,
    ) -> Result<BTreeSet<i64>> {
        let later: Vec<&PartInfo> =
            manifest.base_parts().filter(|part| part.end > day.saturating_add(DAY)).collect();
        let mut days = BTreeSet::new();
        if later.is_empty() {
            return Ok(days);
        }
        for id in ids.iter().filter(|id| self.kind(id).is_some_and(SeriesKind::is_cumulative)) {
            days.extend(
                self.next_sample_time(&later, id, day.saturating_add(DAY))?
                    .map(|time| interval_start(time, DAY)),
            );
        }
        Ok(days)
    }

    /// Time of the first sample of a series after `time`.
    pub(crate) fn next_sample_time(
        &self,
        parts: &[&PartInfo],
        id: &SeriesId,
        time: i64,
    ) -> Result<Option<i64>> {
        let mut next: Option<i64> = None;
        for part in parts {
            let locations = self.part(part.number)?.find(id)?;
            let starts = locations
                .iter()
                .filter(|location| location.end > time)
                .map(|location| location.start.max(time.saturating_add(1)));
            next = next.into_iter().chain(starts).min();
        }
        Ok(next)
    }

    /// Rolls up days again. Rows that `filter` rejects are dropped, from the base too.
    pub(crate) fn rollup_days(
        &self,
        change: &mut StoreChange<'_>,
        days: &BTreeSet<i64>,
        filter: Option<&RowFilter<'_>>,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        let manifest = change.base_manifest.clone();
        let mut replaced: BTreeMap<u64, SourceParts> = BTreeMap::new();
        for &day in days {
            let base: Vec<&PartInfo> =
                manifest.base_parts().filter(|part| part.day() == day).collect();
            let is_whole = manifest.has_all_source_parts(day);
            let parts = if is_whole {
                for part in manifest.parts.values().filter(|part| part.covers.contains_key(&day)) {
                    replaced.entry(part.number).or_insert_with(|| part.covers.clone()).remove(&day);
                }
                base
            } else {
                // Some source parts are gone: new rows are added to the existing rollups.
                base.into_iter()
                    .filter(|part| !manifest.is_covered(Resolution::Day, day, part.number))
                    .collect()
            };
            self.write_rollups_of_day(change, day, &parts, is_whole, filter, gaps)?;
        }
        for (number, covers) in replaced {
            self.without_days(change, &manifest.parts[&number], covers, gaps)?;
        }
        Ok(())
    }

    /// A rollup without the days that are no longer in `covers`.
    fn without_days(
        &self,
        change: &mut StoreChange<'_>,
        part: &PartInfo,
        covers: SourceParts,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        change.remove(part.number);
        let Some((&first, &last)) = covers.keys().next().zip(covers.keys().next_back()) else {
            return Ok(());
        };
        let mut writing = change.write(part.resolution);
        writing.replaces(part);
        writing.set_range(first..last.saturating_add(DAY))?;
        let parts = self.parts([part], gaps)?;
        for (id, kind) in self.series_in(&parts, gaps)? {
            self.check_open()?;
            let gathered = gather::gather_rows(&parts, &id, &ALL_TIME, gaps)?;
            let Some(mut rows) = gathered.map(|gathered| gathered.rows) else { continue };
            rows.retain(|_, end| covers.contains_key(&interval_start(end, DAY)));
            writing.append_rows(id, kind, rows, Predecessor::Unknown)?;
        }
        change.add(writing, covers).map(|_| ())
    }

    /// The series of some parts, by id. Rows of an unknown series, whose key is corrupt everywhere,
    /// cannot be used and become gaps.
    pub(crate) fn series_in(
        &self,
        parts: &[Arc<dyn Part>],
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<(SeriesId, SeriesKind)>> {
        let mut series = BTreeMap::new();
        for part in parts {
            for location in part.chunk_locations()? {
                let kind =
                    series.entry(location.series).or_insert_with(|| self.kind(&location.series));
                if kind.is_none() {
                    gaps.push(gather::missing_chunk(&**part, &location, "unknown series"));
                }
            }
        }
        Ok(series.into_iter().filter_map(|(id, kind)| Some((id, kind?))).collect())
    }

    fn write_rollups_of_day(
        &self,
        change: &mut StoreChange<'_>,
        day: i64,
        base: &[&PartInfo],
        is_whole: bool,
        filter: Option<&RowFilter<'_>>,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        let parts = self.parts(base.iter().copied(), gaps)?;
        let mut rebuilt = RewrittenDay::begin(change, base, filter.is_some());
        let mut rollups: Vec<PartBuilder<'_>> =
            Resolution::ROLLUPS.map(|resolution| change.write(resolution)).into();
        let goes =
            |keep: &RetentionRule| keep.resolution == Resolution::Base && keep.duration.is_some();
        let base_parts = BaseParts::from_manifest(&change.base_manifest);
        let minutes_pay =
            change.base_manifest.retention.iter().any(goes) || self.needs_minute_rollup(&parts)?;
        let may_precede_rollups = change.base_manifest.last_incomplete_day() >= Some(day);
        let finest = if minutes_pay { Resolution::Minute } else { Resolution::FiveMinutes };
        for (id, kind) in self.series_in(&parts, gaps)? {
            self.check_open()?;
            if filter.is_some_and(|keep| drops_whole_day(keep, &id, day)) {
                continue;
            }
            if kind == SeriesKind::Histogram(Temporality::Delta) && rebuilt.is_unchanged() {
                // Additive rows that are not rewritten are merged without decoding.
                let mut finer = merge_day_histograms(&parts, &id, day, finest, gaps)?;
                put_rollups(&mut rollups, &mut finer, finest, id, kind)?;
                continue;
            }
            let is_steady = filter.is_none() && is_whole && !may_precede_rollups;
            if kind == SeriesKind::Histogram(Temporality::Cumulative)
                && is_steady
                && rebuilt.is_unchanged()
                && let Some(mut finer) =
                    self.rollup_of_increments(&parts, &base_parts, &id, (day, finest), gaps)?
            {
                put_rollups(&mut rollups, &mut finer, finest, id, kind)?;
                continue;
            }
            let gathered = gather::gather_rows(&parts, &id, &(day..day.saturating_add(DAY)), gaps)?;
            let Some(gathered) = gathered else { continue };
            let recorded = gathered.predecessors.clone();
            let (mut rows, predecessor) =
                self.filtered_rows(&base_parts, &id, kind, gathered, filter, gaps)?;
            rebuilt.put(id, kind, &rows, &predecessor)?;
            if kind.is_cumulative() {
                let final_end = match may_precede_rollups {
                    true => self.first_final_interval_end(&change.base_manifest, &id)?,
                    false => None,
                };
                let is_before = final_end.is_some_and(|end| rows.first_time() < Some((end, end)));
                if !is_whole || is_before {
                    // By name: the id may be deleted when the gap is read.
                    let series = {
                        let index = self.index();
                        index.number(&id).map(|number| index.series(number))
                    };
                    gaps.extend(series.and_then(|series| late_gap(&series, &rows, final_end)));
                    put_rollups(&mut rollups, &mut rows.empty_rollups(), finest, id, kind)?;
                    continue;
                }
                rebuilt.mark_outdated(&rows, &predecessor, &recorded);
                if predecessor == Predecessor::Unknown {
                    gaps.extend(change.base_manifest.without_baseline(&id, &mut rows));
                }
            }
            let first = uncounted_sample(kind, &rows, &predecessor);
            let mut finer = deltas_of_day(kind, rows, predecessor.into_sample(), day);
            if let Some(first) = first {
                let counted = std::mem::replace(&mut finer, first.empty_rollups());
                finer.append(counted.into_summaries());
            }
            put_rollups(&mut rollups, &mut finer, finest, id, kind)?;
        }
        self.finish_day(change, day, rebuilt, (rollups, minutes_pay), gaps)
    }

    /// Adds the parts of a day to the change.
    fn finish_day(
        &self,
        change: &mut StoreChange<'_>,
        day: i64,
        mut rebuilt: RewrittenDay<'_>,
        (rollups, has_minutes): (Vec<PartBuilder<'_>>, bool),
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        for number in rebuilt.take_outdated_parts() {
            let info = &change.base_manifest.parts[&number].clone();
            let renewed = self.rewrite(change, info, &|_, _| true, gaps)?;
            rebuilt.retained.extend(renewed);
        }
        let numbers = rebuilt.finish(change)?;
        let covers = SourceParts::from([(day, numbers)]);
        for (mut writing, resolution) in rollups.into_iter().zip(Resolution::ROLLUPS) {
            // Texts have no rollups; a day with only texts is marked as rolled up anyway.
            if !covers[&day].is_empty() && (resolution != Resolution::Minute || has_minutes) {
                writing.set_range(day..day.saturating_add(DAY))?;
            }
            change.add(writing, covers.clone())?;
        }
        Ok(())
    }

    fn needs_minute_rollup(&self, parts: &[Arc<dyn Part>]) -> Result<bool> {
        for part in parts {
            let pays = |location: &crate::backend::ChunkLocation| {
                let span = location.end.saturating_sub(location.start);
                location.rows > 1
                    && span
                        .checked_div(location.rows.into())
                        .is_some_and(|step| step < MINUTE_ROLLUP_SPACING)
            };
            if part.chunk_locations()?.iter().any(pays) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What happened in a day; for cumulative series, the deltas.
pub(crate) fn deltas_of_day(kind: SeriesKind, rows: Rows, before: Option<Rows>, day: i64) -> Rows {
    fn steps<T: crate::cumulative_value::CumulativeValue>(
        mut rows: Vec<Row<T>>,
        before: Option<Vec<Row<T>>>,
        from: i64,
    ) -> Vec<Row<T>> {
        if let Some(before) = before {
            rows.splice(0..0, before);
        }
        let mut steps = deltas(&rows);
        steps.retain(|step| step.end > from);
        steps
    }
    match (rows, before) {
        (Rows::Cumulative(rows), None) => Rows::Histograms(steps(rows, None, day)),
        (Rows::Cumulative(rows), Some(Rows::Cumulative(before))) => {
            Rows::Histograms(steps(rows, Some(before), day))
        }
        (Rows::Numbers(rows), before) if kind.is_cumulative() => {
            let before = before.map(|before| match before {
                Rows::Numbers(before) => before,
                other => panic!("BUG: the predecessor of numbers is {other:?}"),
            });
            Rows::Numbers(steps(rows, before, day))
        }
        (rows, _) => rows,
    }
}

/// The first sample, if the increase up to it is unknown.
fn uncounted_sample(kind: SeriesKind, rows: &Rows, predecessor: &Predecessor) -> Option<Rows> {
    let has_predecessor = matches!(predecessor, Predecessor::Sample(_));
    let first = rows.first_sample().filter(|_| kind.is_cumulative() && !has_predecessor)?;
    first.first_time().is_some_and(|(end, start)| start == end).then_some(first)
}

/// Writes rollups of deltas, each computed from the next finer one.
fn put_rollups(
    rollups: &mut [PartBuilder<'_>],
    finer: &mut Rows,
    finest: Resolution,
    id: SeriesId,
    kind: SeriesKind,
) -> Result<()> {
    for (writing, resolution) in rollups.iter_mut().zip(Resolution::ROLLUPS) {
        if let Some(period) = resolution.period().filter(|_| resolution >= finest) {
            *finer = rollup_rows(finer, period);
            writing.append_rows(id, kind, finer.clone(), Predecessor::Unknown)?;
        }
    }
    Ok(())
}

/// Merges histograms of a day by interval directly from chunk bytes.
fn merge_day_histograms(
    parts: &[Arc<dyn Part>],
    id: &SeriesId,
    day: i64,
    resolution: Resolution,
    gaps: &mut Vec<Gap>,
) -> Result<Rows> {
    // The base has no period.
    let period = resolution.period().unwrap_or(DAY);
    let interval_start = |at: usize| day.saturating_add((at as i64).saturating_mul(period));
    let intervals = DAY.checked_div(period).unwrap_or(0) as usize;
    let runs: Vec<ColumnRun> = (0..intervals)
        .map(|at| (interval_start(at)..interval_start(at.saturating_add(1)), at))
        .collect();
    let mut merge = ColumnMerge::new(intervals);
    // Most series have no such values.
    let mut between: Option<ColumnMerge> = None;
    let mut bytes = Vec::new();
    for part in parts {
        for location in part.find(id)? {
            let read = gather::read(&**part, &location, &mut bytes)?;
            let added = read.and_then(|header| {
                let gap = |cause: String| gather::missing_chunk(&**part, &location, &cause);
                let (times, block) = chunk::read_times(&header, &bytes).map_err(gap)?;
                let rows = rows_in_runs(&times, &runs);
                if !times.iter().any(|&time| is_between_intervals(time, period)) {
                    return merge.add_block(block, &rows).map_err(gap);
                }
                let only = |are_between: bool| {
                    assign_columns(rows.clone(), &times, |time, at| {
                        (is_between_intervals(time, period) == are_between).then_some(at)
                    })
                };
                merge.add_block(block, &only(false)).map_err(gap)?;
                let between = between.get_or_insert_with(|| ColumnMerge::new(intervals));
                between.add_block(block, &only(true)).map_err(gap)
            });
            gaps.extend(added.err());
        }
    }
    let mut rows = Vec::new();
    for (merge, are_between) in [(Some(merge), false), (between, true)] {
        let Some(merged) = merge.map(ColumnMerge::finish) else { continue };
        gaps.extend(merged.full_columns.into_iter().map(|at| {
            let (start, end) = (interval_start(at), interval_start(at.saturating_add(1)));
            let reason = format!("series {id}: {COLUMN_FULL_REASON}");
            Gap { start, end, producer: None, lost: None, reason }
        }));
        for (at, mixture) in merged.columns.into_iter().enumerate() {
            let end = interval_start(at.saturating_add(1));
            let start = if are_between { end } else { interval_start(at) };
            rows.extend(mixture.into_components().into_iter().map(|value| Row {
                start,
                end,
                value,
            }));
        }
    }
    rows.sort_by_key(Row::time);
    Ok(Rows::Histograms(rows))
}

/// Rows by interval of `period`; none for texts.
fn rollup_rows(rows: &Rows, period: i64) -> Rows {
    match rows {
        Rows::Histograms(rows) => Rows::Histograms(rollup_histograms(rows, period)),
        Rows::Numbers(rows) => Rows::Aggregates(rollup_numbers(rows, period, |&value| {
            NumberAggregate::of_number(value)
        })),
        Rows::Aggregates(rows) => {
            Rows::Aggregates(rollup_numbers(rows, period, NumberAggregate::clone))
        }
        Rows::Texts(_) => Rows::Texts(Vec::new()),
        Rows::Cumulative(_) => panic!("BUG: cumulative samples are not deltas"),
    }
}

fn rollup_histograms(rows: &[Row<Histogram>], period: i64) -> Vec<Row<Histogram>> {
    let mut placed: Vec<((i64, i64), &Histogram)> = Vec::with_capacity(rows.len());
    placed.extend(rows.iter().map(|row| {
        let first = interval_start(row.end, period);
        let end = first.saturating_add(period);
        let is_between = is_between_intervals((row.start, row.end), period);
        ((end, if is_between { end } else { first }), &row.value)
    }));
    placed.sort_by(|a, b| row_order(*a, *b));
    let mut rolled: Vec<Row<Histogram>> = Vec::new();
    for ((end, start), value) in placed {
        // Histograms of different families cannot be merged.
        if !merge_into_rows(&mut rolled, (end, start), value) {
            rolled.push(Row { start, end, value: value.clone() });
        }
    }
    rolled
}

fn rollup_numbers<T>(
    rows: &[Row<T>],
    period: i64,
    of: impl Fn(&T) -> NumberAggregate,
) -> Vec<Row<NumberAggregate>> {
    let mut rolled: Vec<Row<NumberAggregate>> = Vec::new();
    for row in rows {
        let start = interval_start(row.end, period);
        match rolled.last_mut() {
            Some(last) if last.start == start => last.value.add(&of(&row.value)),
            _ => {
                rolled.push(Row { start, end: start.saturating_add(period), value: of(&row.value) })
            }
        }
    }
    rolled
}
