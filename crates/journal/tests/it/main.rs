//! The crate from outside.

mod backlog;
mod basics;
mod checks;
mod dying;
mod faults;
mod flips;
mod found;
mod fuzzed;
mod golden;
mod jlog;
mod kill;
mod layout;
mod model;
#[path = "../../../hist/tests/it/page.rs"]
mod page;
mod panics;
mod power;
mod power_loop;
mod processes;
mod races;
mod syscalls;
mod world;

type Play = fn(processes::Part);

/// What children of this binary can play: `processes::Child::start`.
const PARTS: &[(&str, Play)] = &[
    ("writer", kill::writer),
    ("reader", kill::reader),
    ("opener", kill::opener),
    ("power writer", power_loop::writer),
    ("power idle", power_loop::idle),
    ("filler", power_loop::filler),
    ("halting", jlog::halting),
    ("bystander", jlog::bystander),
    ("heap", backlog::heap),
    ("servant", races::servant),
    ("counted", syscalls::counted),
];
