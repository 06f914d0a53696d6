//! The crate from outside.

mod basics;
mod checks;
mod found;
mod fuzzed;
mod golden;
mod layout;
mod model;
mod world;
