//! The checks that the targets run. They live with the tests of the crates, which repeat them on every
//! input that once broke something (`testdata/fuzz/`), so that none of that takes a fuzzer.
#![forbid(unsafe_code)]

#[path = "../../crates/hist/tests/it/big.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod big;
#[path = "../../crates/hist/tests/it/checks/mod.rs"]
mod checks;
#[path = "../../crates/collect/tests/it/checks.rs"]
mod collect_checks;
#[path = "../../crates/journal/tests/it/checks.rs"]
mod journal_checks;
#[path = "../../crates/load/tests/it/checks.rs"]
mod load_checks;
#[path = "../../crates/hist/tests/it/model.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod model;
#[path = "../../crates/query/tests/it/checks.rs"]
mod query_checks;
#[path = "../../crates/shm/tests/it/checks.rs"]
mod shm_checks;
#[path = "../../crates/store/tests/it/checks.rs"]
mod store_checks;
#[path = "../../crates/hist/tests/it/truth.rs"]
mod truth;

/// Runs the check of a target on one input. Panics where something broke.
pub fn check(target: &str, bytes: &[u8]) {
    let mut all = checks::CHECKS
        .iter()
        .chain(&collect_checks::CHECKS)
        .chain(&journal_checks::CHECKS)
        .chain(&load_checks::CHECKS)
        .chain(&query_checks::CHECKS)
        .chain(&shm_checks::CHECKS)
        .chain(&store_checks::CHECKS);
    let found = all.find(|(name, _)| *name == target);
    let (_, check) = found.unwrap_or_else(|| panic!("no check is named {target}"));
    check(bytes);
}
