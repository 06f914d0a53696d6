//! A part that a read has opened: what its series share is looked up once.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::Arc;

use model::{Gap, SeriesId};

use crate::backend::Part;
use crate::gather;
use crate::manifest::PartInfo;

use super::{ChunkVisitor, ReadView};

/// Part of a read.
pub(super) struct OpenedPart<'v> {
    pub(super) info: &'v PartInfo,
    /// The part, and the gap for rows that are missing as a whole; a gap if it cannot be read.
    part: Result<(Arc<dyn Part>, Option<Gap>), Gap>,
}

impl ReadView {
    pub(super) fn open_part<'v>(&self, info: &'v PartInfo) -> OpenedPart<'v> {
        let part = self.inner.part(info.number).and_then(|part| {
            let missing = gather::missing_rows(&*part, info)?;
            Ok((part, missing))
        });
        OpenedPart { info, part: part.map_err(|error| part_gap(info, &error.to_string())) }
    }
}

impl OpenedPart<'_> {
    /// Calls `each` with each checked chunk of a series that touches `range`; damage becomes a gap.
    /// `bytes` is memory for the chunks.
    pub(super) fn chunks(
        &self,
        id: &SeriesId,
        range: &Range<i64>,
        bytes: &mut Vec<u8>,
        gaps: &mut Vec<Gap>,
        each: &mut ChunkVisitor<'_>,
    ) {
        let (part, missing) = match &self.part {
            Ok(opened) => opened,
            Err(gap) => return gaps.push(gap.clone()),
        };
        let locations = match part.find(id) {
            Ok(locations) => locations,
            Err(error) => return gaps.push(part_gap(self.info, &error.to_string())),
        };
        gaps.extend(missing.clone());
        for location in locations {
            // A row belongs to the nanosecond before its end.
            if location.end <= range.start || location.start > range.end {
                continue;
            }
            let read = gather::read(&**part, &location, bytes).unwrap_or_else(|error| {
                Err(gather::missing_chunk(&**part, &location, &error.to_string()))
            });
            match read {
                Err(gap) => gaps.push(gap),
                Ok(header) => {
                    if let Err(reason) = each(&location, &header, bytes) {
                        let reason = format!("chunk at byte {}: {reason}", location.offset);
                        gaps.push(part_gap(self.info, &reason));
                    }
                }
            }
        }
    }
}

pub(super) fn part_gap(info: &PartInfo, reason: &str) -> Gap {
    Gap {
        start: info.start,
        end: info.end,
        producer: None,
        lost: None,
        reason: format!("part {:016x}: {reason}", info.number),
    }
}
