//! Protocol buffers at the byte level: consecutive fields, borrowed from the message.
//!
//! Wire format: <https://protobuf.dev/programming-guides/encoding/>. Unknown fields are skipped. If
//! a field of which only one is allowed is repeated, the last one wins; the caller implements that.
//! Groups, which have been deprecated since 2008, are rejected.
//!
//! Decoders of whole messages read fields with [`MessageReader`] and keep what they need: nothing
//! is allocated here. The messages of the codecs, which are also written, are structs with
//! [`MessageFields`].

use std::fmt;

use hist::codec::bytes::{put_varint, unzigzag, zigzag};

/// Malformed protobuf input. The writer of the bytes is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset in the whole input.
    pub offset: u64,
    /// Content expected.
    pub expected: &'static str,
    /// Content found.
    pub found: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { offset, expected, found } = self;
        write!(f, "byte {offset}: expected {expected}, found {found}")
    }
}

impl std::error::Error for Error {}

impl Error {
    fn new(offset: u64, expected: &'static str, found: impl Into<String>) -> Error {
        Error { offset, expected, found: found.into() }
    }
}

/// Reader of a protobuf message.
#[derive(Clone, Debug)]
pub struct MessageReader<'a> {
    remaining: &'a [u8],
    /// Offset of `rest` in the whole input.
    offset: u64,
}

/// Value of a protobuf field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// Varint.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// Bytes with a length, and their offset in the whole input.
    Bytes(&'a [u8], u64),
}

impl<'a> MessageReader<'a> {
    /// A reader of a whole input.
    pub fn new(bytes: &'a [u8]) -> MessageReader<'a> {
        MessageReader { remaining: bytes, offset: 0 }
    }

    /// Current offset in the whole input.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next of several messages that follow one another, each after its length.
    pub fn delimited(&mut self) -> Result<Option<MessageReader<'a>>, Error> {
        if self.remaining.is_empty() {
            return Ok(None);
        }
        let at = self.clone();
        let length = self.varint()?;
        let offset = self.offset;
        let rest = usize::try_from(length).ok().and_then(|length| self.take_bytes(length));
        match rest {
            Some(rest) => Ok(Some(MessageReader { remaining: rest, offset })),
            None => Err(at.error("the rest of a message", "the end of the input")),
        }
    }

    /// The unread bytes.
    pub fn remaining(&self) -> &'a [u8] {
        self.remaining
    }

    fn error(&self, expected: &'static str, found: impl Into<String>) -> Error {
        Error::new(self.offset, expected, found)
    }

    fn take_bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.remaining.split_at_checked(n)?;
        self.remaining = rest;
        self.offset = self.offset.wrapping_add(n as u64);
        Some(bytes)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Error> {
        // Most numbers take one or two bytes.
        let (value, length) = match *self.remaining {
            [low @ ..0x80, ..] => (u64::from(low), 1),
            [low, high @ ..0x80, ..] => (u64::from(low & 0x7f) | u64::from(high) << 7, 2),
            _ => return self.long_varint(),
        };
        self.remaining = &self.remaining[length..];
        self.offset = self.offset.wrapping_add(length as u64);
        Ok(value)
    }

    fn long_varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for at in 0..10usize {
            let Some(&byte) = self.remaining.get(at) else {
                return Err(self.error("the rest of a number", "the end of the message"));
            };
            let bits = u64::from(byte & 0x7f);
            if at == 9 && bits > 1 {
                break;
            }
            value |= bits << at.wrapping_mul(7);
            if byte < 0x80 {
                self.remaining = &self.remaining[at.wrapping_add(1)..];
                self.offset = self.offset.wrapping_add((at as u64).wrapping_add(1));
                return Ok(value);
            }
        }
        Err(self.error("a number of 64 bits", "a longer one"))
    }

    /// The next field: its number and value.
    #[inline]
    pub fn field(&mut self) -> Result<Option<(u32, FieldValue<'a>)>, Error> {
        if self.remaining.is_empty() {
            return Ok(None);
        }
        let at = self.clone();
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|&number| number > 0);
        let number = number.ok_or_else(|| at.error("the number of a field", key.to_string()))?;
        let cut = || at.error("the rest of a field", "the end of the message");
        let field = match key & 7 {
            0 => FieldValue::Varint(self.varint()?),
            1 => {
                let bytes =
                    self.take_bytes(8).and_then(|bytes| bytes.first_chunk()).ok_or_else(cut)?;
                FieldValue::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = self.varint()?;
                let offset = self.offset;
                let length = usize::try_from(length).map_err(|_| cut())?;
                FieldValue::Bytes(self.take_bytes(length).ok_or_else(cut)?, offset)
            }
            5 => {
                let bytes =
                    self.take_bytes(4).and_then(|bytes| bytes.first_chunk()).ok_or_else(cut)?;
                FieldValue::Fixed32(u32::from_le_bytes(*bytes))
            }
            wire => return Err(at.error("wire type 0, 1, 2 or 5", wire.to_string())),
        };
        Ok(Some((number, field)))
    }
}

