//! The checks of all fuzz targets. They are part of the crates' tests, which also run them on every
//! past finding (`testdata/fuzz/`) without a fuzzer.
#![forbid(unsafe_code)]
#![allow(clippy::duplicate_mod, reason = "the checks of several crates include the same file")]

use std::sync::LazyLock;

#[path = "../../crates/alerts/tests/it/checks.rs"]
mod alerts_checks;
#[path = "../../crates/hist/tests/it/big.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod big;
#[path = "../../crates/hist/tests/it/checks/mod.rs"]
mod checks;
#[path = "../../crates/codecs/tests/it/checks/mod.rs"]
mod codecs_checks;
#[path = "../../crates/crash/tests/it/checks.rs"]
mod crash_checks;
#[path = "../../crates/decode/tests/it/checks.rs"]
mod decode_checks;
#[path = "../../crates/journal/tests/it/checks.rs"]
mod journal_checks;
#[path = "../../crates/load/tests/it/checks.rs"]
mod load_checks;
#[path = "../../crates/hist/tests/it/model.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod model;
#[path = "../../crates/notify/tests/it/checks.rs"]
mod notify_checks;
#[path = "../../crates/hist/tests/it/oracle.rs"]
mod oracle;
#[path = "../../crates/protocol/tests/it/checks.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod protocol_checks;
#[path = "../../crates/query/tests/it/checks.rs"]
mod query_checks;
#[path = "../../crates/rules/tests/it/checks.rs"]
mod rules_checks;
#[path = "../../crates/shm/tests/it/checks.rs"]
mod shm_checks;
#[path = "../../crates/store/tests/it/checks.rs"]
mod store_checks;
#[path = "../../crates/wire/tests/it/checks.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod wire_checks;

/// Checks one input. Panics on a failure.
pub type FuzzCheck = fn(&[u8]);

/// The check named by `TOPDECK_FUZZ_TARGET`. If that is `list`, prints all targets with their
/// crates and exits.
pub fn selected_check() -> FuzzCheck {
    static SELECTED: LazyLock<FuzzCheck> = LazyLock::new(select_check);
    *SELECTED
}

fn select_check() -> FuzzCheck {
    let target = std::env::var("TOPDECK_FUZZ_TARGET").unwrap_or_default();
    if target == "list" {
        all().for_each(|(of, (name, _))| println!("{of} {name}"));
        std::process::exit(0);
    }
    let found = all().find(|(_, (name, _))| target == *name);
    let (_, (_, check)) = found.unwrap_or_else(|| {
        panic!("TOPDECK_FUZZ_TARGET={target:?} is not a target; `list` prints all targets")
    });
    check
}

/// Checks of each crate, with the name of the crate.
fn all() -> impl Iterator<Item = (&'static str, (&'static str, FuzzCheck))> {
    let with = |of: &'static str, checks: Vec<(&'static str, FuzzCheck)>| {
        checks.into_iter().map(move |check| (of, check))
    };
    with("hist", checks::CHECKS.into())
        .chain(with("alerts", alerts_checks::CHECKS.into()))
        .chain(with("codecs", codecs_checks::CHECKS.into()))
        .chain(with("crash", crash_checks::CHECKS.into()))
        .chain(with("decode", decode_checks::CHECKS.into()))
        .chain(with("journal", journal_checks::CHECKS.into()))
        .chain(with("load", load_checks::CHECKS.into()))
        .chain(with("notify", notify_checks::CHECKS.into()))
        .chain(with("protocol", protocol_checks::CHECKS.to_vec()))
        .chain(with("query", query_checks::CHECKS.into()))
        .chain(with("rules", rules_checks::CHECKS.into()))
        .chain(with("shm", shm_checks::CHECKS.into()))
        .chain(with("store", store_checks::CHECKS.into()))
        .chain(with("wire", wire_checks::CHECKS.into()))
}
