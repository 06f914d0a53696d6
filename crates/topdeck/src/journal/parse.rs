//! Sizes, lengths of time, positions and choices as people write them on the command line.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use collect::{Quantity, Unit};
use journal::{AtLimit, Codec, Level, Start};
pub(crate) use role::settings::parse_size as size;

/// A limit that may be `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtMost<T>(pub(crate) Option<T>);

/// A size, or `none`.
pub(crate) fn size_limit(text: &str) -> Result<AtMost<u64>, String> {
    match text {
        "none" => Ok(AtMost(None)),
        text => size(text).map(|bytes| AtMost(Some(bytes))).map_err(|error| error + ", or none"),
    }
}

/// A length of time, or `none`.
pub(crate) fn age_limit(text: &str) -> Result<AtMost<Duration>, String> {
    if text == "none" {
        return Ok(AtMost(None));
    }
    let ns = Quantity::parse(text)
        .filter(|written| written.unit().is_some())
        .and_then(|written| written.value_in(Some(&Unit::Nanoseconds)))
        .filter(|ns| (1.0..1e18).contains(ns));
    let expected = "expected a length of time in ns, us, ms, s, min, h or d, as in 7d, or none";
    ns.map(|ns| AtMost(Some(Duration::from_nanos(ns as u64)))).ok_or_else(|| expected.to_owned())
}

/// `begin`, `end`, or a position.
pub(crate) fn start(text: &str) -> Result<Start, String> {
    match text {
        "begin" => Ok(Start::Begin),
        "end" => Ok(Start::End),
        number => number
            .parse()
            .map(Start::At)
            .map_err(|_| "expected begin, end, or a position (a whole number)".to_owned()),
    }
}

/// One of several values by name.
fn choice<T: Copy + Send + Sync + 'static>(
    choices: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let values = choices.iter().map(|(name, about, _)| PossibleValue::new(*name).help(*about));
    PossibleValuesParser::new(values).map(move |name| {
        let chosen = choices.iter().find(|(known, _, _)| *known == name);
        chosen.expect("BUG: clap let a name pass").2
    })
}

pub(crate) fn level() -> impl TypedValueParser<Value = Level> {
    choice(&[
        ("memory", "in shared memory, which survives kill -9, too; not a power cut", Level::Memory),
        ("process", "survives kill -9, not a power cut", Level::Process),
        ("disk", "on disk, synchronised: survives a power cut", Level::Disk),
    ])
}

pub(crate) fn codec() -> impl TypedValueParser<Value = Codec> {
    choice(&[
        ("none", "not at all", Codec::None),
        ("lz4", "fast", Codec::Lz4),
        ("zstd", "smaller", Codec::Zstd),
    ])
}

pub(crate) fn at_limit() -> impl TypedValueParser<Value = AtLimit> {
    choice(&[
        ("refuse", "appends fail until somebody has read the oldest", AtLimit::Refuse),
        ("drop-oldest", "the oldest go, and who missed them is told", AtLimit::DropOldest),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_may_be_none() {
        assert_eq!(size_limit("none"), Ok(AtMost(None)));
        assert_eq!(size_limit("1KiB"), Ok(AtMost(Some(1024))));
        assert_eq!(age_limit("7d"), Ok(AtMost(Some(Duration::from_secs(7 * 86_400)))));
        assert_eq!(age_limit("none"), Ok(AtMost(None)));
        for text in ["7", "7B", "-1s", "0s", "soon"] {
            assert!(age_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn positions_are_numbers_or_ends() {
        assert_eq!(start("begin"), Ok(Start::Begin));
        assert_eq!(start("17"), Ok(Start::At(17)));
        assert!(start("-1").is_err());
        assert!(start("middle").is_err());
    }
}
