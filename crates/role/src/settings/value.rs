//! Setting values: durations, sizes, file paths.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use net::tls::ClientTls;
use serde::de::{Deserialize, Deserializer, Visitor};

use crate::role::BoxError;

/// A duration: `10s`, `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationSetting(pub Duration);

/// A size: `16MiB`, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// As a size in memory.
    pub fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The configured duration, or the default.
pub fn duration_or(length: Option<DurationSetting>, default: Duration) -> Duration {
    length.map_or(default, |length| length.0)
}

/// A file or directory. [`Document`] resolves relative paths against the directory of the settings
/// file, for all roles.
///
/// [`Document`]: crate::settings::Document
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath(PathBuf);

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

thread_local! {
    /// The directory against which [`FilePath`]s are resolved while a file is read. A thread local,
    /// because deserializing cannot pass context down to values.
    static DIR: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
}

/// Runs `read` with `dir` as the base of relative paths.
pub(crate) fn with_dir<T>(dir: &Path, read: impl FnOnce() -> T) -> T {
    let before = DIR.replace(dir.to_owned());
    let read = read();
    DIR.set(before);
    read
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FilePath, D::Error> {
        let path = PathBuf::deserialize(deserializer)?;
        Ok(FilePath(DIR.with_borrow(|dir| dir.join(path))))
    }
}

/// The TLS settings of a client.
pub fn client_tls(
    ca: Option<&FilePath>,
    certificate: Option<&FilePath>,
    key: Option<&FilePath>,
) -> ClientTls {
    let owned = |path: Option<&FilePath>| path.map(|path| path.to_path_buf());
    ClientTls { ca: owned(ca), certificate: owned(certificate), key: owned(key), pins: Vec::new() }
}

/// Reads the token in a file. `owner` names its owner in error texts.
pub fn read_token(owner: &str, path: Option<&FilePath>) -> Result<Option<String>, BoxError> {
    let Some(path) = path else { return Ok(None) };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) => {
            Err(format!("cannot read the token of {owner}, {}: {error}", path.display()).into())
        }
    }
}

/// Visitor for a string that `parse` parses; other types are errors with `expected`.
struct TextVisitor<T> {
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
    number: Option<fn(u64) -> T>,
}

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(|reason| E::custom(format!("{text:?}: {reason}")))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        match (self.number, u64::try_from(number)) {
            (Some(make), Ok(number)) => Ok(make(number)),
            _ => Err(E::custom(format!("{number}: expected {}", self.expected))),
        }
    }
}

/// Deserializes a string of the file with `parse`. `expected` follows *expected* in the error for
/// other types.
pub fn deserialize_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(TextVisitor { expected, parse, number: None })
}

impl<'de> Deserialize<'de> for DurationSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationSetting, D::Error> {
        let parse = |text: &str| {
            let ns = decode::parse_duration(text).ok_or(decode::DURATION_EXPECTED)?;
            let ns = u64::try_from(ns).ok().filter(|&ns| ns > 0).ok_or("must be greater than 0")?;
            Ok(DurationSetting(Duration::from_nanos(ns)))
        };
        deserialize_text(deserializer, "a duration in quotes, as in \"10s\"", parse)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        let parse = |text: &str| parse_size(text).map(Size);
        let expected = "a size in quotes, as in \"16MiB\"";
        deserializer.deserialize_any(TextVisitor { expected, parse, number: Some(Size) })
    }
}

/// Parses `16MiB`, `1.5 GiB`, `4096` into a whole number of bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 5] =
        [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1)];
    let expected = || "expected a size in B, KiB, MiB, GiB or TiB, as in 16MiB".to_owned();
    let text = text.trim();
    let (number, unit_bytes) = UNITS
        .iter()
        .find_map(|(unit, bytes)| text.strip_suffix(unit).map(|number| (number, *bytes)))
        .unwrap_or((text, 1));
    let (integer, fraction) = number.trim().split_once('.').unwrap_or((number.trim(), "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Nine decimals keep the product within 128 bits.
    if !digits(integer) || !digits(fraction) || fraction.len() > 9 {
        return Err(expected());
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let number: u128 = format!("{integer}{fraction}").parse().map_err(|_| expected())?;
    let bytes = number.checked_mul(u128::from(unit_bytes)).ok_or_else(expected)?;
    if bytes % scale != 0 {
        return Err("is not a whole number of bytes".to_owned());
    }
    u64::try_from(bytes / scale).map_err(|_| "exceeds 2^64 - 1 bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, bytes: u64) {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
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
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn relative_paths_are_resolved_against_the_settings_directory() {
        let read = |dir: &str, path: &str| {
            let path = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(path);
            with_dir(Path::new(dir), || FilePath::deserialize(path)).unwrap()
        };
        assert_eq!(&*read("/etc/topdeck", "token"), Path::new("/etc/topdeck/token"));
        assert_eq!(&*read("/etc/topdeck", "/run/token"), Path::new("/run/token"));
    }
}
