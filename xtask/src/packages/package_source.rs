//! What goes into the packages of a target: binary, man pages, completions, files of the tree.

use std::env;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};

use crate::command_line::{CommandLine, root};
use crate::dist::DistTarget;

/// Shell completions, as `cargo xtask dist` names them.
pub(crate) const COMPLETION_SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
pub(crate) const COMPLETIONS: [&str; 3] = ["topdeck.bash", "_topdeck", "topdeck.fish"];

/// An architecture under the names of packaging systems.
#[derive(Clone, Copy)]
pub(super) struct PackageArch {
    pub(super) triple: &'static str,
    /// As in the triple, in names of archives, and of rpm.
    pub(super) machine: &'static str,
    /// Of Debian, Go and OCI.
    pub(super) debian: &'static str,
}

const ARCHS: [PackageArch; 2] = [
    PackageArch { triple: "x86_64-unknown-linux-musl", machine: "x86_64", debian: "amd64" },
    PackageArch { triple: "aarch64-unknown-linux-musl", machine: "aarch64", debian: "arm64" },
];

/// Input of the packages of a target.
pub(super) struct PackageSource {
    pub(super) version: &'static str,
    /// Number of the package among those of this version.
    pub(super) release: u32,
    /// Name and address, as in `NAME <ADDRESS>`.
    pub(super) maintainer: String,
    /// Time of all files, in seconds since the epoch.
    pub(super) time_s: u64,
    pub(super) arch: PackageArch,
    pub(super) binary: Arc<[u8]>,
    /// Man pages by file name, sorted.
    pub(super) man_pages: Vec<(String, Vec<u8>)>,
    /// In the order of `COMPLETIONS`.
    pub(super) completions: Vec<Vec<u8>>,
}

impl PackageSource {
    /// Reads the sources of all targets whose binary is in `dir`.
    pub(super) fn read_all(
        dir: &Path,
        release: u32,
        maintainer: &str,
    ) -> Result<Vec<PackageSource>> {
        let time_s = commit_time()?;
        let man_pages = read_dir(&dir.join("man"))?;
        let completions = COMPLETIONS.iter().map(|name| read(&dir.join("completions"), name));
        let completions = completions.collect::<Result<Vec<_>>>()?;
        let mut sources = Vec::new();
        for arch in ARCHS {
            assert!(DistTarget::find(arch.triple).is_some(), "BUG: no target {}", arch.triple);
            let path = dir.join(arch.triple).join("topdeck");
            if !path.exists() {
                continue;
            }
            sources.push(PackageSource {
                version: env!("CARGO_PKG_VERSION"),
                release,
                maintainer: maintainer.to_owned(),
                time_s,
                arch,
                binary: read(&dir.join(arch.triple), "topdeck")?.into(),
                man_pages: man_pages.clone(),
                completions: completions.clone(),
            });
        }
        ensure!(
            !sources.is_empty(),
            "cannot package: {} has no binary of any target; run `cargo xtask dist`",
            dir.display()
        );
        Ok(sources)
    }
}

/// A file of the repository.
pub(super) fn repo_file(path: &str) -> Result<Vec<u8>> {
    read(root(), path)
}

/// A text file of the repository.
pub(super) fn repo_text(path: &str) -> Result<String> {
    String::from_utf8(repo_file(path)?).with_context(|| format!("{path} is not UTF-8"))
}

/// `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn commit_time() -> Result<u64> {
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    let text = match env::var(VARIABLE) {
        Ok(text) => text,
        Err(_) => {
            let line = CommandLine::new("git log -1 --format=%ct");
            let text = line.stdout().with_context(|| {
                format!("cannot read the time of the last commit; set {VARIABLE} to it")
            })?;
            String::from_utf8(text)?
        }
    };
    match text.trim().parse() {
        Ok(time_s) => Ok(time_s),
        Err(_) => bail!("{VARIABLE}: found {text:?}, expected seconds since 1970"),
    }
}

fn read(dir: &Path, name: &str) -> Result<Vec<u8>> {
    let path = dir.join(name);
    fs::read(&path).with_context(|| {
        format!("cannot read {}; `cargo xtask dist` writes target/dist", path.display())
    })
}

/// Files of a directory by name, sorted.
fn read_dir(dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let entries = fs::read_dir(dir).with_context(|| {
        format!("cannot list {}; `cargo xtask dist` writes target/dist", dir.display())
    })?;
    let mut files = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_str().context("a file name is not UTF-8")?.to_owned();
        let bytes = read(dir, &name)?;
        files.push((name, bytes));
    }
    files.sort_unstable();
    ensure!(!files.is_empty(), "{} is empty; run `cargo xtask dist`", dir.display());
    Ok(files)
}
