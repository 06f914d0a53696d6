//! Deletions of a block: time ranges of series that a compaction will drop.
//!
//! ```text
//! offset  size  field
//!      0     4  magic    01 30 BA 30
//!      4     1  version  1
//!      5        deletions: series (varint), first and last millisecond (signed varints)
//!     -4     4  checksum of the deletions
//! ```

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashMap;

use super::{ByteCursor, CHECKSUM_BYTES, check_checksum, invalid};
use crate::input_error::InputError;

const MAGIC: [u8; 4] = [0x01, 0x30, 0xba, 0x30];
const VERSION: u8 = 1;

/// Deletions of a block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tombstones {
    by_series: HashMap<u64, DeletedRanges>,
}

/// Deleted time ranges of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletedRanges(Vec<(i64, i64)>);

impl Tombstones {
    /// Reads the file.
    pub fn parse(bytes: &[u8]) -> Result<Tombstones, InputError> {
        let mut cursor = ByteCursor::new(bytes, 0);
        let magic: [u8; 4] = cursor.array()?;
        if magic != MAGIC {
            return Err(invalid(0, "0130ba30, deletions of a block", format!("{magic:02x?}")));
        }
        let [version] = cursor.array()?;
        if version != VERSION {
            return Err(invalid(4, "version 1 of deletions", format!("{version}")));
        }
        let start = cursor.offset;
        let length = cursor.bytes.len().saturating_sub(CHECKSUM_BYTES);
        let deletions = cursor.take(length)?;
        check_checksum(deletions, cursor.array()?, start)?;
        let mut cursor = ByteCursor::new(deletions, start);
        let mut tombstones = Tombstones::default();
        while !cursor.bytes.is_empty() {
            let series = cursor.uvarint()?;
            let range = (cursor.varint()?, cursor.varint()?);
            tombstones.by_series.entry(series).or_default().0.push(range);
        }
        Ok(tombstones)
    }

    /// Deleted ranges of a series.
    pub fn of_series(&self, reference: u64) -> DeletedRanges {
        self.by_series.get(&reference).cloned().unwrap_or_default()
    }
}

impl DeletedRanges {
    /// Whether a timestamp in milliseconds is deleted.
    pub(super) fn contains(&self, time_ms: i64) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&time_ms))
    }
}
