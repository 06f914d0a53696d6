//! Integration tests of `collect`: fuzz regressions and seeds; decoding costs.

mod checks;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
