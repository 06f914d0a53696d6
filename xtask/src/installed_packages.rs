//! The part `packages`: packages of one program are installed in bare Debian roots, used, upgraded,
//! downgraded and removed. `xtask/packages.sh` has the tests; it requires root and mmdebstrap.
//!
//! The program is that of `make dist` for x86-64 if it was built, else the one that `make run`
//! builds; `TOPDECK_BIN=PATH` packages another one. What needs a static program is skipped for one
//! that is linked to a C library.

mod bundled;
mod kubernetes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::ci_part::PartOutcome;
use crate::clients::TempDir;
use crate::command_line::{CommandLine, root, target};
use crate::dist::{DistProgram, ProgramStarter};
use crate::packages;
use crate::part_log::PartLog;
use crate::suite;
use crate::test_report::{SkippedTest, TestEnd, TestReport};

const TRIPLE: &str = "x86_64-unknown-linux-musl";
const REPEAT: &str = "make system PART=packages";

/// A check that runs without root; it returns the reason if it cannot run.
type UnprivilegedCheck = fn(&PartLog, &Path) -> Result<Option<String>>;

const CHECKS: [(&str, UnprivilegedCheck); 2] = [
    ("kubernetes: manifests and chart", kubernetes::check),
    ("sbom: packages in the page", bundled::check),
];

pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    let dir = TempDir::new("packages")?;
    let mut report = TestReport::default();
    for (name, check) in CHECKS {
        let began = Instant::now();
        let (end, output) = match check(log, &dir.0) {
            Ok(None) => (TestEnd::Passed, String::new()),
            Ok(Some(reason)) => (TestEnd::Passed, format!("skipped: {reason}")),
            Err(error) => (TestEnd::Failed { repeat: REPEAT.to_owned() }, format!("{error:#}")),
        };
        log.note(&format!("{name}: {}", if output.is_empty() { "passed" } else { &output }));
        report.add_test(name, end, began.elapsed().as_secs_f64(), &output);
    }
    match missing_tool() {
        Some(reason) => {
            let name = "packages in bare roots".to_owned();
            report.skipped.push(SkippedTest { name, reason });
        }
        None => report.add(install(log, &dir.0)?),
    }
    Ok(PartOutcome::Tests(report))
}

/// Makes packages of two releases and runs `packages.sh`.
fn install(log: &PartLog, dir: &Path) -> Result<TestReport> {
    let from = dir.join("dist");
    provide_input(&program(log)?, &from)?;
    let outs = [dir.join("first"), dir.join("next")];
    for (out, release) in outs.iter().zip(1..) {
        packages::make(&from, out, release, &dir.join("key/signing.pem"))?;
    }
    let mut line = CommandLine::new("sh xtask/packages.sh");
    // The bare root is kept in the build directory.
    let work = target().join("packages-work");
    for path in outs.iter().chain([&work]) {
        line = line.arg(path_text(path)?);
    }
    let mut lines = Vec::new();
    let status = line.run_reading(log, |text| {
        lines.push(text.trim_end().to_owned());
        true
    })?;
    line.check(status)?;
    let report = read_report(&lines);
    ensure!(report.count() > 0, "`{line}` ran no test");
    Ok(report)
}

fn missing_tool() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("it installs packages for x86-64".to_owned());
    }
    if !CommandLine::new("sh -c").arg("[ $(id -u) = 0 ]").succeeds() {
        return Some("it makes roots and namespaces: run it as root".to_owned());
    }
    let tools = [("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux"), ("ip", "iproute2")];
    let is_missing = |(tool, _): &&(&str, &str)| {
        !CommandLine::new("sh -c").arg(&format!("command -v {tool}")).succeeds()
    };
    let (tool, package) = tools.iter().find(is_missing)?;
    Some(format!("{tool} is not installed (Debian package {package})"))
}

/// The program that is packaged.
fn program(log: &PartLog) -> Result<PathBuf> {
    let named = std::env::var_os("TOPDECK_BIN").map(PathBuf::from);
    let built = root().join("target/dist").join(TRIPLE).join("topdeck");
    match named.or_else(|| built.exists().then_some(built)) {
        Some(path) => Ok(path),
        None => suite::build_topdeck(log),
    }
}

/// Writes what `cargo xtask dist` leaves, with `program`.
fn provide_input(program: &Path, dir: &Path) -> Result<()> {
    let (target, completions) = (dir.join(TRIPLE), dir.join("completions"));
    for dir in [&target, &completions] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::copy(program, target.join("topdeck"))
        .with_context(|| format!("cannot copy {}", program.display()))?;
    let program = DistProgram { path: program, starter: ProgramStarter::Directly };
    program.stdout(&["man", path_text(&dir.join("man"))?])?;
    for (shell, name) in packages::COMPLETION_SHELLS.iter().zip(packages::COMPLETIONS) {
        fs::write(completions.join(name), program.stdout(&["completions", shell])?)?;
    }
    Ok(())
}

/// Tests of `packages.sh`: `passed NAME: SECONDS s`, `failed …` with the output below, or
/// `skipped NAME: REASON`.
fn read_report(lines: &[String]) -> TestReport {
    let mut report = TestReport::default();
    let is_head = |line: &String| {
        ["passed ", "failed ", "skipped "].iter().any(|word| line.starts_with(word))
    };
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| is_head(line)) {
        let (outcome, rest) = line.split_once(' ').expect("BUG: the line has a word");
        let (name, detail) = rest.rsplit_once(": ").unwrap_or((rest, ""));
        let seconds = detail.strip_suffix(" s").and_then(|text| text.parse().ok());
        let output: Vec<&str> = lines[index + 1..]
            .iter()
            .take_while(|line| !is_head(line))
            .map(String::as_str)
            .collect();
        let (end, output) = match outcome {
            "failed" => (TestEnd::Failed { repeat: REPEAT.to_owned() }, output.join("\n")),
            "skipped" => (TestEnd::Passed, format!("skipped: {detail}")),
            _ => (TestEnd::Passed, String::new()),
        };
        report.add_test(name, end, seconds.unwrap_or_default(), &output);
    }
    report
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_script_are_a_report() {
        let lines = ["passed a: b: 3 s", "failed c: 12 s", "cause", "skipped d: no rpm"];
        let report = read_report(&lines.map(str::to_owned));
        assert_eq!((report.passed, report.failed.len(), report.skipped.len()), (1, 1, 1));
        assert_eq!((report.tests[0].name.as_str(), report.tests[1].seconds), ("a: b", 12.0));
        assert_eq!(report.failed[0].output, "cause");
        assert_eq!(report.skipped[0].reason, "no rpm");
    }
}