impl<'a> FieldValue<'a> {
    fn error(&self, expected: &'static str) -> Error {
        let (error_offset, found) = match self {
            FieldValue::Varint(_) => (0, "a number of variable length"),
            FieldValue::Fixed64(_) => (0, "eight bytes"),
            FieldValue::Fixed32(_) => (0, "four bytes"),
            FieldValue::Bytes(_, offset) => (*offset, "bytes with a length"),
        };
        Error::new(error_offset, expected, found)
    }

    /// A nested message.
    pub fn message(self) -> Result<MessageReader<'a>, Error> {
        match self {
            FieldValue::Bytes(rest, offset) => Ok(MessageReader { remaining: rest, offset }),
            _ => Err(self.error("a message")),
        }
    }

    /// `bytes`.
    #[inline]
    pub fn bytes(self) -> Result<&'a [u8], Error> {
        match self {
            FieldValue::Bytes(bytes, _) => Ok(bytes),
            _ => Err(self.error("bytes")),
        }
    }

    /// `string`.
    #[inline]
    pub fn text(self) -> Result<&'a str, Error> {
        match self {
            FieldValue::Bytes(bytes, offset) => std::str::from_utf8(bytes).map_err(|error| {
                let invalid_offset = offset.wrapping_add(error.valid_up_to() as u64);
                Error::new(invalid_offset, "text in UTF-8", "other bytes")
            }),
            _ => Err(self.error("text")),
        }
    }

    /// `uint32`, `uint64`, `bool`, an enumeration; also `int32` and `int64` as two's complement.
    #[inline]
    pub fn varint(self) -> Result<u64, Error> {
        match self {
            FieldValue::Varint(value) => Ok(value),
            _ => Err(self.error("a number of variable length")),
        }
    }

    /// `sint64`.
    #[inline]
    pub fn zigzag(self) -> Result<i64, Error> {
        self.varint().map(unzigzag)
    }

    /// `fixed64`; also `sfixed64` as two's complement.
    #[inline]
    pub fn fixed64(self) -> Result<u64, Error> {
        match self {
            FieldValue::Fixed64(value) => Ok(value),
            _ => Err(self.error("eight bytes")),
        }
    }

    /// `double`.
    #[inline]
    pub fn double(self) -> Result<f64, Error> {
        self.fixed64().map(f64::from_bits)
    }

    /// `sint32`: bits above the 32 are ignored.
    #[inline]
    pub(crate) fn zigzag32(self) -> Result<i32, Error> {
        self.varint().map(|value| unzigzag(value & u64::from(u32::MAX)) as i32)
    }

    /// Varints in a repeated field, packed or not.
    pub fn varints(self, each: &mut dyn FnMut(u64)) -> Result<(), Error> {
        match self {
            FieldValue::Varint(value) => each(value),
            FieldValue::Bytes(rest, offset) => {
                let mut message = MessageReader { remaining: rest, offset };
                // Most numbers are small.
                while let Some((&byte, rest)) = message.remaining.split_first() {
                    if byte < 0x80 {
                        message.remaining = rest;
                        message.offset = message.offset.wrapping_add(1);
                        each(byte.into());
                    } else {
                        each(message.varint()?);
                    }
                }
            }
            _ => return Err(self.error("numbers of variable length")),
        }
        Ok(())
    }

    /// `sint64` in a repeated field, packed or not.
    pub(crate) fn zigzags(self, each: &mut dyn FnMut(i64)) -> Result<(), Error> {
        self.varints(&mut |value| each(unzigzag(value)))
    }

    /// `double` in a repeated field, packed or not.
    pub fn doubles(self, each: &mut dyn FnMut(f64)) -> Result<(), Error> {
        self.fixed64s(&mut |bits| each(f64::from_bits(bits)))
    }

    /// Eight bytes each in a repeated field, packed or not.
    pub fn fixed64s(self, each: &mut dyn FnMut(u64)) -> Result<(), Error> {
        match self {
            FieldValue::Fixed64(value) => each(value),
            FieldValue::Bytes(bytes, _) => {
                let (chunks, rest) = bytes.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(self.error("eight bytes each"));
                }
                chunks.iter().for_each(|chunk| each(u64::from_le_bytes(*chunk)));
            }
            _ => return Err(self.error("eight bytes each")),
        }
        Ok(())
    }
}

/// Appends a message to a repeated field.
pub(crate) fn push_message<M: MessageFields>(
    list: &mut Vec<M>,
    field: FieldValue<'_>,
) -> Result<(), Error> {
    let mut fields = M::default();
    fields.merge(field.message()?)?;
    list.push(fields);
    Ok(())
}

/// Protobuf message as a struct. Its default is the empty message.
pub(crate) trait MessageFields: Default {
    /// Reads a field; unknown fields are skipped.
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error>;

    /// Writes all fields in the order of their numbers.
    fn put(&self, out: &mut MessageWriter);

    /// Reads all fields of a message. A field that is already set is replaced, or appended to if it
    /// is repeated.
    fn merge(&mut self, mut message: MessageReader<'_>) -> Result<(), Error> {
        while let Some((number, field)) = message.field()? {
            self.set(number, field)?;
        }
        Ok(())
    }

