//! Values as people write them: lengths of time, sizes, files.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use net::tls::ClientTls;
use serde::de::{Deserialize, Deserializer, Visitor};

use crate::role::BoxError;

/// A length of time: `10s`, `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(pub Duration);

/// A size: `16MiB`, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// As the size of something in memory.
    pub fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A length of the settings, or a default.
pub fn length_or(length: Option<Length>, default: Duration) -> Duration {
    length.map_or(default, |length| length.0)
}

/// A file or folder. A relative one is seen from the folder of the settings file; [`Document`]
/// sees to that, so that no role can forget it.
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
    /// The folder that [`FilePath`]s are seen from while a file is read. Deserializing has no way
    /// to hand something down to the values.
    static FOLDER: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
}

/// Reads something whose paths are seen from `folder`.
pub(crate) fn with_folder<T>(folder: &Path, read: impl FnOnce() -> T) -> T {
    let before = FOLDER.replace(folder.to_owned());
    let read = read();
    FOLDER.set(before);
    read
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FilePath, D::Error> {
        let path = PathBuf::deserialize(deserializer)?;
        Ok(FilePath(FOLDER.with_borrow(|folder| folder.join(path))))
    }
}

/// The TLS settings of a client.
pub fn client_tls(
    ca: Option<&FilePath>,
    certificate: Option<&FilePath>,
    key: Option<&FilePath>,
) -> ClientTls {
    let owned = |path: Option<&FilePath>| path.map(|path| path.to_path_buf());
    ClientTls { ca: owned(ca), certificate: owned(certificate), key: owned(key) }
}

/// The token in a file. `owner` names in messages whose it is.
pub fn read_token(owner: &str, path: Option<&FilePath>) -> Result<Option<String>, BoxError> {
    let Some(path) = path else { return Ok(None) };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) => {
            Err(format!("{owner}: cannot read its token, {}: {error}", path.display()).into())
        }
    }
}

/// Text that `parse` reads, with `expected` for values that are no text.
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
        (self.parse)(text).map_err(|why| E::custom(format!("{text:?}: {why}")))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        match (self.number, u64::try_from(number)) {
            (Some(make), Ok(number)) => Ok(make(number)),
            _ => Err(E::custom(format!("{number}: expected {}", self.expected))),
        }
    }
}

/// Reads a value that is text in the file. `expected` follows *expected* where it is no text.
pub fn deserialize_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(TextVisitor { expected, parse, number: None })
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        let parse = |text: &str| {
            let ns = collect::parse_length(text).ok_or(collect::LENGTH_EXPECTED)?;
            let ns = u64::try_from(ns).ok().filter(|&ns| ns > 0).ok_or("has to be more than 0")?;
            Ok(Length(Duration::from_nanos(ns)))
        };
        deserialize_text(deserializer, "a length of time in quotes, as in \"10s\"", parse)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        let parse = |text: &str| parse_size(text).map(Size);
        let expected = "a size in quotes, as in \"16MiB\"";
        deserializer.deserialize_any(TextVisitor { expected, parse, number: Some(Size) })
    }
}

/// `16MiB`, `1.5 GiB`, `4096`: a whole number of bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
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
    fn files_are_seen_from_the_folder_of_the_settings() {
        let read = |folder: &str, path: &str| {
            let path = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(path);
            with_folder(Path::new(folder), || FilePath::deserialize(path)).unwrap()
        };
        assert_eq!(&*read("/etc/topdeck", "token"), Path::new("/etc/topdeck/token"));
        assert_eq!(&*read("/etc/topdeck", "/run/token"), Path::new("/run/token"));
    }
}
