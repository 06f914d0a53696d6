//! Integration tests of the message parsers.

mod checks;
mod fuzz_regressions;
mod round_trip;
