//! One binary for all of the crate's integration tests.
#![forbid(unsafe_code)]

mod checks;
mod fuzzed;
mod table;
