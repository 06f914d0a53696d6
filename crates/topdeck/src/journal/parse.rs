//! Command line values: sizes, durations, positions and choices.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use decode::{Quantity, Unit};
use journal::{Compression, Level, LimitPolicy, StartPosition};
pub(crate) use role::settings::parse_size as size;

/// Limit that may be `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionalLimit<T>(pub(crate) Option<T>);

/// Size, or `none`.
pub(crate) fn parse_size_limit(text: &str) -> Result<OptionalLimit<u64>, String> {
    match text {
        "none" => Ok(OptionalLimit(None)),
        text => {
            size(text).map(|bytes| OptionalLimit(Some(bytes))).map_err(|error| error + ", or none")
        }
    }
}

/// Duration, or `none`.
pub(crate) fn parse_age_limit(text: &str) -> Result<OptionalLimit<Duration>, String> {
    if text == "none" {
        return Ok(OptionalLimit(None));
    }
    let ns = Quantity::parse(text)
        .filter(|written| written.unit().is_some())
        .and_then(|written| written.value_in(Some(&Unit::Nanoseconds)))
        .filter(|ns| (1.0..1e18).contains(ns));
    let expected = "expected a duration in ns, us, ms, s, min, h or d, as in 7d, or none";
    ns.map(|ns| OptionalLimit(Some(Duration::from_nanos(ns as u64))))
        .ok_or_else(|| expected.to_owned())
}

/// `begin`, `end`, or a position.
pub(crate) fn parse_start(text: &str) -> Result<StartPosition, String> {
    match text {
        "begin" => Ok(StartPosition::First),
        "end" => Ok(StartPosition::End),
        number => number
            .parse()
            .map(StartPosition::At)
            .map_err(|_| "expected begin, end, or a position (a whole number)".to_owned()),
    }
}

/// Parser of a choice of named values.
fn choice_parser<T: Copy + Send + Sync + 'static>(
    choices: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let values = choices.iter().map(|(name, about, _)| PossibleValue::new(*name).help(*about));
    PossibleValuesParser::new(values).map(move |name| {
        let chosen = choices.iter().find(|(known, _, _)| *known == name);
        chosen.expect("BUG: clap let a name pass").2
    })
}

pub(crate) fn level_parser() -> impl TypedValueParser<Value = Level> {
    choice_parser(&[
        ("memory", "same as process: the shared memory outlives the process", Level::Memory),
        ("process", "in the page cache: survives kill -9, but not a power loss", Level::Process),
        ("disk", "fsynced to disk: survives a power loss", Level::Disk),
    ])
}

/// Level that records must have reached to be read.
pub(crate) fn read_level_parser() -> impl TypedValueParser<Value = Level> {
    choice_parser(&[
        ("any", "all records", Level::Memory),
        ("memory", "the same as any", Level::Memory),
        ("process", "in the page cache: survives kill -9, but not a power loss", Level::Process),
        ("disk", "fsynced to disk: survives a power loss", Level::Disk),
    ])
}

pub(crate) fn compression_parser() -> impl TypedValueParser<Value = Compression> {
    choice_parser(&[
        ("none", "no compression", Compression::None),
        ("lz4", "fast", Compression::Lz4),
        ("zstd", "smaller", Compression::Zstd),
    ])
}

pub(crate) fn limit_policy_parser() -> impl TypedValueParser<Value = LimitPolicy> {
    choice_parser(&[
        ("reject", "appends fail until the oldest records are read", LimitPolicy::Reject),
        (
            "drop-oldest",
            "the oldest records are dropped, and subscribers get a gap",
            LimitPolicy::DropOldest,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_may_be_none() {
        assert_eq!(parse_size_limit("none"), Ok(OptionalLimit(None)));
        assert_eq!(parse_size_limit("1KiB"), Ok(OptionalLimit(Some(1024))));
        assert_eq!(parse_age_limit("7d"), Ok(OptionalLimit(Some(Duration::from_secs(7 * 86_400)))));
        assert_eq!(parse_age_limit("none"), Ok(OptionalLimit(None)));
        for text in ["7", "7B", "-1s", "0s", "soon"] {
            assert!(parse_age_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn positions_are_numbers_or_ends() {
        assert_eq!(parse_start("begin"), Ok(StartPosition::First));
        assert_eq!(parse_start("17"), Ok(StartPosition::At(17)));
        assert!(parse_start("-1").is_err());
        assert!(parse_start("middle").is_err());
    }
}
