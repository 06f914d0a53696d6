//! The crate from outside.

mod basics;
mod checks;
mod fuzzed;
mod golden;
mod layout;
