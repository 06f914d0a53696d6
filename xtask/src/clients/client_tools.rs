//! Tools of the part besides topdeck: the clients, built once in target/clients.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::command_line::{CommandLine, root, target};
use crate::conformance;
use crate::part_log::PartLog;

const GO: &str = "testdata/clients/go";
const REQUIREMENTS: &str = "testdata/clients/python/requirements.txt";
const NODE: &str = "testdata/clients/node";
const NODE_FILES: [&str; 3] = ["package.json", "package-lock.json", "send.mjs"];

/// Available programs, and the reasons why others are missing.
pub(super) struct ClientTools {
    pub(super) go: Option<PathBuf>,
    /// The interpreter of a virtual environment with the packages.
    pub(super) python: Option<PathBuf>,
    /// The script, beside its packages.
    pub(super) node: Option<PathBuf>,
    pub(super) prometheus: Option<PathBuf>,
    pub(super) missing: Vec<String>,
}

/// A program, or the reason why it is not available on this machine. A compile error or an invalid
/// lock file is an error of the part instead.
type ProvidedTool = std::result::Result<PathBuf, String>;

impl ClientTools {
    pub(super) fn provide(log: &PartLog) -> Result<ClientTools> {
        let dir = target().join("clients");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut missing = Vec::new();
        let mut or_missing =
            |provided: ProvidedTool| provided.map_err(|reason| missing.push(reason)).ok();
        let go = or_missing(go(log, &dir)?);
        let python = or_missing(python(log, &dir)?);
        let node = or_missing(node(log, &dir)?);
        let prometheus = or_missing(prometheus().map_err(|reason| format!("{reason:#}")));
        Ok(ClientTools { go, python, node, prometheus, missing })
    }
}

fn go(log: &PartLog, dir: &Path) -> Result<ProvidedTool> {
    if !CommandLine::new("go version").succeeds() {
        let reason = "the clients in Go: Go is not installed (Debian package golang-go)";
        return Ok(Err(reason.to_owned()));
    }
    let fetch = CommandLine::new(&format!("go -C {GO} mod download"));
    if let Some(reason) = fetch.fetch(log)? {
        return Ok(Err(format!("the clients in Go: cannot download modules: {reason}")));
    }
    let program = dir.join("clients-go");
    let build = format!("go -C {GO} build -mod=readonly -o");
    CommandLine::new(&build).arg(text(&program)?).arg(".").run(log)?;
    Ok(Ok(program))
}

/// Packages are reinstalled when the list of packages changes.
fn python(log: &PartLog, dir: &Path) -> Result<ProvidedTool> {
    let (home, list) = (dir.join("python"), dir.join("python/installed.txt"));
    let program = home.join("bin/python");
    let wanted = fs::read_to_string(root().join(REQUIREMENTS))?;
    if fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
        return Ok(Ok(program));
    }
    // Debian packages Python without the module `venv`.
    let make = CommandLine::new("python3 -m venv --clear").arg(text(&home)?);
    if !CommandLine::new("python3 -c").arg("import ensurepip, venv").succeeds() {
        let reason = "the clients in Python: Python or its venv is not installed (Debian package \
                      python3-venv)";
        return Ok(Err(reason.to_owned()));
    }
    make.run(log)?;
    let install = CommandLine::from_path(&program).arg("-m").arg("pip").arg("install");
    let install = install.arg("--quiet").arg("--no-deps").arg("--requirement").arg(REQUIREMENTS);
    if let Some(reason) = install.fetch(log)? {
        return Ok(Err(format!("the clients in Python: cannot download packages: {reason}")));
    }
    fs::write(&list, wanted)?;
    Ok(Ok(program))
}

/// Packages are installed anew when the lock file changes.
fn node(log: &PartLog, dir: &Path) -> Result<ProvidedTool> {
    if !CommandLine::new("npm --version").succeeds() {
        let reason = "the client in Node: npm is not installed (Debian package npm)";
        return Ok(Err(reason.to_owned()));
    }
    let (home, list) = (dir.join("node"), dir.join("node/installed.json"));
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    for name in NODE_FILES {
        let from = root().join(NODE).join(name);
        fs::copy(&from, home.join(name))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let script = home.join("send.mjs");
    let wanted = fs::read_to_string(home.join("package-lock.json"))?;
    if fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
        return Ok(Ok(script));
    }
    let install = CommandLine::new("npm ci --ignore-scripts --no-audit --no-fund --prefix");
    if let Some(reason) = install.arg(text(&home)?).fetch(log)? {
        return Ok(Err(format!("the client in Node: cannot download packages: {reason}")));
    }
    fs::write(&list, wanted)?;
    Ok(Ok(script))
}

fn prometheus() -> Result<PathBuf> {
    let program = conformance::program_path()?;
    ensure!(program.exists(), "Prometheus is not built; run `make system PART=prometheus`");
    Ok(program)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
