//! Rows of one series out of several parts.

use std::ops::Range;
use std::sync::Arc;

use model::{Gap, SeriesId};

use crate::backend::{Part, Place};
use crate::chunk::{self, Header};
use crate::error::Result;
use crate::row::Rows;

/// Reads a chunk and compares its checksum and what it is. What is wrong becomes a gap.
pub(crate) fn read(part: &dyn Part, place: &Place, bytes: &mut Vec<u8>) -> Result<Header, Gap> {
    let gap = |why: &str| gap(part, place, why);
    part.read(place, bytes).map_err(|error| gap(&error.to_string()))?;
    let header = chunk::check(bytes).map_err(|why| gap(&why))?;
    if header.series != place.series || header.rows != place.rows as usize {
        return Err(gap("another chunk than the index says"));
    }
    Ok(header)
}

/// What is missing when a chunk cannot be read.
pub(crate) fn gap(part: &dyn Part, place: &Place, why: &str) -> Gap {
    let Place { series, start, end, offset, .. } = *place;
    let reason = format!("chunk of series {series} in {} at byte {offset}: {why}", part.name());
    Gap { start, end, producer: None, lost: Some(place.rows.into()), reason }
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
            let read = read(&**part, &place, &mut bytes).and_then(|header| {
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
