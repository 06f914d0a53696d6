//! Rows of one series out of several parts.

use std::ops::Range;
use std::sync::Arc;

use model::{Gap, SeriesId};

use crate::backend::{Part, Place};
use crate::chunk::{self, Header};
use crate::error::Result;
use crate::manifest::PartInfo;
use crate::row::Rows;
use crate::store::Inner;

/// Reads a chunk and compares its checksum and what it is. What is damaged is a gap; what cannot be read now is
/// an error, for it may be there the next time.
pub(crate) fn read(
    part: &dyn Part,
    place: &Place,
    bytes: &mut Vec<u8>,
) -> Result<Result<Header, Gap>> {
    part.read(place, bytes)?;
    Ok(match chunk::check(bytes) {
        Ok(header) if header.series != place.series || header.rows != place.rows as usize => {
            Err(gap(part, place, "another chunk than the index says"))
        }
        Ok(header) => Ok(header),
        Err(why) => Err(gap(part, place, &why)),
    })
}

/// A chunk that is missing.
pub(crate) fn gap(part: &dyn Part, place: &Place, why: &str) -> Gap {
    let Place { series, offset, .. } = place;
    Gap {
        start: place.start,
        end: place.end,
        producer: None,
        lost: Some(place.rows.into()),
        reason: format!("chunk of series {series} in {} at byte {offset}: {why}", part.name()),
    }
}

/// Rows that a part should have and that nobody can find, its index being damaged with them: whose they are is
/// not known.
pub(crate) fn missing(part: &dyn Part, info: &PartInfo) -> Result<Option<Gap>> {
    let damage = part.damage()?;
    if damage.is_empty() {
        return Ok(None);
    }
    let found: u64 = part.places()?.iter().map(|place| u64::from(place.rows)).sum();
    let lost = info.rows.saturating_sub(found);
    let reason = format!("{}: {}; {lost} rows are missing", part.name(), damage.join("; "));
    let (start, end) = (info.start, info.end);
    Ok((lost > 0).then_some(Gap { start, end, producer: None, lost: Some(lost), reason }))
}

impl Inner {
    /// Parts that are to be written anew, and what is missing of them as a whole.
    pub(crate) fn parts<'a>(
        &self,
        infos: impl IntoIterator<Item = &'a PartInfo>,
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<Arc<dyn Part>>> {
        let mut parts = Vec::new();
        for info in infos {
            let part = self.part(info.number)?;
            gaps.extend(missing(&*part, info)?);
            parts.push(part);
        }
        Ok(parts)
    }
}

/// All rows of a series in some parts that pass `wanted`, unsettled; `None` if there are none.
pub(crate) fn rows(
    parts: &[Arc<dyn Part>],
    series: &SeriesId,
    range: &Range<i64>,
    gaps: &mut Vec<Gap>,
) -> Result<Option<Rows>> {
    let mut found: Option<Rows> = None;
    let mut bytes = Vec::new();
    for part in parts {
        for place in part.find(series)? {
            if place.end <= range.start || place.start.saturating_sub(1) >= range.end {
                continue;
            }
            let read = read(&**part, &place, &mut bytes)?.and_then(|header| {
                chunk::decode(&header, &bytes).map_err(|why| gap(&**part, &place, &why))
            });
            let mut rows = match read {
                Ok(rows) => rows,
                Err(gap) => {
                    gaps.push(gap);
                    continue;
                }
            };
            rows.retain(|_, end| range.contains(&end.saturating_sub(1)));
            match &mut found {
                Some(found) => found.append(rows),
                None => found = Some(rows),
            }
        }
    }
    Ok(found)
}
