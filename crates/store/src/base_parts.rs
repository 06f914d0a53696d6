//! Base rows merged from several parts, and the predecessor of the first one.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::{Gap, SeriesId, SeriesKind};

use crate::backend::Part;
use crate::chunk;
use crate::error::Result;
use crate::gather::{self, GatheredRows};
use crate::inner::StoreInner;
use crate::manifest::{Manifest, PartInfo};
use crate::resolution::DAY;
use crate::row::{Predecessor, Rows};

pub(crate) const ALL_TIME: Range<i64> = i64::MIN..i64::MAX;

/// Retention filter: whether a row of a series that ended at a time is retained. The dropped times
/// of one series form one interval.
pub(crate) type RowFilter<'a> = dyn Fn(&SeriesId, i64) -> bool + 'a;

/// Whether the filter drops all rows of a series in a day, so that none has to be read.
pub(crate) fn drops_whole_day(keep: &RowFilter<'_>, id: &SeriesId, day: i64) -> bool {
    !keep(id, day.saturating_add(1)) && !keep(id, day.saturating_add(DAY))
}

/// Parts of the base by partition start.
pub(crate) struct BaseParts<'a> {
    manifest: &'a Manifest,
    partitions: BTreeMap<i64, Vec<&'a PartInfo>>,
}

impl<'a> BaseParts<'a> {
    pub(crate) fn from_manifest(manifest: &'a Manifest) -> BaseParts<'a> {
        let mut partitions: BTreeMap<i64, Vec<&PartInfo>> = BTreeMap::new();
        for part in manifest.base_parts() {
            partitions.entry(part.partition().start).or_default().push(part);
        }
        BaseParts { manifest, partitions }
    }
}

impl StoreInner {
    /// The last sample of a series up to `time` that passes `filter`. A chunk records the sample
    /// before its first row: of a chunk whose rows `filter` drops it counts if it is later than the
    /// last stored row.
    pub(crate) fn previous_sample(
        &self,
        base: &BaseParts<'_>,
        id: &SeriesId,
        kind: SeriesKind,
        time: i64,
        filter: Option<&RowFilter<'_>>,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<Rows>> {
        let mut from_dropped: Option<Rows> = None;
        for parts in base.partitions.values().rev() {
            let started = parts.iter().copied().filter(|part| part.start <= time);
            let parts = self.parts(started, gaps)?;
            let found = match filter {
                None => last_sample(&parts, id, kind, time, gaps)?,
                Some(keep) => {
                    let before = i64::MIN..time;
                    let Some(mut gathered) = gather::gather_rows(&parts, id, &before, gaps)? else {
                        continue;
                    };
                    gathered.rows.retain(|_, end| keep(id, end));
                    gathered.predecessors.retain(|end| keep(id, end));
                    let recorded =
                        gathered.predecessors.for_first_sample((time, i64::MAX)).into_sample();
                    from_dropped = gather::later_sample(from_dropped, recorded, kind);
                    gathered.rows.normalize(kind);
                    gathered.rows.last_sample(time)
                }
            };
            if found.is_some() {
                return Ok(gather::later_sample(found, from_dropped, kind));
            }
        }
        Ok(from_dropped)
    }

    /// Rows that pass `filter`, in order, and the predecessor of the first.
    pub(crate) fn filtered_rows(
        &self,
        base: &BaseParts<'_>,
        id: &SeriesId,
        kind: SeriesKind,
        mut gathered: GatheredRows,
        filter: Option<&RowFilter<'_>>,
        gaps: &mut Vec<Gap>,
    ) -> Result<(Rows, Predecessor)> {
        if let Some(keep) = filter {
            gathered.rows.retain(|_, end| keep(id, end));
            gathered.predecessors.retain(|end| keep(id, end));
        }
        let (rows, recorded) = gathered.into_normalized(kind);
        let Some((end, _)) = rows.first_time().filter(|_| kind.is_cumulative()) else {
            return Ok((rows, Predecessor::Unknown));
        };
        let predecessor = self.predecessor(base, (id, kind), end, recorded, filter, gaps)?;
        Ok((rows, predecessor))
    }

    /// Predecessor of the sample of a cumulative series that ended at `end`, of which chunks record
    /// `recorded`.
    pub(crate) fn predecessor(
        &self,
        base: &BaseParts<'_>,
        (id, kind): (&SeriesId, SeriesKind),
        end: i64,
        recorded: Predecessor,
        filter: Option<&RowFilter<'_>>,
        gaps: &mut Vec<Gap>,
    ) -> Result<Predecessor> {
        let before = end.saturating_sub(1);
        let known_before = gaps.len();
        let stored = self.previous_sample(base, id, kind, before, filter, gaps)?;
        Ok(match base.manifest.predecessor(stored, recorded) {
            // No gap was found, so there was no predecessor; this must be recorded before other
            // rows are dropped.
            Predecessor::Unknown
                if gaps.len() == known_before
                    && !base.manifest.may_have_dropped_predecessor((i64::MIN, end)) =>
            {
                Predecessor::Nothing
            }
            predecessor => predecessor,
        })
    }
}

/// The last sample of a series in some parts that ended by `time`.
fn last_sample(
    parts: &[Arc<dyn Part>],
    id: &SeriesId,
    kind: SeriesKind,
    time: i64,
    gaps: &mut Vec<Gap>,
) -> Result<Option<Rows>> {
    let mut locations = Vec::new();
    for part in parts {
        let found = part.find(id)?.into_iter().filter(|location| location.start <= time);
        locations.extend(found.map(|location| (part, location)));
    }
    model::sort::by_key(&mut locations, |(_, location)| Reverse(location.end.min(time)));
    let mut last: Option<Rows> = None;
    let mut bytes = Vec::new();
    for (part, location) in locations {
        let is_later = |held: &Rows| held.first_time().is_some_and(|held| held.0 > location.end);
        if last.as_ref().is_some_and(is_later) {
            break;
        }
        let read = gather::read(&**part, &location, &mut bytes)?.and_then(|header| {
            chunk::last_sample(&header, &bytes, time)
                .map_err(|reason| gather::missing_chunk(&**part, &location, &reason))
        });
        match read {
            Ok(found) => last = gather::later_sample(last, found, kind),
            Err(gap) => gaps.push(gap),
        }
    }
    Ok(last)
}
