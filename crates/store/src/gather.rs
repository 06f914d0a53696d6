//! Collecting rows of a series from several parts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::Arc;

use model::{Gap, SeriesId, SeriesKind};

use crate::backend::{ChunkLocation, Part};
use crate::chunk::{self, ChunkHeader};
use crate::error::Result;
use crate::manifest::PartInfo;
use crate::row::{Predecessor, Rows};

/// Reads a chunk and verifies its checksum and header. Corruption becomes a gap; a read failure is
/// an error, because a retry may succeed.
pub(crate) fn read(
    part: &dyn Part,
    location: &ChunkLocation,
    bytes: &mut Vec<u8>,
) -> Result<Result<ChunkHeader, Gap>> {
    part.read(location, bytes)?;
    Ok(check(part, location, bytes))
}

/// Verifies checksum and header of a chunk that was read.
pub(crate) fn check(
    part: &dyn Part,
    location: &ChunkLocation,
    bytes: &[u8],
) -> Result<ChunkHeader, Gap> {
    match chunk::check(bytes) {
        Ok(header) if header.series != location.series || header.rows != location.rows as usize => {
            Err(missing_chunk(part, location, "chunk differs from its index entry"))
        }
        Ok(header) => Ok(header),
        Err(reason) => Err(missing_chunk(part, location, &reason)),
    }
}

/// A chunk that is missing.
pub(crate) fn missing_chunk(part: &dyn Part, location: &ChunkLocation, reason: &str) -> Gap {
    let ChunkLocation { series, offset, .. } = location;
    Gap {
        start: location.start,
        end: location.end,
        producer: None,
        lost: Some(location.rows.into()),
        reason: format!("chunk of series {series} in {} at byte {offset}: {reason}", part.name()),
    }
}

/// Gap for rows that are lost together with the corrupt index of a part: their series are unknown.
pub(crate) fn missing_rows(part: &dyn Part, info: &PartInfo) -> Result<Option<Gap>> {
    let damage = part.damage()?;
    if damage.is_empty() {
        return Ok(None);
    }
    let found: u64 = part.chunk_locations()?.iter().map(|location| u64::from(location.rows)).sum();
    let lost = info.rows.saturating_sub(found);
    let reason = format!("{}: {}; {lost} rows are missing", part.name(), damage.join("; "));
    let (start, end) = (info.start, info.end);
    Ok((lost > 0).then_some(Gap { start, end, producer: None, lost: Some(lost), reason }))
}

/// Known predecessors of samples, taken from chunks. A chunk written before a late sample arrived
/// names an older predecessor. A predecessor that was dropped is known only from the chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPredecessors(Vec<((i64, i64), Predecessor)>);

impl KnownPredecessors {
    /// Adds the predecessor that the chunk of these rows records.
    pub(crate) fn add(&mut self, rows: &Rows, predecessor: Predecessor) {
        self.0.extend(rows.first_time().map(|first| (first, predecessor)));
    }

    /// Adds the predecessor that the chunk records whose first sample has this end and start.
    pub(crate) fn add_at(&mut self, first: (i64, i64), predecessor: Predecessor) {
        self.0.push((first, predecessor));
    }

    /// Removes samples that `keep` rejects by end time.
    pub(crate) fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        for (_, predecessor) in &mut self.0 {
            if predecessor.time().is_some_and(|time| !keep(time.0)) {
                *predecessor = Predecessor::Unknown;
            }
        }
    }

    /// The recorded predecessor of the sample with this end and start.
    pub(crate) fn for_first_sample(&self, first: (i64, i64)) -> Predecessor {
        let known = self.0.iter().filter(|held| held.1.time().is_some_and(|time| time < first));
        if let Some((_, last)) = known.max_by_key(|held| held.1.time()) {
            return last.clone();
        }
        // A late sample before the recorded first one was itself the first at that time.
        match self.0.iter().any(|held| held.1 == Predecessor::Nothing) {
            true => Predecessor::Nothing,
            false => Predecessor::Unknown,
        }
    }

    /// The predecessor recorded by the chunk that starts with that row.
    pub(crate) fn at(&self, first: (i64, i64)) -> Option<&Predecessor> {
        self.0.iter().find(|held| held.0 == first).map(|held| &held.1)
    }
}

/// Rows of a series from several parts.
pub(crate) struct GatheredRows {
    /// Not yet normalized.
    pub(crate) rows: Rows,
    pub(crate) predecessors: KnownPredecessors,
}

impl GatheredRows {
    /// Normalized rows, and the recorded predecessor of the first.
    pub(crate) fn into_normalized(mut self, kind: SeriesKind) -> (Rows, Predecessor) {
        self.rows.normalize(kind);
        let first = self.rows.first_time();
        let predecessor =
            first.map_or(Predecessor::Unknown, |first| self.predecessors.for_first_sample(first));
        (self.rows, predecessor)
    }
}

/// All rows of a series in some parts that ended within `range`, not normalized; `None` if there
/// are none.
pub(crate) fn gather_rows(
    parts: &[Arc<dyn Part>],
    series: &SeriesId,
    range: &Range<i64>,
    gaps: &mut Vec<Gap>,
) -> Result<Option<GatheredRows>> {
    let mut found: Option<GatheredRows> = None;
    let mut bytes = Vec::new();
    for part in parts {
        for location in part.find(series)? {
            if location.end <= range.start || location.start.saturating_sub(1) >= range.end {
                continue;
            }
            let read = read(&**part, &location, &mut bytes)?.and_then(|header| {
                chunk::decode(&header, &bytes)
                    .map_err(|reason| missing_chunk(&**part, &location, &reason))
            });
            let (mut rows, predecessor) = match read {
                Ok(read) => read,
                Err(gap) => {
                    gaps.push(gap);
                    continue;
                }
            };
            let mut predecessors = KnownPredecessors::default();
            predecessors.add(&rows, predecessor);
            rows.retain(|_, end| range.contains(&end.saturating_sub(1)));
            match &mut found {
                Some(found) => {
                    found.rows.append(rows);
                    found.predecessors.0.extend(predecessors.0);
                }
                None => found = Some(GatheredRows { rows, predecessors }),
            }
        }
    }
    Ok(found)
}

/// The later of two samples; at equal times, the one with precedence.
pub(crate) fn later_sample(a: Option<Rows>, b: Option<Rows>, kind: SeriesKind) -> Option<Rows> {
    match (a, b) {
        (Some(mut a), Some(b)) => {
            a.append(b);
            a.normalize(kind);
            a.last_sample(i64::MAX)
        }
        (a, b) => a.or(b),
    }
}
