//! The crate from outside.

mod basics;
mod checks;
mod fuzzed;
mod golden;
mod kill;
mod layout;
mod processes;
mod races;
mod syscalls;

/// What children of this binary can play: `processes::Child::start`.
const PARTS: &[(&str, fn(processes::Part))] = &[
    ("writer", kill::writer),
    ("reader", kill::reader),
    ("opener", kill::opener),
    ("servant", races::servant),
    ("counted", syscalls::counted),
];
