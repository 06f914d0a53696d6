//! The part `crash` of `make system`: crashes of real programs in C, C++ and Rust, handled by the
//! kernel's `core_pattern`, on a running server. The tests are those of the crate `topdeck`, which
//! leave the setting of the machine alone unless `TOPDECK_CRASH_TESTS` is set; they restore it.

use std::fs;

use anyhow::Result;

use crate::ci_part::PartOutcome;
use crate::command_line::CommandLine;
use crate::libtest::run_cargo_test;
use crate::part_log::PartLog;

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
const REPEAT: &str = "make system PART=crash";

pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    // Writing what it is changes nothing.
    let can_set = fs::read(CORE_PATTERN).and_then(|pattern| fs::write(CORE_PATTERN, pattern));
    if let Err(error) = can_set {
        let reason = format!("kernel.core_pattern cannot be set here, as root: {error}");
        return Ok(PartOutcome::Skipped(reason));
    }
    let tests = "cargo test --locked -p topdeck --test it -- serve::crash";
    let line = CommandLine::new(tests).env("TOPDECK_CRASH_TESTS", "1");
    Ok(PartOutcome::Tests(run_cargo_test(log, &line, REPEAT)?))
}
