//! See the check of the same name in `crates/load/tests/it/checks.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| topdeck_fuzz::check("load_codec", bytes));
