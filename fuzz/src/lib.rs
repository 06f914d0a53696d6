//! The checks that the targets run. They live with the tests of `hist`, which repeat them on every input
//! that once broke something (`testdata/fuzz/`), so that none of that takes a fuzzer.
#![forbid(unsafe_code)]

#[path = "../../crates/hist/tests/it/big.rs"]
#[allow(dead_code)]
mod big;
#[path = "../../crates/hist/tests/it/checks/mod.rs"]
mod checks;
#[path = "../../crates/hist/tests/it/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../../crates/hist/tests/it/truth.rs"]
mod truth;

/// Runs the check of a target on one input. Panics where something broke.
pub fn check(target: &str, bytes: &[u8]) {
    let found = checks::CHECKS.iter().find(|(name, _)| *name == target);
    let (_, check) = found.unwrap_or_else(|| panic!("no check is named {target}"));
    check(bytes);
}
