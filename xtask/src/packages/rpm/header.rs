//! Header of rpm: values by tag.
//!
//! ```text
//! offset  size  field
//!      0     8  magic       8e ad e8 01, then zeros
//!      8     4  count       of entries
//!     12     4  size_bytes  of the values
//!     16  16*n  entries     tag, type, offset of the value, number of items; sorted by tag
//!            …  values      integers aligned to their size; texts end with NUL
//! ```
//!
//! All numbers are big-endian. The first entry is the *region*: its value, at the end, has the
//! negative size of the entries, which marks all of them as original.

use std::collections::BTreeMap;

/// Tags of the regions.
pub(super) const SIGNATURES: u32 = 62;
pub(super) const IMMUTABLE: u32 = 63;

const MAGIC: [u8; 8] = [0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0];
const ENTRY_BYTES: usize = 16;
const BINARY: u32 = 7;

/// Values by tag.
#[derive(Default)]
pub(super) struct RpmHeader {
    values: BTreeMap<u32, RpmValue>,
}

pub(super) enum RpmValue {
    Int16(Vec<u16>),
    Int32(Vec<u32>),
    Text(String),
    Texts(Vec<String>),
    /// A text in each language of the table of languages, which has one.
    Localized(String),
}

impl RpmHeader {
    pub(super) fn add(&mut self, tag: u32, value: RpmValue) {
        assert!(self.values.insert(tag, value).is_none(), "BUG: tag {tag} has two values");
    }

    /// The header with a region of this tag.
    pub(super) fn to_bytes(&self, region: u32) -> Vec<u8> {
        let count = self.values.len() + 1;
        let mut entries = Vec::new();
        let mut store = Vec::new();
        for (tag, value) in &self.values {
            store.resize(store.len().next_multiple_of(value.alignment()), 0);
            put_entry(&mut entries, [*tag, value.kind(), store.len() as u32, value.count()]);
            value.put(&mut store);
        }
        let mut first = Vec::new();
        put_entry(&mut first, [region, BINARY, store.len() as u32, ENTRY_BYTES as u32]);
        let negative = -((count * ENTRY_BYTES) as i32);
        put_entry(&mut store, [region, BINARY, negative as u32, ENTRY_BYTES as u32]);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(count as u32).to_be_bytes());
        bytes.extend_from_slice(&(store.len() as u32).to_be_bytes());
        [bytes, first, entries, store].concat()
    }
}

impl RpmValue {
    fn kind(&self) -> u32 {
        match self {
            RpmValue::Int16(_) => 3,
            RpmValue::Int32(_) => 4,
            RpmValue::Text(_) => 6,
            RpmValue::Texts(_) => 8,
            RpmValue::Localized(_) => 9,
        }
    }

    fn alignment(&self) -> usize {
        match self {
            RpmValue::Int16(_) => 2,
            RpmValue::Int32(_) => 4,
            _ => 1,
        }
    }

    fn count(&self) -> u32 {
        let count = match self {
            RpmValue::Int16(items) => items.len(),
            RpmValue::Int32(items) => items.len(),
            RpmValue::Texts(items) => items.len(),
            RpmValue::Text(_) | RpmValue::Localized(_) => 1,
        };
        count as u32
    }

    fn put(&self, store: &mut Vec<u8>) {
        let mut put_text = |text: &String| {
            store.extend_from_slice(text.as_bytes());
            store.push(0);
        };
        match self {
            RpmValue::Int16(items) => {
                items.iter().for_each(|item| store.extend_from_slice(&item.to_be_bytes()));
            }
            RpmValue::Int32(items) => {
                items.iter().for_each(|item| store.extend_from_slice(&item.to_be_bytes()));
            }
            RpmValue::Text(text) | RpmValue::Localized(text) => put_text(text),
            RpmValue::Texts(items) => items.iter().for_each(put_text),
        }
    }
}

fn put_entry(bytes: &mut Vec<u8>, numbers: [u32; 4]) {
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_aligned_and_the_region_comes_first() {
        let mut header = RpmHeader::default();
        header.add(1001, RpmValue::Int32(vec![7]));
        header.add(1000, RpmValue::Text("ab".to_owned()));
        let bytes = header.to_bytes(IMMUTABLE);
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((number(8), number(12)), (3, 24));
        let entry = |index: usize| [0, 4, 8, 12].map(|at| number(16 + 16 * index + at));
        assert_eq!(entry(0), [IMMUTABLE, 7, 8, 16]);
        assert_eq!(entry(1), [1000, 6, 0, 1]);
        assert_eq!(entry(2), [1001, 4, 4, 1]);
        assert_eq!(&bytes[64..72], b"ab\0\0\0\0\0\x07");
        assert_eq!([0, 4, 8, 12].map(|at| number(72 + at)), [63, 7, u32::MAX - 47, 16]);
        assert_eq!(bytes.len(), 88);
    }
}
