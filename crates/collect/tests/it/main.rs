//! Integration tests of `collect`: what fuzzing found, and the seeds it begins with.

mod checks;
mod fuzzed;
