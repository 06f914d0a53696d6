//! The check of one target on what the fuzzer makes up. `TOPDECK_FUZZ_TARGET` names it.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: { topdeck_fuzz::selected_check(); },
    |bytes: &[u8]| topdeck_fuzz::selected_check()(bytes)
);
