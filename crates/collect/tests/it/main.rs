//! Integration tests of `collect`: fuzz regressions and seeds; decoding costs.

mod checks;
mod fuzz_regressions;
