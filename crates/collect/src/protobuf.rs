//! Protocol buffers as bytes: fields, one after another, borrowed from the message.
//!
//! Wire format: <https://protobuf.dev/programming-guides/encoding/>. A field that is not known is passed by; of a
//! field that may stand once, the last counts, which is the caller's to do.

use crate::trouble::{Place, Trouble};

/// A message that is being read.
#[derive(Clone, Debug)]
pub(crate) struct Message<'a> {
    rest: &'a [u8],
    /// Of `rest`, from the beginning of the whole input.
    offset: u64,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8], u64),
}

impl<'a> Message<'a> {
    /// A whole input.
    pub(crate) fn new(bytes: &'a [u8]) -> Message<'a> {
        Message { rest: bytes, offset: 0 }
    }

    /// Where it is read, from the beginning of the whole input.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next of messages that stand one after another, each after its length.
    pub(crate) fn delimited(&mut self) -> Result<Option<Message<'a>>, Trouble> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let at = self.clone();
        let length = self.varint()?;
        let offset = self.offset;
        let rest = usize::try_from(length).ok().and_then(|length| self.take(length));
        match rest {
            Some(rest) => Ok(Some(Message { rest, offset })),
            None => Err(at.wrong("the rest of a message", "the end of the input")),
        }
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn wrong(&self, expected: &'static str, found: impl Into<String>) -> Trouble {
        Trouble::new(Place::Byte(self.offset), expected, found)
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        self.offset += n as u64;
        Some(taken)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Trouble> {
        let mut value = 0;
        for at in 0..10 {
            let Some(&byte) = self.rest.get(at) else {
                return Err(self.wrong("the rest of a number", "the end of the message"));
            };
            let bits = u64::from(byte & 0x7f);
            if at == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * at);
            if byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                self.offset += at as u64 + 1;
                return Ok(value);
            }
        }
        Err(self.wrong("a number of 64 bits", "a longer one"))
    }

    /// The next field: its number and what it holds.
    #[inline]
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Field<'a>)>, Trouble> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let at = self.clone();
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|&number| number > 0);
        let number = number.ok_or_else(|| at.wrong("the number of a field", key.to_string()))?;
        let cut = || at.wrong("the rest of a field", "the end of the message");
        let field = match key & 7 {
            0 => Field::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8).and_then(|bytes| bytes.first_chunk()).ok_or_else(cut)?;
                Field::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = self.varint()?;
                let offset = self.offset;
                let length = usize::try_from(length).map_err(|_| cut())?;
                Field::Bytes(self.take(length).ok_or_else(cut)?, offset)
            }
            5 => {
                let bytes = self.take(4).and_then(|bytes| bytes.first_chunk()).ok_or_else(cut)?;
                Field::Fixed32(u32::from_le_bytes(*bytes))
            }
            wire => return Err(at.wrong("wire type 0, 1, 2 or 5", wire.to_string())),
        };
        Ok(Some((number, field)))
    }
}

impl<'a> Field<'a> {
    fn wrong(&self, expected: &'static str) -> Trouble {
        let (place, found) = match self {
            Field::Varint(_) => (0, "a number of variable length"),
            Field::Fixed64(_) => (0, "eight bytes"),
            Field::Fixed32(_) => (0, "four bytes"),
            Field::Bytes(_, offset) => (*offset, "bytes with a length"),
        };
        Trouble::new(Place::Byte(place), expected, found)
    }

