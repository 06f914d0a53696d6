//! Integration tests of the message parsers.

mod checks;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod round_trip;
#[allow(dead_code, reason = "the first observer uses it")]
mod session;
