//! The store from outside.

mod basics;
mod checks;
mod copies;
mod deletion;
#[path = "../../../journal/tests/it/dying.rs"]
mod dying;
mod flips;
mod full;
mod fuzzed;
mod golden;
mod increases;
mod kill;
mod layout;
mod life;
mod limit;
mod memory;
mod model;
#[path = "../../../hist/tests/it/page.rs"]
mod page;
mod panics;
mod points;
mod power;
#[path = "../../../journal/tests/it/processes.rs"]
#[allow(dead_code, reason = "the journal's tests use more of it")]
mod processes;
mod rules;
mod world;

type Play = fn(processes::Part);

/// What children of this binary can play: `processes::Child::start`.
const PARTS: &[(&str, Play)] = &[("store writer", kill::writer)];
