//! See the check of the same name in `crates/hist/tests/it/checks/`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| topdeck_fuzz::check("accumulator", bytes));
