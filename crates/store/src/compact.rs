//! Compaction of parts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base_parts::ALL_TIME;
use crate::change::StoreChange;
use crate::coverage::days_without_rollup;
use crate::error::Result;
use crate::gather;
use crate::inner::StoreInner;
use crate::manifest::{PartInfo, SourceParts};
use crate::resolution::Resolution;

/// Number of parts of similar size in a partition that triggers compaction: each row is rewritten
/// once per factor of eight.
const PARTS_TO_COMPACT: usize = 8;
/// Maximum size ratio of parts of similar size.
const LIKE_SIZE: u64 = 4;

impl StoreInner {
    /// Compacts partitions with many parts, and all parts of a closed partition.
    pub(crate) fn compact_parts(&self) -> Result<bool> {
        let (mut changed, mut failed) = (false, None);
        let mut obsolete_parts: BTreeSet<u64> = BTreeSet::new();
        while let Some(parts) = self.parts_to_compact(&obsolete_parts) {
            let numbers: Vec<String> =
                parts.iter().map(|part| format!("{:016x}", part.number)).collect();
            let name = format!("compacting parts {}", numbers.join(", "));
            match self.run_guarded(&name, || self.merge_parts(&parts).map(|()| true)) {
                Ok(true) => changed = true,
                Ok(false) => obsolete_parts.extend(parts.iter().map(|part| part.number)),
                // An unreadable part does not stop the compaction of the others.
                Err(error) => {
                    obsolete_parts.extend(parts.iter().map(|part| part.number));
                    failed = failed.or(Some(error));
                }
            }
        }
        failed.map_or(Ok(changed), Err)
    }

    fn parts_to_compact(&self, left: &BTreeSet<u64>) -> Option<Vec<PartInfo>> {
        let manifest = Arc::clone(&self.state().manifest);
        let latest = self.now().saturating_sub(self.options.late_grace);
        let uncovered = days_without_rollup(&manifest);
        let mut groups: BTreeMap<(Resolution, i64), Vec<PartInfo>> = BTreeMap::new();
        for part in manifest.parts.values() {
            // A rollup is compacted when its day is rolled up again, in the same commit.
            let is_free = part.resolution != Resolution::Base
                || uncovered.get(&part.day()).is_some_and(|numbers| numbers.contains(&part.number));
            if is_free && !left.contains(&part.number) {
                groups
                    .entry((part.resolution, part.partition().start))
                    .or_default()
                    .push(part.clone());
            }
        }
        groups.into_iter().find_map(|((resolution, start), mut parts)| {
            model::sort::by_key(&mut parts, |part| part.bytes);
            let is_over = start.saturating_add(resolution.partition()) <= latest;
            if is_over && resolution != Resolution::Base && parts.len() > 1 {
                return Some(parts);
            }
            parts.windows(PARTS_TO_COMPACT).find_map(|parts| {
                let like =
                    parts[PARTS_TO_COMPACT - 1].bytes <= parts[0].bytes.saturating_mul(LIKE_SIZE);
                like.then(|| parts.to_vec())
            })
        })
    }

    fn merge_parts(&self, infos: &[PartInfo]) -> Result<()> {
        let mut change = StoreChange::new(self)?;
        let mut gaps = Vec::new();
        let mut covers = SourceParts::new();
        let mut writing = change.write(infos[0].resolution);
        let parts = self.parts(infos, &mut gaps)?;
        for info in infos {
            change.remove(info.number);
            writing.replaces(info);
            for (&day, numbers) in &info.covers {
                covers.entry(day).or_default().extend(numbers);
            }
            if !info.covers.is_empty() {
                writing.set_range(info.start..info.end)?;
            }
        }
        for (id, kind) in self.series_in(&parts, &mut gaps)? {
            self.check_open()?;
            let Some(gathered) = gather::gather_rows(&parts, &id, &ALL_TIME, &mut gaps)? else {
                continue;
            };
            let (rows, predecessor) = gathered.into_normalized(kind);
            writing.append_rows(id, kind, rows, predecessor)?;
        }
        change.add(writing, covers)?;
        change.commit(|manifest| gaps.into_iter().for_each(|gap| manifest.add_gap(gap)))
    }
}
