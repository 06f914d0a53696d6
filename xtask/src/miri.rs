//! The Miri part: tests named `miri_`, in an interpreter that sees undefined behaviour and races.

use anyhow::Result;

use crate::ci_part::PartOutcome;
use crate::command_line::CommandLine;
use crate::libtest::run_cargo_test;
use crate::part_log::PartLog;
use crate::passed_tests::run_unless_unchanged;
use crate::prefix_check::check_all_ran_with_prefix;

/// The crates whose threads share memory.
const CRATES: [&str; 5] = ["hist", "disk", "sim", "shm", "journal"];

/// Installs nightly and Miri if they are missing, and skips the part where that is not possible.
pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    if let Err(reason) = prepare(log) {
        return Ok(PartOutcome::Skipped(format!("{reason:#}")));
    }
    // All that these crates use is in layers 0 and 1.
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
    // One selection of packages, so that what they share is built once.
    let packages: Vec<String> = CRATES.map(|name| format!("-p topdeck-{name}")).into();
    let packages = packages.join(" ");
    let test =
        format!("cargo +nightly miri test {packages} --locked --no-fail-fast --lib -- miri_");
    run_cargo_test(log, &CommandLine::new(&test), "cargo xtask ci miri").map(PartOutcome::Tests)
}

fn prepare(log: &PartLog) -> Result<()> {
    if !is_installed() {
        let install = "rustup toolchain install nightly --profile minimal";
        CommandLine::new(&format!("{install} --component miri,rust-src")).run(log)?;
    }
    // Builds Miri's own std once, which may have to fetch: a reason to skip, not to fail.
    CommandLine::new("cargo +nightly miri setup").run(log)
}

/// Asking neither installs nor updates anything, whatever RUSTUP_AUTO_INSTALL says.
fn is_installed() -> bool {
    let list = CommandLine::new("rustup component list --toolchain nightly --installed");
    let names = list.stdout().unwrap_or_default();
    let names = String::from_utf8_lossy(&names);
    // A line is `rust-src` or `miri-x86_64-unknown-linux-gnu`.
    ["miri", "rust-src"].iter().all(|name| names.lines().any(|line| line.starts_with(name)))
}
