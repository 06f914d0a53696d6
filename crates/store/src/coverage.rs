//! Coverage: the base parts that the rollups of a day are made of.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, HashSet};

use model::{Gap, SeriesId};

use crate::manifest::{Manifest, PartInfo};
use crate::resolution::{DAY, Resolution, interval_start};
use crate::row::{Predecessor, Rows};

/// Starts of days with a base part that no rollup covers.
pub(crate) fn days_without_rollup(manifest: &Manifest) -> BTreeMap<i64, Vec<u64>> {
    let rollups = manifest.parts.values().filter(|part| part.resolution == Resolution::Day);
    let covers = rollups.flat_map(|part| &part.covers);
    let covered: HashSet<(i64, u64)> =
        covers.flat_map(|(&day, parts)| parts.iter().map(move |&part| (day, part))).collect();
    let mut days: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for part in manifest.base_parts() {
        let day = part.day();
        if !covered.contains(&(day, part.number)) {
            days.entry(day).or_default().push(part.number);
        }
    }
    days
}

impl Manifest {
    pub(crate) fn base_parts(&self) -> impl Iterator<Item = &PartInfo> {
        self.parts.values().filter(|part| part.resolution == Resolution::Base)
    }

    /// Whether the rollups of its day cover a base part.
    pub(crate) fn is_covered(&self, resolution: Resolution, day: i64, number: u64) -> bool {
        let mut rollups = self.parts.values().filter(|part| part.resolution == resolution);
        rollups.any(|part| part.covers.get(&day).is_some_and(|numbers| numbers.contains(&number)))
    }

    /// Whether all source parts of a day's rollups still exist.
    pub(crate) fn has_all_source_parts(&self, day: i64) -> bool {
        let is_live = |number: &u64| {
            self.parts.get(number).is_some_and(|part| part.resolution == Resolution::Base)
        };
        self.parts
            .values()
            .filter_map(|part| part.covers.get(&day))
            .all(|numbers| numbers.iter().all(is_live))
    }

    /// Start of the last day some of whose source parts are gone.
    pub(crate) fn last_incomplete_day(&self) -> Option<i64> {
        let is_live = |number: &u64| {
            self.parts.get(number).is_some_and(|part| part.resolution == Resolution::Base)
        };
        let days = self.parts.values().flat_map(|part| &part.covers);
        days.filter(|(_, numbers)| !numbers.iter().all(is_live)).map(|(&day, _)| day).max()
    }

    /// Whether predecessors of this sample may have been dropped: it counts from before its
    /// partition, and some day since then is incomplete.
    pub(crate) fn may_have_dropped_predecessor(&self, (start, end): (i64, i64)) -> bool {
        let partition = interval_start(end, Resolution::Base.partition());
        let is_live = |number: &u64| {
            self.parts.get(number).is_some_and(|part| part.resolution == Resolution::Base)
        };
        start < partition
            && self.parts.values().flat_map(|part| part.covers.range(..partition)).any(
                |(day, numbers)| start < day.saturating_add(DAY) && !numbers.iter().all(is_live),
            )
    }

    /// Drops the first of normalized samples whose predecessor is unknown if its earlier part was
    /// dropped: it must not count everything since its start, because rollups hold that already.
    /// The increase up to that sample is then unknown.
    pub(crate) fn without_baseline(&self, id: &SeriesId, rows: &mut Rows) -> Option<Gap> {
        let (end, start) = rows.first_time()?;
        // A sample without a start time may follow any dropped sample.
        let since = if start == end { i64::MIN } else { start };
        if !self.may_have_dropped_predecessor((since, end)) {
            return None;
        }
        match rows {
            Rows::Cumulative(rows) => rows[0].start = end,
            Rows::Numbers(rows) => rows[0].start = end,
            _ => {}
        }
        let reason = format!("earlier samples of series {id} were dropped");
        Some(Gap { start: end.saturating_sub(1), end, producer: None, lost: None, reason })
    }

    /// Chooses between the stored predecessor of some samples and the predecessor that their chunks
    /// record. A sample that arrived after its day's samples were dropped is in no rollup: the
    /// samples after it still follow it, otherwise the increase in between would be lost. Of two
    /// samples at one time, the stored one contains the other.
    pub(crate) fn predecessor(&self, stored: Option<Rows>, recorded: Predecessor) -> Predecessor {
        let Some(sample) = stored else { return recorded };
        let time = sample.first_time();
        let is_newer = match &recorded {
            Predecessor::Unknown => true,
            recorded => {
                time >= recorded.time()
                    && time
                        .is_some_and(|(end, _)| self.has_all_source_parts(interval_start(end, DAY)))
            }
        };
        if is_newer { Predecessor::Sample(sample) } else { recorded }
    }

    /// Rollups of a day that cover the part `old` now cover its successor too.
    pub(crate) fn extend_coverage(&mut self, day: i64, old: u64, new: Option<u64>) {
        for part in self.parts.values_mut() {
            if let Some(numbers) = part.covers.get_mut(&day).filter(|held| held.contains(&old)) {
                numbers.extend(new);
            }
        }
    }
}

impl PartInfo {
    /// The day that a base part lies in.
    pub(crate) fn day(&self) -> i64 {
        interval_start(self.end, DAY)
    }
}
