//! InstallManifest of an installation: what `topdeck uninstall` removes, one entry a line.
//!
//! ```text
//! server https://north.example:7717
//! pin sha256//a+fugyVNuxVVaB8ZAhsxaUS9MnPklrcgnkMuvNkiWhc=
//! user topdeck
//! dir /etc/topdeck
//! file /etc/topdeck/agent.toml
//! tree /var/lib/topdeck-agent
//! ```
//! What existed before is not in it. A `tree` is removed with its contents.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// An entry of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ManifestEntry {
    Server(String),
    Pin(String),
    User(String),
    Dir(PathBuf),
    File(PathBuf),
    Tree(PathBuf),
}

/// Entries in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstallManifest(pub(crate) Vec<ManifestEntry>);

impl InstallManifest {
    /// Reads a manifest; `None` if there is no file.
    pub(crate) fn read(path: &Path) -> Result<Option<InstallManifest>> {
        match std::fs::read_to_string(path) {
            Ok(text) => InstallManifest::parse(&text)
                .with_context(|| format!("cannot read {}", path.display()))
                .map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => bail!("cannot read {}: {error}", path.display()),
        }
    }

    fn parse(text: &str) -> Result<InstallManifest> {
        let entries = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let entry = |line: &str| {
            let (kind, value) = line.split_once(' ').unwrap_or((line, ""));
            let text = value.to_owned();
            Ok(match kind {
                "server" => ManifestEntry::Server(text),
                "pin" => ManifestEntry::Pin(text),
                "user" => ManifestEntry::User(text),
                "dir" => ManifestEntry::Dir(text.into()),
                "file" => ManifestEntry::File(text.into()),
                "tree" => ManifestEntry::Tree(text.into()),
                _ => bail!("found {line:?}, expected server, pin, user, dir, file or tree"),
            })
        };
        Ok(InstallManifest(entries.map(entry).collect::<Result<_>>()?))
    }

    pub(crate) fn text(&self) -> String {
        let mut text = "# Made by `topdeck install`; `topdeck uninstall` removes it.\n".to_owned();
        for entry in &self.0 {
            let (kind, value) = match entry {
                ManifestEntry::Server(url) => ("server", url.clone()),
                ManifestEntry::Pin(pin) => ("pin", pin.clone()),
                ManifestEntry::User(name) => ("user", name.clone()),
                ManifestEntry::Dir(path) => ("dir", path.display().to_string()),
                ManifestEntry::File(path) => ("file", path.display().to_string()),
                ManifestEntry::Tree(path) => ("tree", path.display().to_string()),
            };
            text.push_str(&format!("{kind} {value}\n"));
        }
        text
    }

    /// Adds an entry that is not in it yet.
    pub(crate) fn add(&mut self, entry: ManifestEntry) {
        if !self.0.contains(&entry) {
            self.0.push(entry);
        }
    }

    /// URL of the server, and the pins of its key.
    pub(crate) fn server(&self) -> Option<(&str, Vec<String>)> {
        let url = self.0.iter().find_map(|entry| match entry {
            ManifestEntry::Server(url) => Some(url.as_str()),
            _ => None,
        })?;
        let pins = self.0.iter().filter_map(|entry| match entry {
            ManifestEntry::Pin(pin) => Some(pin.clone()),
            _ => None,
        });
        Some((url, pins.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let text = "# Made by `topdeck install`; `topdeck uninstall` removes it.\n\
                    server https://north.example:7717\npin sha256//AA=\nuser topdeck\n\
                    dir /etc/topdeck\nfile /etc/topdeck/agent.toml\ntree /var/lib/topdeck-agent\n";
        let manifest = InstallManifest::parse(text).unwrap();
        assert_eq!(manifest.text(), text);
        let server = ("https://north.example:7717", vec!["sha256//AA=".to_owned()]);
        assert_eq!(manifest.server(), Some(server));
        let error = InstallManifest::parse("link /a\n").unwrap_err().to_string();
        assert!(error.starts_with("found \"link /a\", expected server"), "{error}");
    }
}
