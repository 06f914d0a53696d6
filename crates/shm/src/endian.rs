//! Bounds-checked access to untrusted bytes of other formats.
//!
//! Offsets have 64 bits as in the files. No function panics, whatever the offset.

use std::collections::HashSet;

use crate::metric_snapshot::ProcessSeries;

/// A field of a record: name, offset, size in bytes.
pub(crate) type EndianField = (&'static str, u64, u64);

/// Offset of a field. Called in constants only, so that an unknown name does not compile.
pub(crate) const fn field_offset(fields: &[EndianField], name: &str) -> u64 {
    let mut index = 0;
    while index < fields.len() {
        if is_same(fields[index].0.as_bytes(), name.as_bytes()) {
            return fields[index].1;
        }
        index += 1;
    }
    panic!("no such field")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut index = 0;
    while index < a.len() {
        if a[index] != b[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// Size of a record with these fields, which are contiguous.
pub(crate) const fn record_size(fields: &[EndianField]) -> u64 {
    let mut end = 0;
    let mut index = 0;
    while index < fields.len() {
        assert!(fields[index].1 == end, "fields touch");
        end += fields[index].2;
        index += 1;
    }
    end
}

/// Bytes with a byte order.
#[derive(Clone, Copy)]
pub(crate) struct EndianBytes<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
}

impl<'a> EndianBytes<'a> {
    pub(crate) fn little_endian(bytes: &'a [u8]) -> Self {
        Self { bytes, is_big_endian: false }
    }

    pub(crate) fn big_endian(bytes: &'a [u8]) -> Self {
        Self { bytes, is_big_endian: true }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// `length` bytes at `at`, if the file has them all.
    pub(crate) fn slice(&self, at: u64, length: u64) -> Option<&'a [u8]> {
        let end = usize::try_from(at.checked_add(length)?).ok()?;
        self.bytes.get(usize::try_from(at).ok()?..end)
    }

    fn array<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut array: [u8; N] = self.slice(at, N as u64)?.try_into().ok()?;
        if self.is_big_endian {
            array.reverse();
        }
        Some(array)
    }

    pub(crate) fn u32(&self, at: u64) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&self, at: u64) -> Option<i32> {
        self.array(at).map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&self, at: u64) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&self, at: u64) -> Option<i64> {
        self.array(at).map(i64::from_le_bytes)
    }

    /// Text before the first zero in the `length` bytes at `at`; all of them if there is no zero.
    pub(crate) fn text(&self, at: u64, length: u64) -> Option<&'a [u8]> {
        let bytes = self.slice(at, length)?;
        Some(bytes.split(|byte| *byte == 0).next().unwrap_or(bytes))
    }
}

/// A printable name: not empty, UTF-8, no control characters.
pub(crate) fn name(bytes: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(bytes).ok()?;
    (!name.is_empty() && !name.contains(char::is_control)).then_some(name)
}

/// Keeps the first metric of each name and label set; returns how many were removed.
pub(crate) fn remove_duplicates(metrics: &mut Vec<ProcessSeries>) -> u64 {
    let mut names = HashSet::with_capacity(metrics.len());
    let first: Vec<bool> =
        metrics.iter().map(|metric| names.insert((&metric.name, &metric.labels))).collect();
    drop(names);
    let (before, mut first) = (metrics.len(), first.into_iter());
    metrics.retain(|_| first.next().unwrap_or(true));
    (before - metrics.len()) as u64
}

/// Test helpers for both formats.
#[cfg(test)]
#[path = "../../hist/tests/it/page.rs"]
pub(crate) mod page;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let bytes = EndianBytes::little_endian(&[1, 0, 0, 0, b'a', 0, b'b', 0xff]);
        assert_eq!((bytes.u32(0), bytes.u32(4).is_some(), bytes.u32(5)), (Some(1), true, None));
        assert_eq!(
            (bytes.u32(u64::MAX), bytes.u64(1), bytes.slice(8, 0)),
            (None, None, Some(&[][..]))
        );
        assert_eq!((bytes.text(4, 4), bytes.text(6, 2)), (Some(&b"a"[..]), Some(&b"b\xff"[..])));
        assert_eq!((bytes.text(4, 5), bytes.text(4, u64::MAX)), (None, None));
        assert_eq!(EndianBytes::big_endian(&[0, 0, 0, 1]).u32(0), Some(1));
    }
}
