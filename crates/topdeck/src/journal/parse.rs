//! Sizes, lengths of time, positions and choices as people write them on the command line.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use collect::{Quantity, Unit};
use journal::{AtLimit, Codec, Level, Start};

/// A limit that may be `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtMost<T>(pub(crate) Option<T>);

/// `16MiB`, `1.5 GiB`, `4096`: a whole number of bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 5] =
        [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1)];
    let expected = || "expected a size in B, KiB, MiB, GiB or TiB, as in 16MiB".to_owned();
    let text = text.trim();
    let (number, unit_bytes) = UNITS
        .iter()
        .find_map(|(unit, bytes)| text.strip_suffix(unit).map(|number| (number, *bytes)))
        .unwrap_or((text, 1));
    let (whole, fraction) = number.trim().split_once('.').unwrap_or((number.trim(), "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Nine decimals are more than anybody writes, and keep the product within 128 bits.
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return Err(expected());
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let number: u128 = format!("{whole}{fraction}").parse().map_err(|_| expected())?;
    let bytes = number.checked_mul(u128::from(unit_bytes)).ok_or_else(expected)?;
    if bytes % scale != 0 {
        return Err("is no whole number of bytes".to_owned());
    }
    u64::try_from(bytes / scale).map_err(|_| "is more bytes than there can be".to_owned())
}

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

    #[track_caller]
    fn check(text: &str, bytes: u64) {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }

    #[test]
    fn sizes_have_binary_units() {
        check("4096", 4096);
        check("512B", 512);
        check("64KiB", 64 << 10);
        check("16 MiB", 16 << 20);
        check("1.5GiB", 3 << 29);
        check("2TiB", 2 << 40);
        for text in ["", "B", "1MB", "16M", "-1", "1e6", "0.3B", "1..2", "99999999TiB", "1.MiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

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
