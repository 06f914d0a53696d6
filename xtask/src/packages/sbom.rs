//! Software bill of materials: `topdeck-VERSION-MACHINE.cdx.json`, CycloneDX 1.5.
//!
//! It lists what a program contains: crates that are linked for the target (`cargo tree`, without
//! macros and what only builds or tests need), with licenses and the digests of Cargo.lock; and the
//! packages of npm whose code is bundled into the web UI, with those of package-lock.json. Crates
//! of this repository have no package URL and no digest: they are not published. C sources in
//! crates, such as zstd, are parts of their crates.
//!
//! Format: ECMA-424, CycloneDX 1.5 JSON.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use serde_json::{Value, json};

use super::PackageDir;
use super::calendar::UtcTime;
use super::checksums::hex;
use super::installed_tree::{HOMEPAGE, SUMMARY};
use super::package_source::{PackageSource, repo_text};
use crate::command_line::CommandLine;

/// Packages of npm with code in the built page. `make system PART=packages` compares them with the
/// source maps of the page.
pub(crate) const BUNDLED: [&str; 3] = ["clsx", "svelte", "uplot"];

pub(super) fn write(source: &PackageSource, files: &mut PackageDir) -> Result<()> {
    let line = format!(
        "cargo tree --locked -p topdeck -e normal,no-proc-macro --prefix depth --target {}",
        source.arch.triple
    );
    let tree = CommandLine::new(&line).arg("--format").arg("{p}|{l}").stdout()?;
    let tree = CrateTree::parse(std::str::from_utf8(&tree)?)?;
    let checksums = crate_checksums(&repo_text("Cargo.lock")?)?;
    let npm = npm_components(&repo_text("web/package-lock.json")?)?;
    let bill = bill(source, &tree, &checksums, &npm);
    let mut text = serde_json::to_string_pretty(&bill)?;
    text.push('\n');
    let name = format!("topdeck-{}-{}.cdx.json", source.version, source.arch.machine);
    files.write(&name, text.as_bytes())
}

/// Name and version.
type CrateId = (String, String);

/// Crates of a program: license and direct dependencies of each.
#[derive(Debug, Default)]
struct CrateTree {
    root: Option<CrateId>,
    crates: BTreeMap<CrateId, LinkedCrate>,
}

#[derive(Debug, Default)]
struct LinkedCrate {
    license: String,
    is_ours: bool,
    dependencies: BTreeSet<CrateId>,
}

impl CrateTree {
    /// Parses lines of `cargo tree --prefix depth --format '{p}|{l}'`: `2serde v1.0.0|MIT`. A crate
    /// of this repository has its path after the version. What is below a crate is printed once.
    fn parse(text: &str) -> Result<CrateTree> {
        let mut tree = CrateTree::default();
        let mut path: Vec<CrateId> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let parse = || {
                let start = line.find(|c: char| !c.is_ascii_digit())?;
                let (package, license) = line[start..].split_once('|')?;
                let mut words = package.split(' ');
                let id = (words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned());
                let is_ours = words.next().is_some_and(|word| word.starts_with("(/"));
                Some((line[..start].parse::<usize>().ok()?, id, is_ours, license))
            };
            let (depth, id, is_ours, license) =
                parse().with_context(|| format!("cannot read the line {line:?} of cargo tree"))?;
            ensure!(depth <= path.len(), "cargo tree skips a level before {line:?}");
            path.truncate(depth);
            match path.last() {
                Some(parent) => {
                    let parent = tree.crates.get_mut(parent).expect("BUG: the parent is known");
                    parent.dependencies.insert(id.clone());
                }
                None => tree.root = Some(id.clone()),
            }
            let found = tree.crates.entry(id.clone()).or_default();
            found.license = license.trim_end_matches(" (*)").replace('/', " OR ");
            found.is_ours = is_ours;
            path.push(id);
        }
        Ok(tree)
    }
}

