//! Integration tests of crashes.

mod checks;
mod core_files;
mod crash_texts;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod sample_core;
