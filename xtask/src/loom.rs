//! The loom part: explores thread interleavings of lock-free code, up to a preemption bound.

use anyhow::{Context as _, Result};

use crate::ci_part::{ON_IDLE_CPU, PartOutcome};
use crate::command_line::CommandLine;
use crate::libtest::run_cargo_test;
use crate::part_log::PartLog;
use crate::passed_tests::run_unless_unchanged;
use crate::prefix_check::check_all_ran_with_prefix;

/// The workspace that includes the lock-free files of all crates. A release build would only
/// compile longer. Other parts wait for the build of the workspace that runs beside it.
const MODELS: &str = "cargo test --manifest-path loom/Cargo.toml --locked \
                      --no-fail-fast --target-dir loom/target loom_";

/// The models, and the crates whose files they include.
const SOURCES: [&str; 5] =
    ["loom/", "crates/hist/", "crates/clock/", "crates/shm/", "crates/journal/"];

/// `preemptions`: maximum preemptions per execution; `None` is unbounded.
pub(crate) fn run(log: &PartLog, preemptions: Option<u32>) -> Result<PartOutcome> {
    let line = CommandLine::new(&format!("{ON_IDLE_CPU} {MODELS}"));
    let outcome = match preemptions {
        Some(count) => {
            let line = line.env("LOOM_MAX_PREEMPTIONS", &count.to_string());
            let explore =
                || run_cargo_test(log, &line, "cargo xtask ci loom").map(PartOutcome::Tests);
            run_unless_unchanged(log, &SOURCES, &[], explore)?
        }
        None => {
            let line = line.unset("LOOM_MAX_PREEMPTIONS");
            PartOutcome::Tests(run_cargo_test(log, &line, "cargo xtask soak loom")?)
        }
    };
    // The models of a file that loom/ does not include are never compiled, and nothing else reports
    // that.
    check_all_ran_with_prefix(&outcome, "loom_")
        .context("does loom/tests/ include the file of each model?")?;
    Ok(outcome)
}
