//! Settings of the host collector: the host's name, and the settings of each source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use role::settings::{Document, Problems, SettingsCheck};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::metric::HOST_BYTES_MAX;
use crate::process_table::ProcessTableSettings;
use crate::source::{SourceHandle, TABLE};
use crate::source_table::SOURCES;

/// Settings of the host collector. The collection interval is that of intake.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Host name: the label `host` of all series.
    pub host: String,
    /// Directory of the process table; `None`, the default, for [`shm::metrics_dir`].
    pub dir: Option<PathBuf>,
    pub(crate) sources: Vec<SourceHandle>,
}

impl Settings {
    /// Longest host name in bytes.
    pub(crate) const HOST_BYTES_MAX: usize = HOST_BYTES_MAX;

    /// Settings of all sources with their defaults, for a host name.
    pub fn for_host(host: impl Into<String>) -> Settings {
        HostTable::default().settings_for(host)
    }

    /// Settings with keys of `[host]`, as TOML.
    pub fn with_keys(host: impl Into<String>, keys: &str) -> Result<Settings, Problems> {
        let text = format!("[host]\n{keys}");
        let document = Document::parse(&text, Path::new("."))?;
        let table = HostTable::read(&document)?;
        let mut check = SettingsCheck::new(&document);
        table.check(&mut check);
        let problems = check.finish();
        if problems.is_empty() { Ok(table.settings_for(host)) } else { Err(problems) }
    }

    /// Whether the process table is published.
    pub(crate) fn has_process_table(&self) -> bool {
        self.sources
            .iter()
            .filter_map(SourceHandle::get)
            .any(|it: &ProcessTableSettings| it.processes)
    }
}

/// Table `[host]`, as read from the file.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTable {
    /// Label `host`: the host name. All roles of the node use it.
    name: Option<String>,
    sources: Vec<SourceHandle>,
}

/// Keys that belong to no source.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OwnKeys {
    name: Option<String>,
}

const OWN_KEYS: [&str; 1] = ["name"];

/// Keys of the table in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HostKeys {
    #[serde(rename = "host")]
    _host: BTreeMap<String, IgnoredAny>,
}

impl Default for HostTable {
    fn default() -> HostTable {
        HostTable { name: None, sources: SOURCES.iter().map(|row| (row.default)()).collect() }
    }
}

impl HostTable {
    /// Reads the keys of each source.
    pub(crate) fn read(document: &Document<'_>) -> Result<HostTable, Problems> {
        // Reports an error if `host` is not a table.
        document.read::<HostKeys>(&["host"])?;
        let of_sources = SOURCES.iter().flat_map(|row| row.keys);
        let known: Vec<&str> = OWN_KEYS.iter().chain(of_sources).copied().collect();
        let mut problems = document.unknown_keys(TABLE, &known);
        let keys = document.read_table::<OwnKeys>(TABLE, &OWN_KEYS);
        let keys = keys.map_err(|found| problems.extend(found)).unwrap_or_default();
        let mut sources = Vec::new();
        for row in SOURCES {
            match (row.read)(document) {
                Ok(source) => sources.push(source),
                Err(found) => problems.extend(found),
            }
        }
        if problems.is_empty() { Ok(HostTable { name: keys.name, sources }) } else { Err(problems) }
    }

    /// Reports every invalid key.
    pub(crate) fn check(&self, check: &mut SettingsCheck<'_>) {
        self.sources.iter().for_each(|source| source.check(check));
        let bytes_max = Settings::HOST_BYTES_MAX;
        if let Some(name) = &self.name
            && !(1..=bytes_max).contains(&name.len())
        {
            let what = format!("name has {} bytes, must have 1 to {bytes_max}", name.len());
            check.problem(TABLE, "name", what);
        }
    }

    /// Settings for a host name; `None` if all sources are disabled.
    pub fn settings(&self, host: &str) -> Option<Settings> {
        let is_any = self.sources.iter().any(SourceHandle::is_enabled);
        is_any.then(|| self.settings_for(host))
    }

    fn settings_for(&self, host: impl Into<String>) -> Settings {
        Settings { host: host.into(), dir: None, sources: self.sources.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_key_is_of_one_source() {
        let keys = || OWN_KEYS.iter().chain(SOURCES.iter().flat_map(|row| row.keys));
        assert_eq!(keys().collect::<BTreeSet<_>>().len(), keys().count());
    }

    #[test]
    fn no_keys_are_the_defaults() {
        assert_eq!(Settings::with_keys("h", ""), Ok(Settings::for_host("h")));
        assert_ne!(Settings::with_keys("h", "procfs = false"), Ok(Settings::for_host("h")));
    }
}
