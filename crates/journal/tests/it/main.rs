//! The crate from outside.

mod basics;
mod checks;
mod found;
mod fuzzed;
mod golden;
mod kill;
mod layout;
mod model;
mod power_loop;
mod processes;
mod races;
mod syscalls;
mod world;

/// What children of this binary can play: `processes::Child::start`.
const PARTS: &[(&str, fn(processes::Part))] = &[
    ("writer", kill::writer),
    ("reader", kill::reader),
    ("opener", kill::opener),
    ("power writer", power_loop::writer),
    ("power idle", power_loop::idle),
    ("filler", power_loop::filler),
    ("servant", races::servant),
    ("counted", syscalls::counted),
];
