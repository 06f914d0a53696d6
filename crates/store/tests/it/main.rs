//! Tests of the crate's interface.

mod basics;
mod bit_flips;
mod checks;
mod deletion;
mod disk_full;
#[path = "../../../journal/tests/it/dying_process.rs"]
mod dying_process;
mod exemplars;
mod fixture;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod golden;
mod increases;
mod layout;
mod lifecycle;
mod limit;
mod memory;
mod memory_storage;
mod model;
mod number_rows;
#[path = "../../../hist/tests/it/page.rs"]
mod page;
mod panics;
mod points;
mod power_loss;
#[path = "../../../journal/tests/it/processes.rs"]
#[allow(dead_code, reason = "the journal's tests use more of it")]
mod processes;
mod producers;
mod rules;
mod sigkill;
mod snapshots;
mod trace_merges;
mod traces;
mod windows;

type ChildMain = fn(processes::ChildArguments);

/// Roles that child processes of this binary can run: `processes::ChildProcess::start`.
const PARTS: &[(&str, ChildMain)] = &[("store writer", sigkill::writer)];
