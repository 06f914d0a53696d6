//! Base parts of a day that is rolled up.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, BTreeSet};

use model::{SeriesId, SeriesKind};

use crate::change::{PartBuilder, StoreChange};
use crate::error::Result;
use crate::gather::KnownPredecessors;
use crate::manifest::{PartInfo, SourceParts};
use crate::resolution::Resolution;
use crate::row::{Predecessor, Rows};

/// Base parts of one day, rewritten where needed.
#[derive(Default)]
pub(super) struct RewrittenDay<'a> {
    builders: BTreeMap<i64, PartBuilder<'a>>,
    removed: Vec<u64>,
    pub(super) retained: BTreeSet<u64>,
    /// Number of the retained part of each partition.
    retained_by_partition: BTreeMap<i64, u64>,
    outdated: BTreeSet<u64>,
}

/// Predecessor of a partition's first sample: an earlier sample of the same day, or the predecessor
/// of the day.
fn before_partition(rows: &Rows, start: i64, predecessor: &Predecessor) -> Predecessor {
    rows.last_sample(start).map_or_else(|| predecessor.clone(), Predecessor::Sample)
}

impl<'a> RewrittenDay<'a> {
    /// Whether all parts are unchanged.
    pub(super) fn is_unchanged(&self) -> bool {
        self.builders.is_empty()
    }

    pub(super) fn begin(
        change: &mut StoreChange<'a>,
        base: &[&PartInfo],
        filters: bool,
    ) -> RewrittenDay<'a> {
        let mut partitions: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for part in base {
            partitions.entry(part.partition().start).or_default().push(part.number);
        }
        let mut rebuilt = RewrittenDay::default();
        for (start, numbers) in partitions {
            if numbers.len() > 1 || filters {
                rebuilt.builders.insert(start, change.write(Resolution::Base));
                rebuilt.removed.extend(numbers);
            } else {
                rebuilt.retained_by_partition.extend(numbers.iter().map(|&number| (start, number)));
                rebuilt.retained.extend(numbers);
            }
        }
        rebuilt
    }

    pub(super) fn put(
        &mut self,
        id: SeriesId,
        kind: SeriesKind,
        rows: &Rows,
        predecessor: &Predecessor,
    ) -> Result<()> {
        for (&start, writing) in &mut self.builders {
            let range = start..start.saturating_add(Resolution::Base.partition());
            let predecessor = match kind.is_cumulative() {
                true => before_partition(rows, start, predecessor),
                false => Predecessor::Unknown,
            };
            let rows = rows.filtered(|_, end| range.contains(&end.saturating_sub(1)));
            writing.append_rows(id, kind, rows, predecessor)?;
        }
        Ok(())
    }

    /// Marks retained parts whose recorded predecessor of a series' first sample is outdated
    /// because a later sample, or a greater one of the same time, arrived late. When that sample is
    /// dropped, the increase since it would be unknown.
    pub(super) fn mark_outdated(
        &mut self,
        rows: &Rows,
        predecessor: &Predecessor,
        recorded: &KnownPredecessors,
    ) {
        for (&start, &number) in &self.retained_by_partition {
            let partition = start..start.saturating_add(Resolution::Base.partition());
            let is_of = |end: i64| partition.contains(&end.saturating_sub(1));
            let first = rows.times().into_iter().find(|&(_, end)| is_of(end));
            let Some((began, end)) = first else { continue };
            let now = before_partition(rows, start, predecessor);
            let then = recorded.at((end, began));
            let is_outdated = then.and_then(Predecessor::time) <= now.time() && then != Some(&now);
            if now.time().is_some() && is_outdated {
                self.outdated.insert(number);
            }
        }
    }

    /// Takes the parts that must be rewritten out of the retained ones.
    pub(super) fn take_outdated_parts(&mut self) -> BTreeSet<u64> {
        let outdated = std::mem::take(&mut self.outdated);
        self.retained.retain(|number| !outdated.contains(number));
        outdated
    }

    pub(super) fn finish(self, change: &mut StoreChange<'_>) -> Result<BTreeSet<u64>> {
        let mut numbers = self.retained;
        for writing in self.builders.into_values() {
            numbers.extend(change.add(writing, SourceParts::new())?);
        }
        self.removed.into_iter().for_each(|number| change.remove(number));
        Ok(numbers)
    }
}
