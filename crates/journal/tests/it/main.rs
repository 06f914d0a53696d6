//! Tests of the crate's interface.

mod backlog;
mod basics;
mod bit_flips;
mod checks;
mod dying_process;
mod faults;
mod fixture;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod golden;
mod jlog_regressions;
mod layout;
mod model;
#[path = "../../../hist/tests/it/page.rs"]
mod page;
mod panics;
mod power_loss;
mod power_loss_soak;
mod processes;
mod races;
mod regressions;
mod sigkill;
mod syscalls;

type ChildMain = fn(processes::ChildArguments);

/// Roles that child processes of this binary can run: `processes::ChildProcess::start`.
const PARTS: &[(&str, ChildMain)] = &[
    ("writer", sigkill::writer),
    ("reader", sigkill::reader),
    ("opener", sigkill::opener),
    ("power writer", power_loss_soak::writer),
    ("power idle", power_loss_soak::idle),
    ("filler", power_loss_soak::filler),
    ("halting", jlog_regressions::halting_writer),
    ("bystander", jlog_regressions::bystander_writer),
    ("heap", backlog::heap),
    ("servant", races::server),
    ("counted", syscalls::counted_appender),
];
