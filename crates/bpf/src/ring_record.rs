//! Layout of records in a ring buffer of BPF.
//!
//! ```text
//! record  length u32, page u32, content, padding to a multiple of 8
//! ```
//!
//! The high bits of the length say that the record is being written, or is to be ignored. Source:
//! kernel, kernel/bpf/ringbuf.c, include/uapi/linux/bpf.h.

/// Size of the header of a record.
pub(crate) const HEADER_BYTES: usize = 8;
/// The record is being written.
pub(crate) const BUSY: u32 = 1 << 31;
/// The record is to be ignored.
const DISCARDED: u32 = 1 << 30;

/// A complete record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingRecord {
    /// Size of the content.
    pub(crate) length: usize,
    /// Whether it has content for the reader.
    pub(crate) is_valid: bool,
    /// Distance to the next record.
    pub(crate) stride: usize,
}

impl RingRecord {
    /// The record with this length field; `None` if it is being written.
    pub(crate) fn decode(field: u32) -> Option<RingRecord> {
        if field & BUSY != 0 {
            return None;
        }
        let length = (field & !DISCARDED) as usize;
        let stride = (length + HEADER_BYTES).next_multiple_of(8);
        Some(RingRecord { length, is_valid: field & DISCARDED == 0, stride })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: u32, expected: Option<(usize, bool, usize)>) {
        let found = RingRecord::decode(field).map(|of| (of.length, of.is_valid, of.stride));
        assert_eq!(found, expected);
    }

    #[test]
    fn records_are_padded() {
        check(0, Some((0, true, 8)));
        check(1, Some((1, true, 16)));
        check(8, Some((8, true, 16)));
        check(9 | DISCARDED, Some((9, false, 24)));
        check(BUSY | 9, None);
        check(BUSY | DISCARDED, None);
    }
}
