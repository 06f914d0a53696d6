//! The Miri part: runs tests named `miri_` in an interpreter that detects undefined behaviour and
//! data races.

use anyhow::Result;

use crate::ci_part::{ON_IDLE_CPU, PartOutcome};
use crate::command_line::CommandLine;
use crate::libtest::run_cargo_test;
use crate::part_log::PartLog;
use crate::passed_tests::run_unless_unchanged;
use crate::prefix_check::check_all_ran_with_prefix;

/// Crates whose threads share memory.
const CRATES: [&str; 5] = ["hist", "disk", "sim", "shm", "journal"];

/// Installs nightly and Miri if they are missing; skips the part if that fails.
pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    if let Err(reason) = prepare(log) {
        return Ok(PartOutcome::Skipped(format!("{reason:#}")));
    }
    // These crates depend on layers 0 and 1 only.
    let sources = [
        "crates/hist/",
        "crates/disk/",
        "crates/sim/",
        "crates/clock/",
        "crates/shm/",
        "crates/journal/",
    ];
    let outcome = run_unless_unchanged(log, &sources, &[], || interpret(log))?;
    check_all_ran_with_prefix(&outcome, "miri_")?;
    Ok(outcome)
}

fn interpret(log: &PartLog) -> Result<PartOutcome> {
    // One selection of packages, so that shared dependencies are built once.
    let packages: Vec<String> = CRATES.map(|name| format!("-p topdeck-{name}")).into();
    let packages = packages.join(" ");
    // Other parts wait for the build that runs beside it.
    let test = format!(
        "{ON_IDLE_CPU} cargo +nightly miri test {packages} --locked --no-fail-fast --lib -- miri_"
    );
    run_cargo_test(log, &CommandLine::new(&test), "cargo xtask ci miri").map(PartOutcome::Tests)
}

fn prepare(log: &PartLog) -> Result<()> {
    if !is_installed() {
        let install = "rustup toolchain install nightly --profile minimal";
        CommandLine::new(&format!("{install} --component miri,rust-src")).run(log)?;
    }
    // Builds the standard library of Miri once. A missing network is a reason to skip the part.
    CommandLine::new("cargo +nightly miri setup").run(log)
}

/// A query: it installs and updates nothing, whatever RUSTUP_AUTO_INSTALL is.
fn is_installed() -> bool {
    let list = CommandLine::new("rustup component list --toolchain nightly --installed");
    let names = list.stdout().unwrap_or_default();
    let names = String::from_utf8_lossy(&names);
    // A line is `rust-src` or `miri-x86_64-unknown-linux-gnu`.
    ["miri", "rust-src"].iter().all(|name| names.lines().any(|line| line.starts_with(name)))
}
