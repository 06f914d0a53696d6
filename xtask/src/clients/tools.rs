//! What the part needs beside topdeck: the clients, built once and kept under target/clients.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::conformance;
use crate::line::{Line, root, target};
use crate::log::Log;

const GO: &str = "testdata/clients/go";
const REQUIREMENTS: &str = "testdata/clients/python/requirements.txt";

/// Programs that are there, and why others are not.
pub(super) struct Tools {
    pub(super) go: Option<PathBuf>,
    /// Of an environment that has the packages.
    pub(super) python: Option<PathBuf>,
    pub(super) prometheus: Option<PathBuf>,
    pub(super) missing: Vec<String>,
}

impl Tools {
    pub(super) fn provide(log: &Log) -> Result<Tools> {
        let folder = target().join("clients");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut missing = Vec::new();
        let mut or_missing = |found: Result<PathBuf>| {
            found.map_err(|reason| missing.push(format!("{reason:#}"))).ok()
        };
        // Fetching may fail for want of a network, which is no fault of ours; that the program does not compile is.
        let go = match or_missing(go_modules(log).map(|()| folder.join("clients-go"))) {
            Some(program) => {
                let build = format!("go -C {GO} build -mod=readonly -o");
                Line::new(&build).word(text(&program)?).word(".").run(log)?;
                Some(program)
            }
            None => None,
        };
        let python = or_missing(python(log, &folder));
        let prometheus = or_missing(prometheus());
        Ok(Tools { go, python, prometheus, missing })
    }
}

fn go_modules(log: &Log) -> Result<()> {
    ensure!(
        Line::new("go version").succeeds(),
        "the clients in Go: Go is not installed (Debian package golang-go)"
    );
    let fetch = Line::new(&format!("go -C {GO} mod download"));
    fetch.run(log).context("the clients in Go: their modules cannot be fetched")
}

/// The packages are installed anew when their list is another one.
fn python(log: &Log, folder: &Path) -> Result<PathBuf> {
    ensure!(
        Line::new("python3 --version").succeeds(),
        "the clients in Python: Python is not installed (Debian package python3)"
    );
    let (home, list) = (folder.join("python"), folder.join("python/installed.txt"));
    let program = home.join("bin/python");
    let wanted = fs::read_to_string(root().join(REQUIREMENTS))?;
    if fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
        return Ok(program);
    }
    let make = Line::new("python3 -m venv --clear").word(text(&home)?);
    make.run(log).context(
        "the clients in Python: no environment can be made (Debian package python3-venv)",
    )?;
    let install = Line::new(text(&program)?).word("-m").word("pip").word("install");
    let install =
        install.word("--quiet").word("--no-deps").word("--requirement").word(REQUIREMENTS);
    install.run(log).context("the clients in Python: their packages cannot be installed")?;
    fs::write(&list, wanted)?;
    Ok(program)
}

fn prometheus() -> Result<PathBuf> {
    let program = conformance::program()?;
    ensure!(
        program.exists(),
        "Prometheus: it is not built; `make system PART=prometheus` does that"
    );
    Ok(program)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