/// SHA-256 of published crates.
fn crate_checksums(lock: &str) -> Result<BTreeMap<CrateId, String>> {
    let lock: toml::Table = lock.parse().context("cannot parse Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.context("Cargo.lock has no packages")?;
    let checksum = |package: &toml::Value| {
        let text = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(checksum).collect())
}

/// Components of the packages that are bundled.
fn npm_components(lock: &str) -> Result<Vec<Value>> {
    let lock: Value = serde_json::from_str(lock).context("cannot parse web/package-lock.json")?;
    let component = |name: &str| {
        let package = &lock["packages"][format!("node_modules/{name}")];
        let text = |key: &str| package[key].as_str();
        let version = text("version")?;
        let integrity = text("integrity")?.strip_prefix("sha512-")?;
        let purl = format!("pkg:npm/{name}@{version}");
        let mut component = library(name, version, text("license")?);
        component["bom-ref"] = json!(purl);
        component["purl"] = json!(purl);
        let digest = hex(&STANDARD.decode(integrity).ok()?);
        component["hashes"] = json!([{ "alg": "SHA-512", "content": digest }]);
        Some(component)
    };
    let find = |name: &&str| {
        component(name).with_context(|| {
            format!("web/package-lock.json has no version, license and digest of {name}")
        })
    };
    BUNDLED.iter().map(find).collect()
}

fn bill(
    source: &PackageSource,
    tree: &CrateTree,
    checksums: &BTreeMap<CrateId, String>,
    npm: &[Value],
) -> Value {
    let root = tree.root.as_ref().expect("BUG: cargo tree begins with the program");
    let others = || tree.crates.iter().filter(|(id, _)| *id != root);
    let mut components: Vec<Value> =
        others().map(|(id, found)| crate_component(id, found, checksums.get(id))).collect();
    components.extend_from_slice(npm);
    let dependencies = tree.crates.iter().map(|(id, found)| {
        let mut on: Vec<String> = found.dependencies.iter().map(reference).collect();
        // The page is a part of the program.
        if id == root {
            on.extend(npm.iter().filter_map(|it| it["bom-ref"].as_str().map(str::to_owned)));
        }
        json!({ "ref": reference(id), "dependsOn": on })
    });
    let mut program = library("topdeck", source.version, "Apache-2.0");
    program["type"] = json!("application");
    program["bom-ref"] = json!(reference(root));
    program["description"] = json!(SUMMARY);
    program["externalReferences"] = json!([{ "type": "vcs", "url": HOMEPAGE }]);
    let digest = hex(digest::digest(&digest::SHA256, &source.binary).as_ref());
    program["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": serial_number(&source.binary),
        "version": 1,
        "metadata": {
            "timestamp": UtcTime::new(source.time_s).rfc_3339(),
            "tools": { "components": [library("xtask", source.version, "Apache-2.0")] },
            "component": program,
        },
        "components": components,
        "dependencies": dependencies.collect::<Vec<Value>>(),
    })
}

fn crate_component(id: &CrateId, found: &LinkedCrate, checksum: Option<&String>) -> Value {
    let (name, version) = id;
    let mut component = library(name, version, &found.license);
    component["bom-ref"] = json!(reference(id));
    if !found.is_ours {
        component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

fn library(name: &str, version: &str, license: &str) -> Value {
    let mut component = json!({ "type": "library", "name": name, "version": version });
    if !license.is_empty() {
        component["licenses"] = json!([{ "expression": license }]);
    }
    component
}

fn reference((name, version): &CrateId) -> String {
    format!("cargo:{name}@{version}")
}

/// A UUID of the program (RFC 9562, version 8), so that two runs make the same bytes.
fn serial_number(binary: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, binary);
    let mut bytes: [u8; 16] = digest.as_ref()[..16].try_into().expect("BUG: it has 32 bytes");
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex(&bytes);
    let parts = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    format!("urn:uuid:{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_has_each_crate_once_with_its_dependencies() {
        let text = "0topdeck v0.1.0 (/a/crates/topdeck)|Apache-2.0\n1b v1.0.0|MIT/Apache-2.0\n\
                    2c v2.0.0|MIT\n1c v2.0.0|MIT\n1d v0.1.0 (/a/crates/d)|Apache-2.0\n\
                    2b v1.0.0|MIT/Apache-2.0 (*)\n";
        let tree = CrateTree::parse(text).unwrap();
        let id = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(tree.root, Some(id("topdeck", "0.1.0")));
        let b = &tree.crates[&id("b", "1.0.0")];
        assert_eq!((b.license.as_str(), b.is_ours), ("MIT OR Apache-2.0", false));
        assert_eq!(b.dependencies, BTreeSet::from([id("c", "2.0.0")]));
        let d = &tree.crates[&id("d", "0.1.0")];
        assert!(d.is_ours && d.dependencies.contains(&id("b", "1.0.0")));
        assert_eq!(tree.crates.len(), 4);
        let error = CrateTree::parse("0a v1|\n2b v1|").unwrap_err().to_string();
        assert_eq!(error, "cargo tree skips a level before \"2b v1|\"");
    }

    #[test]
    fn digests_are_those_of_the_lock_files() {
        let lock = "[[package]]\nname = 'a'\nversion = '1.0.0'\nchecksum = 'ff'\n\n\
                    [[package]]\nname = 'ours'\nversion = '0.1.0'\n";
        let found = crate_checksums(lock).unwrap();
        let expected = [(("a".to_owned(), "1.0.0".to_owned()), "ff".to_owned())];
        assert_eq!(found, BTreeMap::from(expected));
        let error = npm_components("{}").unwrap_err().to_string();
        assert!(error.contains("digest of clsx"), "{error}");
    }

    #[test]
    fn serial_number_is_a_uuid_of_the_program() {
        let expected = "urn:uuid:ba7816bf-8f01-8fea-8141-40de5dae2223";
        assert_eq!(serial_number(b"abc"), expected);
    }
}
