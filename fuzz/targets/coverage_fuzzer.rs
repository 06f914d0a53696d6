//! Runs the check of the target named by `TOPDECK_FUZZ_TARGET` on the fuzzer's input.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: { topdeck_fuzz::selected_check(); },
    |bytes: &[u8]| topdeck_fuzz::selected_check()(bytes)
);
