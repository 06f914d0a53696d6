//! Parts put together: few large ones are read faster than many small ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::change::Change;
use crate::error::Result;
use crate::gather;
use crate::manifest::{Covers, PartInfo};
use crate::resolution::Resolution;
use crate::roll::{ALL_TIME, unrolled};
use crate::store::Inner;

/// As many parts of like size in a partition are put together: each row is then written once more for every
/// factor of eight.
const PARTS_MANY: usize = 8;
/// Parts are of like size up to this ratio.
const LIKE_SIZE: u64 = 4;

impl Inner {
    /// Puts parts together where there are many, and all of a partition that is over.
    pub(crate) fn put_together(&self) -> Result<bool> {
        let (mut changed, mut failed) = (false, None);
        let mut left: BTreeSet<u64> = BTreeSet::new();
        while let Some(parts) = self.parts_to_put_together(&left) {
            let numbers: Vec<String> =
                parts.iter().map(|part| format!("{:016x}", part.number)).collect();
            let name = format!("putting together parts {}", numbers.join(", "));
            match self.guarded(&name, || self.merge_parts(&parts).map(|()| true)) {
                Ok(true) => changed = true,
                Ok(false) => left.extend(parts.iter().map(|part| part.number)),
                // Parts that cannot be read are no reason to leave the others.
                Err(error) => {
                    left.extend(parts.iter().map(|part| part.number));
                    failed = failed.or(Some(error));
                }
            }
        }
        failed.map_or(Ok(changed), Err)
    }

    fn parts_to_put_together(&self, left: &BTreeSet<u64>) -> Option<Vec<PartInfo>> {
        let manifest = Arc::clone(&self.state().manifest);
        let latest = self.now().saturating_sub(self.options.grace);
        let uncovered = unrolled(&manifest);
        let mut groups: BTreeMap<(Resolution, i64), Vec<PartInfo>> = BTreeMap::new();
        for part in manifest.parts.values() {
            // What is in a rollup is put together when its day is rolled up anew, in the same commit.
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
            parts.sort_by_key(|part| part.bytes);
            let is_over = start.saturating_add(resolution.partition()) <= latest;
            if is_over && resolution != Resolution::Base && parts.len() > 1 {
                return Some(parts);
            }
            parts.windows(PARTS_MANY).find_map(|parts| {
                let like = parts[PARTS_MANY - 1].bytes <= parts[0].bytes.saturating_mul(LIKE_SIZE);
                like.then(|| parts.to_vec())
            })
        })
    }

    fn merge_parts(&self, infos: &[PartInfo]) -> Result<()> {
        let mut change = Change::new(self)?;
        let mut gaps = Vec::new();
        let mut covers = Covers::new();
        let mut writing = change.write(infos[0].resolution);
        let parts = self.parts(infos, &mut gaps)?;
        for info in infos {
            change.remove(info.number);
            writing.replaces(info);
            for (&day, numbers) in &info.covers {
                covers.entry(day).or_default().extend(numbers);
            }
            if !info.covers.is_empty() {
                writing.spans(info.start..info.end)?;
            }
        }
        for (id, kind) in self.series_in(&parts, &mut gaps)? {
            self.check_open()?;
            let Some(gathered) = gather::rows(&parts, &id, &ALL_TIME, &mut gaps)? else { continue };
            let (rows, predecessor) = gathered.settled(kind);
            writing.put(id, kind, rows, predecessor)?;
        }
        change.add(writing, covers)?;
        change.commit(|manifest| gaps.into_iter().for_each(|gap| manifest.add_gap(gap)))
    }
}
