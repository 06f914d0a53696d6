//! The part `aarch64` of `make system`: the static binary for that processor and the core's tests,
//! under qemu's emulator of programs (qemu-user) or on the processor itself.
//!
//! qemu-user passes system calls on to the kernel that is there. Not tested by this part, and why:
//!
//! * BPF, and with it block I/O and waits for a processor: qemu-user does not pass `bpf` and
//!   `perf_event_open` on.
//! * `shm` and `host`: they read other processes in /proc, which shows the emulator's memory in
//!   place of theirs.
//! * Journals of several processes: the mutex whose owner may die is given up by the kernel
//!   (`set_robust_list`), which qemu-user does not pass on.
//! * The processor's counter as a clock: the emulator makes `CNTVCT_EL0` out of the host's clock,
//!   which says nothing of a processor's. The clock's arithmetic is tested.

use anyhow::Result;

use crate::dist::{Program, Starter, Target, check};
use crate::libtest::run_cargo_test;
use crate::line::{Line, target as builds};
use crate::log::Log;
use crate::part::Outcome;

const TRIPLE: &str = "aarch64-unknown-linux-musl";

/// Crates whose tests run there.
const CORE: &str = "-p topdeck-hist -p topdeck-model -p topdeck-clock \
    -p topdeck-disk -p topdeck-journal -p topdeck-store";

/// Tests that fail under the emulator and say nothing of the code: see above.
const NOT_UNDER_QEMU: [&str; 0] = [];

pub(crate) fn run(log: &Log) -> Result<Outcome> {
    let target = Target::named(TRIPLE).expect("BUG: it is built by dist");
    let starter = match target.starter() {
        Ok(starter) => starter,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    // No network is no fault of ours.
    let tools = match target.provide(log) {
        Ok(tools) => tools,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let tests =
        format!("cargo test --locked --no-fail-fast --target {TRIPLE} --lib --tests {CORE} --");
    let mut tests = tools.on(Line::new(&tests), target)?;
    if let Starter::By(emulator) = starter {
        tests = tests.env(target.runner, emulator);
        for name in NOT_UNDER_QEMU {
            tests = tests.word("--skip").word(name);
        }
    }
    let result = run_cargo_test(log, &tests, "make system PART=aarch64");
    // One failure hides no other.
    let build = format!("cargo build --locked --target {TRIPLE} -p topdeck");
    tools.on(Line::new(&build), target)?.run(log)?;
    let path = builds().join(TRIPLE).join("debug/topdeck");
    check(&Program { path: &path, starter }, &builds().join("aarch64-check"), false)?;
    Ok(Outcome::Tests(result?))
}
