//! Reads typed values from parsed TOML.
//!
//! `toml::de::Deserializer` does the same with several times the machine code: it offers a value in
//! each form that TOML has, so a struct is compiled for tables, arrays, dates and positions. Here
//! the requested type decides. Not supported, because no setting needs them: dates, bytes, and
//! enums with data, except untagged ones.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::vec;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value that a type cannot be read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    message: String,
    span: Option<Range<usize>>,
}

impl ValueError {
    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Position of the value in the file, in bytes.
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// The error of a part has its position already.
    fn at(mut self, span: Range<usize>) -> ValueError {
        self.span.get_or_insert(span);
        self
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ValueError {}

impl serde::de::Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> ValueError {
        ValueError { message: message.to_string(), span: None }
    }
}

/// Reads a table: a field of `T` for each key.
pub fn read_table<T: DeserializeOwned>(table: Spanned<DeTable<'_>>) -> Result<T, ValueError> {
    let span = table.span();
    let value = ReaderInput::Toml(DeValue::Table(table.into_inner()));
    T::deserialize(ValueReader { value, span: span.clone() }).map_err(|error| error.at(span))
}

/// What a reader gets.
enum ReaderInput<'a> {
    Toml(DeValue<'a>),
    /// A field of [`Spanned`].
    Position(usize),
}

/// Deserializer of one value.
struct ValueReader<'a> {
    value: ReaderInput<'a>,
    span: Range<usize>,
}

/// Name of [`Spanned`] as a struct. It has the fields start, end and value.
const SPANNED: &str = "$__serde_spanned_private_Spanned";

/// A number of TOML.
enum TomlNumber {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl<'a> ReaderInput<'a> {
    /// A number; `None` for other values.
    fn number(&self) -> Result<Option<TomlNumber>, ValueError> {
        let number = match self {
            ReaderInput::Position(at) => Some(TomlNumber::Unsigned(*at as u64)),
            ReaderInput::Toml(DeValue::Integer(value)) => {
                let (text, radix) = (value.as_str(), value.radix());
                let signed = i64::from_str_radix(text, radix).map(TomlNumber::Signed);
                let any =
                    signed.or_else(|_| u64::from_str_radix(text, radix).map(TomlNumber::Unsigned));
                Some(any.map_err(|_| ValueError::custom("integer number overflowed"))?)
            }
            ReaderInput::Toml(DeValue::Float(value)) => {
                let text = value.as_str();
                let number = text.parse().ok();
                let number = number.filter(|f: &f64| f.is_finite() || text.ends_with(['f', 'n']));
                let error = || ValueError::custom("floating-point number overflowed");
                Some(TomlNumber::Float(number.ok_or_else(error)?))
            }
            ReaderInput::Toml(_) => None,
        };
        Ok(number)
    }

    /// Error of a value of another type than the expected one.
    fn unexpected(&self, expected: &dyn Expected) -> ValueError {
        let number = match self.number() {
            Ok(number) => number,
            Err(error) => return error,
        };
        let found = match (self, number) {
            (_, Some(TomlNumber::Signed(number))) => Unexpected::Signed(number),
            (_, Some(TomlNumber::Unsigned(number))) => Unexpected::Unsigned(number),
            (_, Some(TomlNumber::Float(number))) => Unexpected::Float(number),
            (ReaderInput::Toml(DeValue::String(text)), _) => Unexpected::Str(text),
            (ReaderInput::Toml(DeValue::Boolean(is)), _) => Unexpected::Bool(*is),
            (ReaderInput::Toml(DeValue::Array(_)), _) => Unexpected::Seq,
            (ReaderInput::Toml(DeValue::Table(_)), _) => Unexpected::Map,
            _ => Unexpected::Other("date or time"),
        };
        ValueError::invalid_type(found, expected)
    }

    /// The entries of a table; the value itself if it is none.
    fn into_entries(self) -> Result<TableReader<'a>, ReaderInput<'a>> {
        let ReaderInput::Toml(DeValue::Table(table)) = self else { return Err(self) };
        let entry = |(key, value): (Spanned<Cow<'a, str>>, Spanned<DeValue<'a>>)| TableEntry {
            key_span: key.span(),
            key: key.into_inner(),
            value: ValueReader::new(value),
        };
        Ok(TableReader::new(table.into_iter().map(entry).collect()))
    }

    /// The elements of an array; the value itself if it is none.
    fn into_elements(self) -> Result<ArrayReader<'a>, ReaderInput<'a>> {
        match self {
            ReaderInput::Toml(DeValue::Array(array)) => Ok(ArrayReader(array.into_iter())),
            other => Err(other),
        }
    }
}

impl<'a> ValueReader<'a> {
    fn new(value: Spanned<DeValue<'a>>) -> ValueReader<'a> {
        let span = value.span();
        ValueReader { value: ReaderInput::Toml(value.into_inner()), span }
    }

    /// The entries of a table, or the fields of [`Spanned`]; otherwise the value itself.
    fn into_fields(
        self,
        name: &str,
        fields: &'static [&'static str],
    ) -> Result<TableReader<'a>, ReaderInput<'a>> {
        match name == SPANNED {
            true => Ok(self.into_positions(fields)),
            false => self.value.into_entries(),
        }
    }

