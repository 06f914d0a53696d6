//! `cargo xtask soak`: the long versions of what `ci` does briefly. Hours; for nights and releases.

use std::process::ExitCode;

use anyhow::Result;

use crate::libtest::run_cargo_test;
use crate::line::Line;
use crate::log::Log;
use crate::part::{Outcome, Part, Show, run_all};
use crate::{fuzz, loom};

/// Run the tests named `soak_`, loom without a bound, and each fuzz target for minutes.
#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> ExitCode {
    run_all("cargo xtask soak", &PARTS, Show::Everything)
}

const PARTS: [Part; 3] = [
    Part {
        name: "test",
        about: "tests named soak_, optimised",
        after: &[],
        is_alone: true,
        run: test,
    },
    Part {
        name: "loom",
        about: "interleavings of threads, all",
        after: &[],
        is_alone: true,
        run: loom_unbounded,
    },
    Part {
        name: "fuzz",
        about: "each target for TOPDECK_FUZZ_SECONDS",
        after: &[],
        is_alone: true,
        run: fuzz_long,
    },
];

const FUZZ_SECONDS: u32 = 600;

fn test(log: &Log) -> Result<Outcome> {
    let command =
        "cargo test --workspace --profile quick --locked --no-fail-fast -- --include-ignored soak_";
    let report = run_cargo_test(log, &Line::new(command), command)?;
    match report.count() {
        0 => Ok(Outcome::Skipped("no test is named soak_".to_owned())),
        _ => Ok(Outcome::Tests(report)),
    }
}

fn loom_unbounded(log: &Log) -> Result<Outcome> {
    loom::run(log, None)
}

fn fuzz_long(log: &Log) -> Result<Outcome> {
    fuzz::run(log, FUZZ_SECONDS)
}
