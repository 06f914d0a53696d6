//! Packages of npm whose code is in the built page, from the source maps of a build.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::path_text;
use crate::command_line::{CommandLine, root};
use crate::packages::BUNDLED;
use crate::part_log::PartLog;

/// Compares `BUNDLED` with the page. Returns the reason if it cannot be built on this machine.
pub(super) fn check(log: &PartLog, dir: &Path) -> Result<Option<String>> {
    if !root().join("web/node_modules").exists() {
        return Ok(Some("the page was not built: run cargo xtask page".to_owned()));
    }
    let out = dir.join("page");
    let line =
        CommandLine::new("node web/node_modules/vite/bin/vite.js build web --sourcemap --outDir");
    line.arg(path_text(&out)?).arg("--emptyOutDir").run(log)?;
    let found = packages_of(&out.join("assets"))?;
    let expected: BTreeSet<String> = BUNDLED.iter().map(|name| (*name).to_owned()).collect();
    ensure!(
        found == expected,
        "the page contains {found:?}, and the bill of materials lists {expected:?}; correct \
         BUNDLED in xtask/src/packages/sbom.rs"
    );
    Ok(None)
}

fn packages_of(assets: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(assets).context("the page has no assets")? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "map") {
            continue;
        }
        let map: Value = serde_json::from_slice(&fs::read(&path)?)?;
        let sources = map["sources"].as_array().context("a source map has no sources")?;
        found.extend(sources.iter().filter_map(Value::as_str).filter_map(package_of));
    }
    Ok(found)
}

/// The package of a source, such as `svelte` of `../../node_modules/svelte/src/index.js`.
fn package_of(source: &str) -> Option<String> {
    let (_, path) = source.rsplit_once("node_modules/")?;
    let mut parts = path.split('/');
    let name = parts.next()?;
    match name.starts_with('@') {
        true => Some(format!("{name}/{}", parts.next()?)),
        false => Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_is_the_last_directory_below_node_modules() {
        let check = |source: &str, expected: Option<&str>| {
            assert_eq!(package_of(source).as_deref(), expected);
        };
        check("../../node_modules/uplot/dist/uPlot.esm.js", Some("uplot"));
        check("../node_modules/a/node_modules/@b/c/index.js", Some("@b/c"));
        check("../../src/main.ts", None);
    }
}
