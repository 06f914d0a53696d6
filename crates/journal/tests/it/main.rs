//! The crate from outside.

mod basics;
mod checks;
mod faults;
mod flips;
mod found;
mod fuzzed;
mod golden;
mod kill;
mod layout;
mod model;
mod power;
mod processes;
mod races;
mod world;

/// What children of this binary can play: `processes::Child::start`.
const PARTS: &[(&str, fn(processes::Part))] = &[
    ("writer", kill::writer),
    ("reader", kill::reader),
    ("opener", kill::opener),
    ("servant", races::servant),
];