    pub(crate) fn message(self) -> Result<Message<'a>, Trouble> {
        match self {
            Field::Bytes(rest, offset) => Ok(Message { rest, offset }),
            _ => Err(self.wrong("a message")),
        }
    }

    pub(crate) fn bytes(self) -> Result<&'a [u8], Trouble> {
        match self {
            Field::Bytes(bytes, _) => Ok(bytes),
            _ => Err(self.wrong("bytes")),
        }
    }

    pub(crate) fn text(self) -> Result<&'a str, Trouble> {
        match self {
            Field::Bytes(bytes, offset) => std::str::from_utf8(bytes).map_err(|error| {
                let place = Place::Byte(offset + error.valid_up_to() as u64);
                Trouble::new(place, "text in UTF-8", "other bytes")
            }),
            _ => Err(self.wrong("text")),
        }
    }

    /// `uint32`, `uint64`, `bool`, an enumeration; as two's complement also `int32` and `int64`.
    pub(crate) fn varint(self) -> Result<u64, Trouble> {
        match self {
            Field::Varint(value) => Ok(value),
            _ => Err(self.wrong("a number of variable length")),
        }
    }

    /// `sint32`, `sint64`.
    pub(crate) fn zigzag(self) -> Result<i64, Trouble> {
        self.varint().map(unzigzag)
    }

    pub(crate) fn fixed64(self) -> Result<u64, Trouble> {
        match self {
            Field::Fixed64(value) => Ok(value),
            _ => Err(self.wrong("eight bytes")),
        }
    }

    pub(crate) fn double(self) -> Result<f64, Trouble> {
        self.fixed64().map(f64::from_bits)
    }

    /// Numbers of variable length in a repeated field, packed or not.
    pub(crate) fn varints(self, each: &mut dyn FnMut(u64)) -> Result<(), Trouble> {
        match self {
            Field::Varint(value) => each(value),
            Field::Bytes(rest, offset) => {
                let mut message = Message { rest, offset };
                // Most are small.
                while let Some((&byte, rest)) = message.rest.split_first() {
                    if byte < 0x80 {
                        message.rest = rest;
                        message.offset += 1;
                        each(byte.into());
                    } else {
                        each(message.varint()?);
                    }
                }
            }
            _ => return Err(self.wrong("numbers of variable length")),
        }
        Ok(())
    }

    /// Eight bytes each in a repeated field, packed or not.
    pub(crate) fn fixed64s(self, each: &mut dyn FnMut(u64)) -> Result<(), Trouble> {
        match self {
            Field::Fixed64(value) => each(value),
            Field::Bytes(bytes, _) => {
                let (chunks, rest) = bytes.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(self.wrong("eight bytes each"));
                }
                chunks.iter().for_each(|chunk| each(u64::from_le_bytes(*chunk)));
            }
            _ => return Err(self.wrong("eight bytes each")),
        }
        Ok(())
    }
}

/// Numbers with a sign, as `sint64` has them.
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_kinds() {
        let bytes = [
            0x08, 0x96, 0x01, // 1: 150
            0x12, 0x02, b'h', b'i', // 2: "hi"
            0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, // 3: 1.0
            0x25, 7, 0, 0, 0, // 4: four bytes
            0x2a, 0x03, 0x01, 0x96, 0x01, // 5: packed 1, 150
        ];
        let mut message = Message::new(&bytes);
        let mut next = || message.field().unwrap();
        assert_eq!(next(), Some((1, Field::Varint(150))));
        assert_eq!(next().unwrap().1.text(), Ok("hi"));
        assert_eq!(next().unwrap().1.double(), Ok(1.0));
        assert_eq!(next(), Some((4, Field::Fixed32(7))));
        let mut numbers = Vec::new();
        next().unwrap().1.varints(&mut |n| numbers.push(n)).unwrap();
        assert_eq!(numbers, [1, 150]);
        assert_eq!(next(), None);
        assert_eq!([0, 1, 2, u64::MAX].map(unzigzag), [0, -1, 1, i64::MIN]);
    }

    #[test]
    fn what_is_cut_or_wrong_has_its_place() {
        let wrong = |bytes: &[u8]| {
            let mut message = Message::new(bytes);
            loop {
                match message.field() {
                    Ok(None) => return String::new(),
                    Ok(Some(_)) => {}
                    Err(trouble) => return trouble.to_string(),
                }
            }
        };
        assert_eq!(
            wrong(&[8, 1, 8]),
            "byte 3: expected the rest of a number, found the end of the message"
        );
        assert_eq!(
            wrong(&[0x12, 5, 1]),
            "byte 0: expected the rest of a field, found the end of the message"
        );
        assert_eq!(wrong(&[0x0b]), "byte 0: expected wire type 0, 1, 2 or 5, found 3");
        assert_eq!(wrong(&[0]), "byte 0: expected the number of a field, found 0");
        let long = [8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        assert_eq!(wrong(&long), "byte 1: expected a number of 64 bits, found a longer one");
    }
}
