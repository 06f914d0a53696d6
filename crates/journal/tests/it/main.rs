//! The crate from outside.

mod basics;
mod kill;
mod processes;
mod races;

/// What children of this binary can play: `processes::Child::start`.
const PARTS: &[(&str, fn(processes::Part))] = &[
    ("writer", kill::writer),
    ("reader", kill::reader),
    ("opener", kill::opener),
    ("servant", races::servant),
];
