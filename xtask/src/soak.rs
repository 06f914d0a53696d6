//! `cargo xtask soak`: the long versions of what `ci` does briefly. Hours; for nights and releases.

use std::process::ExitCode;

use anyhow::Result;

use crate::libtest::run_cargo_test;
use crate::line::Line;
use crate::log::Log;
use crate::part::{Outcome, Part, Show, run_all};
use crate::{fuzz, loom, mutations};

/// Run the tests named `soak_`, loom without a bound, each fuzz target for minutes, and put old
/// defects back.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only these parts.
    #[arg(value_name = "PART", value_parser = clap::builder::PossibleValuesParser::new(names()))]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let is_named = |part: &&Part| {
        options.parts.is_empty() || options.parts.iter().any(|name| name == part.name)
    };
    run_all("cargo xtask soak", PARTS.iter().filter(is_named), Show::Everything)
}

fn names() -> Vec<clap::builder::PossibleValue> {
    PARTS.iter().map(|part| clap::builder::PossibleValue::new(part.name).help(part.about)).collect()
}

const PARTS: [Part; 4] = [
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
    Part {
        name: "mutations",
        about: "defects that are put back, which random programs from outside must find",
        after: &[],
        is_alone: true,
        run: mutations::run,
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