    fn to_message(&self) -> Vec<u8> {
        let mut out = MessageWriter::default();
        self.put(&mut out);
        out.0
    }
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// Writer of a protobuf message. Methods named for a type omit a zero, as proto3 does if a field is
/// not `optional`.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter(Vec<u8>);

impl MessageWriter {
    fn key(&mut self, number: u32, wire: u64) {
        put_varint(&mut self.0, u64::from(number) << 3 | wire);
    }

    /// `uint32`, `uint64`, `int64`.
    pub(crate) fn varint(&mut self, number: u32, value: u64) {
        self.varint_optional(number, Some(value).filter(|&value| value != 0));
    }

    pub(crate) fn varint_optional(&mut self, number: u32, value: Option<u64>) {
        if let Some(value) = value {
            self.key(number, VARINT);
            put_varint(&mut self.0, value);
        }
    }

    pub(crate) fn sint32(&mut self, number: u32, value: i32) {
        self.varint(number, zigzag(value.into()));
    }

    pub(crate) fn sint32_optional(&mut self, number: u32, value: Option<i32>) {
        self.varint_optional(number, value.map(|value| zigzag(value.into())));
    }

    pub(crate) fn fixed64(&mut self, number: u32, value: u64) {
        if value != 0 {
            self.key(number, FIXED64);
            self.0.extend(value.to_le_bytes());
        }
    }

    /// Omits -0 as well.
    pub(crate) fn double(&mut self, number: u32, value: f64) {
        self.double_optional(number, Some(value).filter(|&value| value != 0.0));
    }

    pub(crate) fn double_optional(&mut self, number: u32, value: Option<f64>) {
        if let Some(value) = value {
            self.key(number, FIXED64);
            self.0.extend(value.to_le_bytes());
        }
    }

    fn bytes(&mut self, number: u32, value: &[u8]) {
        self.key(number, BYTES);
        put_varint(&mut self.0, value.len() as u64);
        self.0.extend(value);
    }

    /// `bytes`, `optional` or `repeated`.
    pub(crate) fn byte_strings<'b>(
        &mut self,
        number: u32,
        values: impl IntoIterator<Item = &'b Vec<u8>>,
    ) {
        values.into_iter().for_each(|value| self.bytes(number, value));
    }

    /// A message, `optional` or `repeated`.
    pub(crate) fn messages<'m, M: MessageFields + 'm>(
        &mut self,
        number: u32,
        messages: impl IntoIterator<Item = &'m M>,
    ) {
        messages.into_iter().for_each(|message| self.bytes(number, &message.to_message()));
    }

    /// `repeated uint64`, packed.
    pub(crate) fn varints(&mut self, number: u32, values: &[u64]) {
        self.packed(number, values, |out, &value| put_varint(out, value));
    }

    /// `repeated sint64`, packed.
    pub(crate) fn zigzags(&mut self, number: u32, values: &[i64]) {
        self.packed(number, values, |out, &value| put_varint(out, zigzag(value)));
    }

    /// `repeated fixed64`, packed.
    pub(crate) fn fixed64s(&mut self, number: u32, values: &[u64]) {
        self.packed(number, values, |out, value| out.extend(value.to_le_bytes()));
    }

    /// `repeated double`, packed.
    pub(crate) fn doubles(&mut self, number: u32, values: &[f64]) {
        self.packed(number, values, |out, value| out.extend(value.to_le_bytes()));
    }

    /// `repeated sint64`, each a field.
    pub(crate) fn zigzags_unpacked(&mut self, number: u32, values: &[i64]) {
        values.iter().for_each(|&value| self.varint_optional(number, Some(zigzag(value))));
    }

    /// `repeated double`, each a field.
    pub(crate) fn doubles_unpacked(&mut self, number: u32, values: &[f64]) {
        values.iter().for_each(|&value| self.double_optional(number, Some(value)));
    }

    fn packed<T>(&mut self, number: u32, values: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
        if !values.is_empty() {
            let mut packed = Vec::new();
            values.iter().for_each(|value| put(&mut packed, value));
            self.bytes(number, &packed);
        }
    }
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
        let mut message = MessageReader::new(&bytes);
        let mut next = || message.field().unwrap();
        assert_eq!(next(), Some((1, FieldValue::Varint(150))));
        assert_eq!(next().unwrap().1.text(), Ok("hi"));
        assert_eq!(next().unwrap().1.double(), Ok(1.0));
        assert_eq!(next(), Some((4, FieldValue::Fixed32(7))));
        let mut numbers = Vec::new();
        next().unwrap().1.varints(&mut |n| numbers.push(n)).unwrap();
        assert_eq!(numbers, [1, 150]);
        assert_eq!(next(), None);
        assert_eq!([0, 1, 2, u64::MAX].map(unzigzag), [0, -1, 1, i64::MIN]);
    }

    #[test]
    fn errors_name_their_offset() {
        let wrong = |bytes: &[u8]| {
            let mut message = MessageReader::new(bytes);
            loop {
                match message.field() {
                    Ok(None) => return String::new(),
                    Ok(Some(_)) => {}
                    Err(error) => return error.to_string(),
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
