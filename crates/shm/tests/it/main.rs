//! One binary for all of the crate's integration tests.

mod checks;
mod fuzzed;
mod golden;
mod hostile;
mod jvm;
mod layout;
mod processes;
mod recording;
mod table;