    fn into_positions(self, fields: &'static [&'static str]) -> TableReader<'a> {
        let Range { start, end } = self.span;
        let values = [ReaderInput::Position(start), ReaderInput::Position(end), self.value];
        let entry = |(name, value): (&&'static str, ReaderInput<'a>)| TableEntry {
            key_span: start..end,
            key: Cow::Borrowed(*name),
            value: ValueReader { value, span: start..end },
        };
        TableReader::new(fields.iter().zip(values).map(entry).collect())
    }
}

/// Visits a value that is a number; types reject the numbers that they cannot hold.
fn visit_number<'de, V: Visitor<'de>>(
    value: &ReaderInput<'de>,
    visitor: V,
) -> Result<V::Value, ValueError> {
    match value.number()? {
        Some(TomlNumber::Signed(number)) => visitor.visit_i64(number),
        Some(TomlNumber::Unsigned(number)) => visitor.visit_u64(number),
        Some(TomlNumber::Float(number)) => visitor.visit_f64(number),
        None => Err(value.unexpected(&visitor)),
    }
}

macro_rules! read_by {
    ($read:ident: $($name:ident)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            self.$read(visitor)
        })*
    };
}

impl<'de> ValueReader<'de> {
    fn read_number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visit_number(&self.value, visitor)
    }

    fn read_text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value {
            ReaderInput::Toml(DeValue::String(text)) => visitor.visit_string(text.into_owned()),
            other => Err(other.unexpected(&visitor)),
        }
    }

    fn read_array<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value.into_elements() {
            Ok(elements) => visitor.visit_seq(elements),
            Err(other) => Err(other.unexpected(&visitor)),
        }
    }
}

impl<'de> Deserializer<'de> for ValueReader<'de> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match &self.value {
            ReaderInput::Toml(DeValue::String(_)) => self.read_text(visitor),
            ReaderInput::Toml(DeValue::Boolean(_)) => self.deserialize_bool(visitor),
            ReaderInput::Toml(DeValue::Array(_)) => self.read_array(visitor),
            ReaderInput::Toml(DeValue::Table(_)) => self.deserialize_map(visitor),
            _ => self.read_number(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.value {
            ReaderInput::Toml(DeValue::Boolean(is)) => visitor.visit_bool(is),
            other => Err(other.unexpected(&visitor)),
        }
    }

    read_by!(read_number: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128 deserialize_f32 deserialize_f64);
    read_by!(read_text: deserialize_char deserialize_str deserialize_string
        deserialize_identifier);
    read_by!(read_array: deserialize_seq);

    /// An absent value has no key.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.read_array(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.read_array(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.into_fields(name, fields) {
            Ok(fields) => visitor.visit_map(fields),
            Err(other) => Err(other.unexpected(&visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.value {
            ReaderInput::Toml(DeValue::String(text)) => {
                visitor.visit_enum(text.into_deserializer())
            }
            other => Err(other.unexpected(&"a text")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { bytes byte_buf unit unit_struct }
}

impl<'de> IntoDeserializer<'de, ValueError> for ValueReader<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Elements of an array.
struct ArrayReader<'a>(vec::IntoIter<Spanned<DeValue<'a>>>);

impl<'de> SeqAccess<'de> for ArrayReader<'de> {
    type Error = ValueError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ValueError> {
        let Some(value) = self.0.next() else { return Ok(None) };
        let span = value.span();
        seed.deserialize(ValueReader::new(value)).map(Some).map_err(|error| error.at(span))
    }
}

/// Entries of a table; fields of [`Spanned`].
struct TableReader<'a> {
    entries: vec::IntoIter<TableEntry<'a>>,
    /// The value of the last key.
    value: Option<ValueReader<'a>>,
}

struct TableEntry<'a> {
    key_span: Range<usize>,
    key: Cow<'a, str>,
    value: ValueReader<'a>,
}

impl<'a> TableReader<'a> {
    fn new(entries: Vec<TableEntry<'a>>) -> TableReader<'a> {
        TableReader { entries: entries.into_iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for TableReader<'de> {
    type Error = ValueError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ValueError> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        self.value = Some(entry.value);
        let key = seed.deserialize(KeyReader(entry.key));
        key.map(Some).map_err(|error: ValueError| error.at(entry.key_span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, ValueError> {
        let value = self.value.take().expect("BUG: a value was read before its key");
        let span = value.span.clone();
        seed.deserialize(value).map_err(|error| error.at(span))
    }
}

/// Deserializer of a key.
struct KeyReader<'a>(Cow<'a, str>);

impl<'de> Deserializer<'de> for KeyReader<'de> {
    type Error = ValueError;

    /// [`Spanned`] requires borrowed names of its fields.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Cow::Borrowed(key) => visitor.visit_borrowed_str(key),
            Cow::Owned(key) => visitor.visit_string(key),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests;
