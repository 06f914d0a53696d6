//! Integration tests of `collect`: what fuzzing found, and the seeds it begins with; what decoding
//! costs.

mod checks;
mod fuzz_regressions;
