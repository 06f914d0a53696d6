//! Conformance: compares answers of topdeck with those of Prometheus.
//!
//! bench/peers/prometheus pins the version of the Prometheus module. The test scripts come from
//! that module, and the program is built from it once, in the directory where the benchmark expects
//! it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, root};
use crate::part_log::PartLog;
use crate::suite;

const MODULE: &str = "github.com/prometheus/prometheus";
/// Directory of a Go module that requires the reference version.
const PEER: &str = "bench/peers/prometheus";
const BUILD_DIR: &str = "bench/target/journal-peers/prometheus";
/// Path of a Prometheus to use instead of the built one.
const PROGRAM_VARIABLE: &str = "TOPDECK_PROMETHEUS";
/// Start of the names of the tests that compare results: one in crate `query`, two in
/// `topdeck`.
const COMPARISONS: &str = "prometheus_gives_equal_results";
const SCRIPTS_VARIABLE: &str = "TOPDECK_PROMQLTEST";

/// Runs the test scripts of Prometheus.
pub(crate) fn run_scripts(log: &PartLog) -> Result<PartOutcome> {
    let module = match fetch_module(log) {
        Ok(module) => module,
        Err(reason) => return Ok(PartOutcome::Skipped(format!("{reason:#}"))),
    };
    let dir = module.join("promql/promqltest/testdata");
    test(log, "prometheus_scripts", SCRIPTS_VARIABLE, &dir)
}

/// Compares answers with a Prometheus, if one is available: those of the query engine, and those of
/// a server that received the same requests.
pub(crate) fn compare_with_prometheus(log: &PartLog) -> Result<PartOutcome> {
    let program = program_path()?;
    if !program.exists() {
        let reason = "Prometheus is not built; run `make system PART=prometheus`";
        return Ok(PartOutcome::Skipped(reason.to_owned()));
    }
    let report = suite::run_ignored(log, COMPARISONS, &[(PROGRAM_VARIABLE, text(&program)?)])?;
    ensure!(report.count() == 3, "{} tests are named {COMPARISONS}, not 3", report.count());
    Ok(PartOutcome::Tests(report))
}

/// Compares answers with a Prometheus, built if needed.
pub(crate) fn build_and_compare(log: &PartLog) -> Result<PartOutcome> {
    let program = program_path()?;
    if !program.exists() {
        if let Err(reason) = fetch_module(log) {
            return Ok(PartOutcome::Skipped(format!("{reason:#}")));
        }
        log.note("building Prometheus, once; this takes minutes");
        fs::create_dir_all(root().join(BUILD_DIR))?;
        let made = program.with_extension("made");
        let made_text = made.to_str().context("the path of the repository is not UTF-8")?;
        let build = format!("go -C {PEER} build -mod=readonly -o");
        CommandLine::new(&build)
            .arg(made_text)
            .arg(&format!("{MODULE}/cmd/prometheus"))
            .run(log)?;
        fs::rename(&made, &program)?;
    }
    compare_with_prometheus(log)
}

fn test(log: &PartLog, name: &str, variable: &'static str, path: &Path) -> Result<PartOutcome> {
    Ok(PartOutcome::Tests(suite::run_ignored(log, name, &[(variable, text(path)?)])?))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Directory with the sources of Prometheus, downloaded if needed. An error is a reason to skip.
fn fetch_module(log: &PartLog) -> Result<PathBuf> {
    ensure!(
        CommandLine::new("go version").succeeds(),
        "cannot download the Prometheus module: Go is not installed (Debian package golang-go)"
    );
    let fetch = CommandLine::new(&format!("go -C {PEER} mod download {MODULE}"));
    fetch.run(log).context("cannot download the Prometheus module")?;
    let dir =
        CommandLine::new(&format!("go -C {PEER} list -m -f {{{{.Dir}}}} {MODULE}")).stdout()?;
    Ok(PathBuf::from(String::from_utf8(dir)?.trim()))
}

/// Path of the program, built or not.
pub(crate) fn program_path() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        let program = PathBuf::from(program);
        ensure!(
            program.exists(),
            "{PROGRAM_VARIABLE} is not the path of a program: {}",
            program.display()
        );
        return Ok(program);
    }
    let manifest = fs::read_to_string(root().join(PEER).join("go.mod"))?;
    let version = version(&manifest).with_context(|| {
        format!(
            "{PEER}/go.mod does not require \
                                                              {MODULE}"
        )
    })?;
    Ok(root().join(BUILD_DIR).join(format!("prometheus-{version}")))
}

/// Version of the Prometheus module that a go.mod requires.
fn version(manifest: &str) -> Option<&str> {
    let lines = manifest.lines().map(|line| line.trim().trim_start_matches("require "));
    lines.filter_map(|line| line.strip_prefix(MODULE)?.strip_prefix(' ')).next()?.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_found() {
        let one = "module a\n\nrequire github.com/prometheus/prometheus v0.315.0\n";
        assert_eq!(version(one), Some("v0.315.0"));
        let many = "require (\n\tgithub.com/prometheus/prometheus/x \
                    v1\n\tgithub.com/prometheus/prometheus v0.9.1 // why\n)\n";
        assert_eq!(version(many), Some("v0.9.1"));
        assert_eq!(version("module a\n"), None);
    }
}
