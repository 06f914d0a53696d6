//! Values of contacts' settings: secrets and durations, and the collector of problems of a table.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use net::Endpoint;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::delivery_result::DeliveryError;

/// Collector of problems of one table, by key.
#[derive(Debug, Default)]
pub struct KeyProblems(Vec<(&'static str, String)>);

impl KeyProblems {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keys and problems.
    pub(crate) fn into_problems(self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.into_iter()
    }

    /// Reports a problem of a key; if the key is absent, of its table.
    pub fn add(&mut self, key: &'static str, what: impl fmt::Display) {
        self.0.push((key, what.to_string()));
    }

    /// Checks a URL.
    pub fn url(&mut self, key: &'static str, url: &str) {
        if let Err(error) = Endpoint::parse(url) {
            self.add(key, format!("{key}: {}; expected https://host/path", error.reason));
        }
    }

    /// Checks that a text is not empty.
    pub(crate) fn not_empty(&mut self, key: &'static str, text: &str) {
        if text.trim().is_empty() {
            self.add(key, format!("{key} is empty"));
        }
    }
}

/// A secret, or the file that contains it: `"…"` or `{ file = "path" }`. The file is read for
/// each delivery, so that a new secret is used at once.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ContactSecret {
    /// The secret.
    Text(String),
    /// Path of a file.
    File(PathBuf),
}

impl fmt::Debug for ContactSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContactSecret::Text(_) => f.write_str("ContactSecret"),
            ContactSecret::File(path) => write!(f, "ContactSecret({path:?})"),
        }
    }
}

impl ContactSecret {
    /// The secret, without surrounding white space. A relative path is resolved against
    /// `directory`.
    pub(crate) fn read(&self, directory: &Path) -> Result<String, DeliveryError> {
        let text = match self {
            ContactSecret::Text(text) => text.clone(),
            ContactSecret::File(path) => {
                let path = directory.join(path);
                std::fs::read_to_string(&path).map_err(|error| {
                    let path = path.display();
                    DeliveryError::temporary(format!("cannot read secret {path}: {error}"))
                })?
            }
        };
        Ok(text.trim().to_owned())
    }

    /// Host and port of a URL that is in the settings: paths and parameters may be secret.
    pub(crate) fn url_host(&self) -> Option<String> {
        match self {
            ContactSecret::Text(url) => url_host(url),
            ContactSecret::File(_) => None,
        }
    }

    /// Reports an empty secret.
    pub(crate) fn check(&self, key: &'static str, problems: &mut KeyProblems) {
        match self {
            ContactSecret::Text(text) => problems.not_empty(key, text),
            ContactSecret::File(path) if path.as_os_str().is_empty() => {
                problems.add(key, format!("{key}: file is empty"));
            }
            ContactSecret::File(_) => {}
        }
    }

    /// Reports an invalid URL, if the secret is in the settings.
    pub(crate) fn check_url(&self, key: &'static str, problems: &mut KeyProblems) {
        match self {
            ContactSecret::Text(url) => problems.url(key, url),
            ContactSecret::File(_) => self.check(key, problems),
        }
    }
}

impl<'de> Deserialize<'de> for ContactSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ContactSecret, D::Error> {
        deserializer.deserialize_any(SecretVisitor)
    }
}

struct SecretVisitor;

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = ContactSecret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or { file = \"path\" }")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ContactSecret, E> {
        Ok(ContactSecret::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ContactSecret, A::Error> {
        let mut path = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "file" => path = Some(map.next_value::<PathBuf>()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    return Err(serde::de::Error::unknown_field(&key, &["file"]));
                }
            }
        }
        path.map(ContactSecret::File).ok_or_else(|| serde::de::Error::missing_field("file"))
    }
}

/// Host and port of a URL.
pub(crate) fn url_host(url: &str) -> Option<String> {
    Endpoint::parse(url).ok().map(|endpoint| endpoint.authority())
}

/// A duration such as "5m".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurationText(pub(crate) Duration);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationText, D::Error> {
        let text = String::deserialize(deserializer)?;
        let ns = decode::parse_duration(&text).and_then(|ns| u64::try_from(ns).ok());
        match ns {
            Some(ns @ 1..) => Ok(DurationText(Duration::from_nanos(ns))),
            _ => {
                let expected = decode::DURATION_EXPECTED;
                Err(serde::de::Error::custom(format!("{text:?}: {expected}, above 0")))
            }
        }
    }
}

/// A duration that may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurationOrZeroText(pub(crate) Duration);

impl<'de> Deserialize<'de> for DurationOrZeroText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationOrZeroText, D::Error> {
        let text = String::deserialize(deserializer)?;
        if matches!(text.trim(), "0" | "0s" | "0m" | "0min" | "0ms") {
            return Ok(DurationOrZeroText(Duration::ZERO));
        }
        let ns = decode::parse_duration(&text).and_then(|ns| u64::try_from(ns).ok());
        match ns {
            Some(ns) => Ok(DurationOrZeroText(Duration::from_nanos(ns))),
            None => {
                let expected = decode::DURATION_EXPECTED;
                Err(serde::de::Error::custom(format!("{text:?}: {expected}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_a_file_is_read_for_each_delivery() {
        let dir = std::env::temp_dir().join(format!("topdeck-secret-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let secret = ContactSecret::File("token".into());
        let error = secret.read(&dir).unwrap_err();
        assert!(matches!(error, DeliveryError::Temporary { may_have_arrived: false, .. }));
        for text in ["first\n", " second "] {
            std::fs::write(dir.join("token"), text).unwrap();
            assert_eq!(secret.read(&dir).unwrap(), text.trim());
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
