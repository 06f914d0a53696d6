//! Retention and deletion.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use model::{Gap, SeriesId};

use crate::base_parts::{ALL_TIME, BaseParts, RowFilter, drops_whole_day};
use crate::change::StoreChange;
use crate::coverage::days_without_rollup;
use crate::error::Result;
use crate::gather;
use crate::inner::StoreInner;
use crate::manifest::{Manifest, PartInfo, RetentionRule, SourceParts};
use crate::mutex::lock;
use crate::resolution::{DAY, Resolution, interval_start};
use crate::row::Predecessor;

/// Result of a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionResult {
    /// Deleted base rows.
    pub rows: u64,
    /// Deleted rollup rows whose source rows had been deleted before.
    pub rollup_rows: u64,
    /// Rollup rows that remain because they extend beyond the range and their source rows are gone.
    pub retained_rows: u64,
    /// Series without remaining rows: they no longer count for limits.
    pub series: u64,
}

/// Which rules, by index, are older than a part.
type OldRules = Vec<bool>;

/// Parts that are older than a rule, but in which no series has expired, because the rule is of
/// other series. An idle store must not read all of their series again each second.
#[derive(Debug, Default)]
pub(crate) struct RetentionChecks {
    rules: Vec<RetentionRule>,
    /// By number of the part.
    done: HashMap<u64, OldRules>,
    /// Series read to see whether they have expired, since the store was opened.
    series: u64,
}

impl RetentionChecks {
    fn begin_round(&mut self, rules: &[RetentionRule], parts: &[PartInfo]) {
        if self.rules != rules {
            self.rules = rules.to_vec();
            self.done.clear();
        }
        if self.done.len() > parts.len() {
            self.done.retain(|number, _| parts.iter().any(|part| part.number == *number));
        }
    }

    fn is_done(&self, part: u64, old: &OldRules) -> bool {
        self.done.get(&part) == Some(old)
    }

    fn set_done(&mut self, part: u64, old: &OldRules) {
        self.done.insert(part, old.clone());
    }

    fn add_series(&mut self, count: u64) {
        self.series = self.series.saturating_add(count);
    }
}

/// The rule that applies to a series.
fn rule_for<'a>(
    keep: &'a [RetentionRule],
    resolution: Resolution,
    series: &model::Series,
) -> Option<&'a RetentionRule> {
    keep.iter().find(|rule| rule.resolution == resolution && rule.selector.matches(series))
}

