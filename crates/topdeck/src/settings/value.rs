//! Values as people write them: lengths of time, sizes, levels, rules.

use std::fmt;
use std::time::Duration;

use journal::Level;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use store::Keep;

use crate::journal::parse;
use crate::store::rules;
use crate::time;

/// A length of time: `10s`, `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Length(pub(crate) Duration);

/// A size: `16MiB`, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// When a sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acked(pub(crate) Level);

/// How long rows are kept: `base 30d`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule(pub(crate) Keep);

impl Default for Acked {
    fn default() -> Acked {
        Acked(Level::Disk)
    }
}

/// Text that `parse` reads, with `expected` for what is no text at all.
struct Text<T> {
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
    number: Option<fn(u64) -> T>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(|why| E::custom(format!("{text:?}: {why}")))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        match (self.number, u64::try_from(number)) {
            (Some(make), Ok(number)) => Ok(make(number)),
            _ => Err(E::custom(format!("{number}: expected {}", self.expected))),
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        let parse = |text: &str| {
            let ns = time::length(text)?;
            let ns = u64::try_from(ns).ok().filter(|&ns| ns > 0).ok_or("has to be more than 0")?;
            Ok(Length(Duration::from_nanos(ns)))
        };
        let expected = "a length of time in quotes, as in \"10s\"";
        deserializer.deserialize_any(Text { expected, parse, number: None })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        let parse = |text: &str| parse::size(text).map(Size);
        let expected = "a size in quotes, as in \"16MiB\"";
        deserializer.deserialize_any(Text { expected, parse, number: Some(Size) })
    }
}

impl<'de> Deserialize<'de> for Acked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Acked, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "memory" => Ok(Acked(Level::Memory)),
            "process" => Ok(Acked(Level::Process)),
            "disk" => Ok(Acked(Level::Disk)),
            other => Err(D::Error::custom(format!(
                "{other:?}: expected \"disk\", \"process\" or \"memory\""
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        let parse = |text: &str| rules::parse(text).map(Rule);
        let expected = "a rule in quotes, as in \"base 30d\"";
        deserializer.deserialize_any(Text { expected, parse, number: None })
    }
}
