//! Cursor over the elements of BSON documents, which passes over values of no interest.
//!
//! Source: bsonspec.org, version 1.1.

/// Documents in which elements are of interest are nested less deeply.
const DEPTH_MAX: usize = 6;

/// Longer names and texts are not those of commands. A step must hold both.
const NAME_BYTES_MAX: usize = 128;
const TEXT_BYTES_MAX: usize = 256;

/// Value of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BsonValue<'a> {
    Text(&'a str),
    /// Any number, or a truth value.
    Number(f64),
    /// A 64-bit integer.
    Long(i64),
    Other,
}

/// What to do with an element.
pub(super) enum ElementAction<L> {
    /// Passes over it.
    Skip,
    /// Reads its value.
    Read,
    /// Reads the elements of a document or an array.
    Enter(L),
}

/// Receives elements. `L` is a kind of document.
pub(super) trait BsonVisitor<L> {
    /// What to do with an element of a document, by its position and name.
    fn action(&mut self, level: L, index: u32, name: &[u8]) -> ElementAction<L>;

    fn value(&mut self, level: L, index: u32, name: &[u8], value: BsonValue<'_>);
}

/// Position in a document and the documents around it.
pub(super) struct BsonCursor<L> {
    levels: [Option<(L, u32)>; DEPTH_MAX],
    depth: usize,
}

impl<L: Copy> BsonCursor<L> {
    pub(super) fn new() -> BsonCursor<L> {
        BsonCursor { levels: [None; DEPTH_MAX], depth: 0 }
    }

    /// Starts with the elements of a document of this kind.
    pub(super) fn start(&mut self, level: L) {
        self.levels[0] = Some((level, 0));
        self.depth = 1;
    }

    /// Reads elements as far as `bytes` allow. Returns the number of bytes that it took, perhaps
    /// more than it was given, or `None` if it requires more. After the document it takes all.
    pub(super) fn read(&mut self, bytes: &[u8], visitor: &mut impl BsonVisitor<L>) -> Option<u64> {
        let mut taken = 0;
        loop {
            let rest = bytes.get(taken as usize..).unwrap_or_default();
            match self.read_element(rest, visitor) {
                Some(u64::MAX) => return Some(u64::MAX),
                Some(more) => taken += more,
                None => return (taken > 0).then_some(taken),
            }
            if taken > bytes.len() as u64 {
                return Some(taken);
            }
        }
    }

    fn read_element(&mut self, bytes: &[u8], visitor: &mut impl BsonVisitor<L>) -> Option<u64> {
        let Some((level, index)) = self.levels[..self.depth].last().copied().flatten() else {
            return Some(u64::MAX);
        };
        let (kind, rest) = bytes.split_first()?;
        if *kind == 0 {
            self.depth -= 1;
            return Some(1);
        }
        let Some(name_bytes) = rest.iter().take(NAME_BYTES_MAX).position(|byte| *byte == 0) else {
            return self.give_up(rest.len() >= NAME_BYTES_MAX);
        };
        let (name, value) = (&rest[..name_bytes], &rest[name_bytes + 1..]);
        let header = 2 + name_bytes as u64;
        let Some(size) = value_bytes(*kind, value) else {
            // The size of unknown types and of long regular expressions is unknown.
            return self.give_up(value.len() >= TEXT_BYTES_MAX);
        };
        let is_nested = matches!(kind, 0x03 | 0x04);
        let next = Some((level, index.saturating_add(1)));
        match visitor.action(level, index, name) {
            ElementAction::Enter(nested) if is_nested && self.depth < DEPTH_MAX => {
                self.levels[self.depth - 1] = next;
                self.levels[self.depth] = Some((nested, 0));
                self.depth += 1;
                // The length of the document.
                return Some(header + 4);
            }
            ElementAction::Read => {
                let known = value.get(..(size as usize).min(TEXT_BYTES_MAX))?;
                visitor.value(level, index, name, element_value(*kind, known, size));
            }
            ElementAction::Skip | ElementAction::Enter(_) => {}
        }
        self.levels[self.depth - 1] = next;
        Some(header + size)
    }

    /// Ends the document if more bytes do not help.
    fn give_up(&mut self, is_final: bool) -> Option<u64> {
        if is_final {
            self.depth = 0;
            return Some(u64::MAX);
        }
        None
    }
}

/// Size of a value; `None` if more bytes are required to know it, or if it is unknown.
fn value_bytes(kind: u8, value: &[u8]) -> Option<u64> {
    let length = || -> Option<u64> {
        let length = i32::from_le_bytes(*value.first_chunk()?);
        Some(u64::try_from(length).unwrap_or(0))
    };
    Some(match kind {
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x02 | 0x0d | 0x0e => 4 + length()?,
        // Their length counts its own bytes.
        0x03 | 0x04 | 0x0f => length()?.max(4),
        0x05 => 5 + length()?,
        0x06 | 0x0a | 0xff | 0x7f => 0,
        0x07 => 12,
        0x08 => 1,
        0x0b => {
            let mut ends = value.iter().enumerate().filter(|(_, byte)| **byte == 0);
            ends.nth(1)?.0 as u64 + 1
        }
        0x0c => 16 + length()?,
        0x10 => 4,
        0x13 => 16,
        _ => return None,
    })
}

fn element_value(kind: u8, value: &[u8], size: u64) -> BsonValue<'_> {
    let number = match (kind, value) {
        (0x01, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        (0x10, &[a, b, c, d]) => f64::from(i32::from_le_bytes([a, b, c, d])),
        (0x08, &[truth]) => f64::from(truth),
        (0x12, &[a, b, c, d, e, f, g, h]) => {
            return BsonValue::Long(i64::from_le_bytes([a, b, c, d, e, f, g, h]));
        }
        (0x02, [_, _, _, _, text @ .., 0]) if size <= TEXT_BYTES_MAX as u64 => {
            return std::str::from_utf8(text).map_or(BsonValue::Other, BsonValue::Text);
        }
        _ => return BsonValue::Other,
    };
    BsonValue::Number(number)
}