impl StoreInner {
    /// Drops expired rows.
    pub(crate) fn drop_expired(&self) -> Result<bool> {
        let (keep, parts) = {
            let state = self.state();
            (
                state.manifest.retention.clone(),
                state.manifest.parts.values().cloned().collect::<Vec<_>>(),
            )
        };
        let (mut changed, mut failed) = (false, None);
        if keep.is_empty() {
            return Ok(false);
        }
        let unrolled = days_without_rollup(&self.state().manifest);
        lock(&self.retention_checks).begin_round(&keep, &parts);
        for part in parts {
            let now = self.now();
            let is_old = |rule: &RetentionRule| {
                rule.resolution == part.resolution
                    && rule.duration.is_some_and(|ns| part.end.saturating_add(ns) <= now)
            };
            let old: OldRules = keep.iter().map(is_old).collect();
            // A day leaves the base only when all of it, and all that exists of the next day, is in
            // rollups: the next day's first delta starts at the last sample of this day.
            let waits = part.resolution == Resolution::Base
                && [part.day(), part.day().saturating_add(DAY)]
                    .iter()
                    .any(|day| unrolled.contains_key(day));
            let has_old = old.contains(&true);
            if waits || !has_old || lock(&self.retention_checks).is_done(part.number, &old) {
                continue;
            }
            let name = format!("applying retention to part {:016x}", part.number);
            match self.run_guarded(&name, || self.drop_expired_rows(&part, &keep, &old)) {
                Ok(dropped) => changed |= dropped,
                // An unreadable part does not stop retention of the others.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(changed), Err)
    }

    fn drop_expired_rows(
        &self,
        info: &PartInfo,
        keep: &[RetentionRule],
        old: &OldRules,
    ) -> Result<bool> {
        // Another part's change may have rewritten it; it is handled in the next run.
        let is_there = || self.state().manifest.parts.contains_key(&info.number);
        if !is_there() {
            return Ok(true);
        }
        let mut gaps = Vec::new();
        let parts = self.parts([info], &mut gaps)?;
        let now = self.now();
        let mut expires: BTreeSet<SeriesId> = BTreeSet::new();
        let series = self.series_in(&parts, &mut gaps)?;
        for (id, _) in &series {
            let held = {
                let index = self.index();
                index.number(id).map(|number| index.series(number))
            };
            let is_old = |rule: &RetentionRule| {
                rule.duration.is_some_and(|ns| info.end.saturating_add(ns) <= now)
            };
            if held
                .is_some_and(|series| rule_for(keep, info.resolution, &series).is_some_and(is_old))
            {
                expires.insert(*id);
            }
        }
        lock(&self.retention_checks).add_series(series.len() as u64);
        if expires.is_empty() && !series.is_empty() {
            lock(&self.retention_checks).set_done(info.number, old);
            return Ok(false);
        }
        let manifest = Arc::clone(&self.state().manifest);
        let in_minutes = manifest.is_covered(Resolution::Minute, info.day(), info.number);
        if info.resolution == Resolution::Base && !in_minutes {
            // Data at one sample a minute gets a rollup of minutes only when the base rows expire.
            self.rollup_day(info.day())?;
        }
        if !is_there() {
            return Ok(true);
        }
        let mut change = StoreChange::new(self)?;
        change.remove(info.number);
        if expires.len() == series.len() {
            change.commit(|_| {})?;
            return Ok(true);
        }
        let mut writing = change.write(info.resolution);
        // Rollups that cover base rows keep counting them.
        if info.resolution != Resolution::Base {
            writing.drops_series();
        }
        for (id, kind) in series.into_iter().filter(|(id, _)| !expires.contains(id)) {
            self.check_open()?;
            if let Some(gathered) = gather::gather_rows(&parts, &id, &ALL_TIME, &mut gaps)? {
                let (rows, predecessor) = gathered.into_normalized(kind);
                writing.append_rows(id, kind, rows, predecessor)?;
            }
        }
        // A base part may have been renumbered since the parts were listed.
        let covers = change.base_manifest.parts[&info.number].covers.clone();
        let new = change.add(writing, covers)?;
        let day = info.day();
        change.commit(|manifest| {
            gaps.into_iter().for_each(|gap| manifest.add_gap(gap));
            // The dropped rows are still in rollups, which cover the rest under its new number.
            if info.resolution == Resolution::Base {
                manifest.extend_coverage(day, info.number, new);
            }
        })?;
        Ok(true)
    }

    /// Deletes day by day, one commit a day. The caller has flushed the head.
    pub(crate) fn delete(
        &self,
        ids: &BTreeSet<SeriesId>,
        range: Range<i64>,
    ) -> Result<DeletionResult> {
        let mut deleted = DeletionResult::default();
        let manifest = Arc::clone(&self.state().manifest);
        let mut days: BTreeSet<i64> = BTreeSet::new();
        // A row belongs to the nanosecond before its end: a row that ended with the range is in it.
        for part in
            manifest.base_parts().filter(|part| part.start <= range.end && range.start < part.end)
        {
            let locations = self.part(part.number)?.chunk_locations()?;
            if locations.iter().any(|location| ids.contains(&location.series)) {
                days.insert(part.day());
            }
        }
        // Latest day first: the day after a deleted one is rolled up again, and has the least rows
        // then.
        for &day in days.iter().rev() {
            let rows = self.delete_day(day, ids, &range)?;
            deleted.rows = deleted.rows.saturating_add(rows);
        }
        // Rollups whose base rows are gone. Rollups of the days above are rebuilt from the rest.
        let manifest = Arc::clone(&self.state().manifest);
        let live: BTreeSet<u64> = manifest.base_parts().map(|part| part.number).collect();
        for info in manifest.parts.values().filter(|part| part.resolution != Resolution::Base) {
            let expired_rollups: BTreeSet<i64> = info
                .covers
                .iter()
                .filter(|(_, numbers)| !numbers.is_subset(&live) || numbers.is_empty())
                .map(|(&day, _)| day)
                .filter(|&day| day < range.end && range.start < day.saturating_add(DAY))
                .collect();
            if !expired_rollups.is_empty() {
                self.delete_rollups(info, &expired_rollups, ids, &range, &mut deleted)?;
            }
        }
        Ok(deleted)
    }

    fn delete_day(&self, day: i64, ids: &BTreeSet<SeriesId>, range: &Range<i64>) -> Result<u64> {
        let mut change = StoreChange::new(self)?;
        let rows = |manifest: &Manifest| manifest.base_parts().map(|part| part.rows).sum::<u64>();
        let before = change.base_manifest.clone();
        let mut gaps = Vec::new();
        let keep = |id: &SeriesId, end: i64| {
            !(ids.contains(id)
                && range.contains(&end.saturating_sub(1))
                && interval_start(end, DAY) == day)
        };
        let days = self.rollup_queue(&before, day, ids.clone())?;
        self.rollup_days(&mut change, &days, Some(&keep), &mut gaps)?;
        let mut renumbered = Vec::new();
        if !before.has_all_source_parts(day) {
            // The rollups of this day cannot be rebuilt: its rows are deleted from the base only.
            for info in before.base_parts().filter(|part| part.day() == day) {
                if before.is_covered(Resolution::Day, day, info.number) {
                    renumbered.push((
                        info.number,
                        self.rewrite(&mut change, info, &|id, end| keep(id, end), &mut gaps)?,
                    ));
                }
            }
        }
        change.commit(|manifest| {
            gaps.into_iter().for_each(|gap| manifest.add_gap(gap));
            renumbered.into_iter().for_each(|(old, new)| manifest.extend_coverage(day, old, new));
        })?;
        Ok(rows(&before).saturating_sub(rows(&self.state().manifest)))
    }

    /// Rewrites a base part without the rows that `keep` rejects, with new predecessors; returns
    /// the new part's number.
    pub(crate) fn rewrite(
        &self,
        change: &mut StoreChange<'_>,
        info: &PartInfo,
        keep: &RowFilter<'_>,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<u64>> {
        let parts = [self.part(info.number)?];
        change.remove(info.number);
        let mut writing = change.write(info.resolution);
        let base = BaseParts::from_manifest(&change.base_manifest);
        for (id, kind) in self.series_in(&parts, gaps)? {
            if drops_whole_day(keep, &id, info.day()) {
                continue;
            }
            let Some(gathered) = gather::gather_rows(&parts, &id, &ALL_TIME, gaps)? else {
                continue;
            };
            let (rows, predecessor) =
                self.filtered_rows(&base, &id, kind, gathered, Some(keep), gaps)?;
            writing.append_rows(id, kind, rows, predecessor)?;
        }
        change.add(writing, SourceParts::new())
    }

    fn delete_rollups(
        &self,
        info: &PartInfo,
        days: &BTreeSet<i64>,
        ids: &BTreeSet<SeriesId>,
        range: &Range<i64>,
        deleted: &mut DeletionResult,
    ) -> Result<()> {
        let mut change = StoreChange::new(self)?;
        let mut gaps = Vec::new();
        let parts = self.parts([info], &mut gaps)?;
        let mut writing = change.write(info.resolution);
        writing.replaces(info);
        writing.set_range(info.start..info.end)?;
        let (mut deleted_rows, mut remaining_rows) = (0_u64, 0_u64);
        for (id, kind) in self.series_in(&parts, &mut gaps)? {
            let Some(gathered) = gather::gather_rows(&parts, &id, &ALL_TIME, &mut gaps)? else {
                continue;
            };
            let mut rows = gathered.rows;
            if ids.contains(&id) {
                let before = rows.len() as u64;
                let is_of = |end: i64| days.contains(&interval_start(end, DAY));
                let overlaps =
                    |start: i64, end: i64| is_of(end) && start < range.end && range.start < end;
                let within = |start: i64, end: i64| range.start <= start && end <= range.end;
                let reaches_out = |&&(s, e): &&(i64, i64)| overlaps(s, e) && !within(s, e);
                let stay = rows.times().iter().filter(reaches_out).count() as u64;
                remaining_rows = remaining_rows.saturating_add(stay);
                rows.retain(|start, end| !(overlaps(start, end) && within(start, end)));
                deleted_rows =
                    deleted_rows.saturating_add(before.saturating_sub(rows.len() as u64));
            }
            writing.append_rows(id, kind, rows, Predecessor::Unknown)?;
        }
        deleted.retained_rows = deleted.retained_rows.saturating_add(remaining_rows);
        if deleted_rows == 0 {
            return Ok(());
        }
        deleted.rollup_rows = deleted.rollup_rows.saturating_add(deleted_rows);
        change.remove(info.number);
        change.add(writing, SourceParts::clone(&info.covers))?;
        change.commit(|manifest| gaps.into_iter().for_each(|gap| manifest.add_gap(gap)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicI64, Ordering};

    use disk::Disk;
    use journal::Level;
    use model::{BatchWriter, Sample, SampleValue, Selector, Series, SeriesKind};
    use sim::SimDisk;

    use super::*;
    use crate::options::Options;
    use crate::store::Store;

    const BEGIN: i64 = 20_000 * DAY;
    const SERIES: u64 = 1_000;

    fn store(clock: journal::WallClock) -> Store {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        Store::create(&disk, Path::new("/store"), &journal::Settings::default()).unwrap();
        let journal = journal::Options {
            is_exclusive: true,
            has_background_thread: false,
            ..Default::default()
        };
        let options =
            Options { has_background_thread: false, journal, clock, ..Options::default() };
        Store::open(disk, Path::new("/store"), &options).unwrap()
    }

    fn rule(days: i64, selector: Selector) -> RetentionRule {
        RetentionRule { resolution: Resolution::Base, duration: Some(days * DAY), selector }
    }

    /// With a rule for some series, an idle store read all series of all older parts each second.
    #[test]
    fn idle_store_reads_no_series_of_parts_that_it_has_checked() {
        let now = Arc::new(AtomicI64::new(BEGIN + DAY));
        let time = Arc::clone(&now);
        let store = store(Arc::new(move || time.load(Ordering::Relaxed)));
        let mut batch = BatchWriter::default();
        for number in 0..SERIES {
            let series = Series::new("retired", SeriesKind::Gauge);
            batch.series(&series.with_label("run", number.to_string()).validate().unwrap());
            let value = SampleValue::Number(1.0);
            batch.sample(&Sample { start: BEGIN + 5, end: BEGIN + 5, value }).unwrap();
        }
        let _ack = store.ingest(None, &batch.finish(), Level::Process).unwrap();
        let settle = || while store.maintain().unwrap() {};
        let read = || lock(&store.inner().retention_checks).series;
        let other = Selector::label_equals("host", "a");
        store.catch_up().unwrap();
        store.flush().unwrap();
        store.set_retention(vec![rule(2, other.clone()), rule(9, Selector::All)]).unwrap();
        now.store(BEGIN + 4 * DAY, Ordering::Relaxed);
        settle();
        assert_eq!(read(), SERIES, "the rule of two days may apply to them");
        (0..100).for_each(|_| settle());
        assert_eq!(read(), SERIES, "it applies to none of them");
        // Other rules, or a rule that gets old, are applied.
        store.set_retention(vec![rule(3, other), rule(9, Selector::All)]).unwrap();
        settle();
        assert_eq!(read(), 2 * SERIES);
        assert_eq!(store.stat().unwrap().series, SERIES);
        now.store(BEGIN + 11 * DAY, Ordering::Relaxed);
        settle();
        let base_rows = || {
            let manifest = Arc::clone(&store.inner().state().manifest);
            manifest.base_parts().map(|part| part.rows).sum::<u64>()
        };
        assert_eq!((read(), base_rows()), (3 * SERIES, 0));
        (0..100).for_each(|_| settle());
        assert_eq!(read(), 3 * SERIES);
    }
}
