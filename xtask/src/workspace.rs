//! Packages of the workspace, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::command_line::{CommandLine, cores, root};

/// All packages, by the path of their manifest.
pub(crate) struct Workspace(BTreeMap<PathBuf, WorkspacePackage>);

/// A package of the workspace.
pub(crate) struct WorkspacePackage {
    pub(crate) name: String,
    pub(crate) tests: TestSettings,
    /// Directories of packages on which it depends, including dev-dependencies.
    uses: Vec<PathBuf>,
}

/// Test settings of a package: `[package.metadata.topdeck.tests]` of its manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestSettings {
    /// Threads of a test program: more than CPUs if tests wait; default: the number of CPUs.
    pub(crate) threads: usize,
    /// Whether the integration tests run for a minute or more: they start first.
    pub(crate) is_long: bool,
    /// Substrings of the names of integration tests that measure time and must run alone.
    pub(crate) alone: Vec<String>,
}

impl Workspace {
    /// Runs `cargo metadata`.
    pub(crate) fn read() -> Result<Workspace> {
        let line = CommandLine::new("cargo metadata --no-deps --format-version 1 --locked");
        let metadata: Value = serde_json::from_slice(&line.stdout()?).context(
            "cannot parse the output of cargo \
                                                             metadata",
        )?;
        let packages = metadata["packages"].as_array().context("cargo names no packages")?;
        let packages = packages.iter().map(|package| {
            let name = text(&package["name"]);
            let tests = TestSettings::read(&package["metadata"]["topdeck"]["tests"])
                .with_context(|| format!("[package.metadata.topdeck.tests] of {name}"))?;
            let uses = package["dependencies"].as_array().into_iter().flatten();
            let uses = uses.filter_map(|used| used["path"].as_str()).map(PathBuf::from).collect();
            Ok((text(&package["manifest_path"]).into(), WorkspacePackage { name, tests, uses }))
        });
        packages.collect::<Result<_>>().map(Workspace)
    }

    /// The package of a manifest.
    pub(crate) fn package(&self, manifest: &Path) -> Result<&WorkspacePackage> {
        self.0.get(manifest).with_context(|| format!("cargo does not know {}", manifest.display()))
    }

    /// The directory of a crate in `crates/` and the directories of all its dependencies, relative
    /// to the root.
    pub(crate) fn closure(&self, name: &str) -> Result<Vec<String>> {
        let mut found = BTreeSet::new();
        let mut waiting = vec![root().join("crates").join(name)];
        while let Some(dir) = waiting.pop() {
            let package = self.package(&dir.join("Cargo.toml"))?;
            if found.insert(dir) {
                waiting.extend(package.uses.iter().cloned());
            }
        }
        let relative = |dir: PathBuf| {
            let path = dir.strip_prefix(root()).expect("BUG: a package outside the repository");
            format!("{}/", path.display())
        };
        Ok(found.into_iter().map(relative).collect())
    }
}

impl TestSettings {
    fn read(table: &Value) -> Result<TestSettings> {
        let mut settings = TestSettings { threads: cores(), is_long: false, alone: Vec::new() };
        for (key, value) in table.as_object().into_iter().flatten() {
            match (key.as_str(), value.as_u64(), value.as_array()) {
                ("threads", Some(threads @ 1..), _) => settings.threads = threads as usize,
                ("long", ..) if value == true => settings.is_long = true,
                ("alone", _, Some(names)) => settings.alone = names.iter().map(text).collect(),
                _ => bail!(
                    "unknown {key} = {value}; expected threads = 1…, long = true, alone = [names]"
                ),
            }
        }
        Ok(settings)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn test_settings_are_read_from_the_manifest() {
        let default = TestSettings { threads: cores(), is_long: false, alone: Vec::new() };
        assert_eq!(TestSettings::read(&Value::Null).unwrap(), default);
        let all = json!({"threads": 6, "long": true, "alone": ["load::"]});
        let expected = TestSettings { threads: 6, is_long: true, alone: vec!["load::".to_owned()] };
        assert_eq!(TestSettings::read(&all).unwrap(), expected);
        let error = TestSettings::read(&json!({"thread": 6})).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown thread = 6; expected threads = 1…, long = true, alone = [names]"
        );
        for wrong in [json!({"threads": 0}), json!({"long": false}), json!({"long": 1})] {
            assert!(TestSettings::read(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn closure_includes_all_dependencies() {
        let workspace = Workspace::read().unwrap();
        let shm = workspace.closure("shm").unwrap();
        assert!(
            ["crates/shm/", "crates/clock/", "crates/hist/"]
                .iter()
                .all(|c| shm.contains(&c.to_string()))
        );
        assert!(!shm.contains(&"crates/store/".to_owned()));
        let error = workspace.closure("nothing").unwrap_err().to_string();
        assert!(error.ends_with("crates/nothing/Cargo.toml"), "{error}");
    }
}
