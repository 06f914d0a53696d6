//! Coverage: which parts of the base the rollups of a day are made of.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeMap;

use model::{Gap, SeriesId};

use crate::manifest::{Manifest, PartInfo};
use crate::resolution::{DAY, Resolution, slot};
use crate::row::{Predecessor, Rows};

/// The starts of the days that some part of the base is in, and is in no rollup yet.
pub(crate) fn days_without_rollup(manifest: &Manifest) -> BTreeMap<i64, Vec<u64>> {
    let mut days: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for part in manifest.base_parts() {
        let day = part.day();
        if !manifest.is_covered(Resolution::Day, day, part.number) {
            days.entry(day).or_default().push(part.number);
        }
    }
    days
}

impl Manifest {
    pub(crate) fn base_parts(&self) -> impl Iterator<Item = &PartInfo> {
        self.parts.values().filter(|part| part.resolution == Resolution::Base)
    }

    /// Whether a part of the base is in the rollups of its day.
    pub(crate) fn is_covered(&self, resolution: Resolution, day: i64, number: u64) -> bool {
        let mut rollups = self.parts.values().filter(|part| part.resolution == resolution);
        rollups.any(|part| part.covers.get(&day).is_some_and(|numbers| numbers.contains(&number)))
    }

    /// Whether all that the rollups of a day were made of is still there.
    pub(crate) fn has_all_sources(&self, day: i64) -> bool {
        let is_live = |number: &u64| {
            self.parts.get(number).is_some_and(|part| part.resolution == Resolution::Base)
        };
        self.parts
            .values()
            .filter_map(|part| part.covers.get(&day))
            .all(|numbers| numbers.iter().all(is_live))
    }

    /// Whether readings that this one followed may have been dropped: it counts since before its
    /// partition, and of a day since then not all is there.
    pub(crate) fn may_have_dropped_predecessor(&self, (start, end): (i64, i64)) -> bool {
        let partition = slot(end, Resolution::Base.partition());
        let is_live = |number: &u64| {
            self.parts.get(number).is_some_and(|part| part.resolution == Resolution::Base)
        };
        start < partition
            && self.parts.values().flat_map(|part| part.covers.range(..partition)).any(
                |(day, numbers)| start < day.saturating_add(DAY) && !numbers.iter().all(is_live),
            )
    }

    /// Of settled readings of which nobody knows what the first followed: it must not count all
    /// since its start if that was dropped, for that stands in rollups. What happened since is then
    /// not known.
    pub(crate) fn without_baseline(&self, id: &SeriesId, rows: &mut Rows) -> Option<Gap> {
        let (end, start) = rows.first_time()?;
        // One that does not say since when it counts may follow whatever was dropped.
        let since = if start == end { i64::MIN } else { start };
        if !self.may_have_dropped_predecessor((since, end)) {
            return None;
        }
        match rows {
            Rows::Cumulative(rows) => rows[0].start = end,
            Rows::Numbers(rows) => rows[0].start = end,
            _ => {}
        }
        let reason = format!("readings of series {id} before this one were dropped");
        Some(Gap { start: end.saturating_sub(1), end, producer: None, lost: None, reason })
    }

    /// Of the reading before some others that is stored, and what their chunks say that they
    /// followed, the one that counts. A reading that came after those of its day were dropped is in
    /// no rollup: what followed them follows them still, or what happened in between would be lost.
    /// Of two readings of one time the one that is stored holds the other.
    pub(crate) fn predecessor(&self, stored: Option<Rows>, told: Predecessor) -> Predecessor {
        let Some(reading) = stored else { return told };
        let time = reading.first_time();
        let is_newer = match &told {
            Predecessor::Unknown => true,
            told => {
                time >= told.time()
                    && time.is_some_and(|(end, _)| self.has_all_sources(slot(end, DAY)))
            }
        };
        if is_newer { Predecessor::Reading(reading) } else { told }
    }

    /// Rollups of a day that have what was in the part `old` cover its successor too.
    pub(crate) fn extend_coverage(&mut self, day: i64, old: u64, new: Option<u64>) {
        for part in self.parts.values_mut() {
            if let Some(numbers) = part.covers.get_mut(&day).filter(|held| held.contains(&old)) {
                numbers.extend(new);
            }
        }
    }
}

impl PartInfo {
    /// The day that a part of the base lies in.
    pub(crate) fn day(&self) -> i64 {
        slot(self.end, DAY)
    }
}
