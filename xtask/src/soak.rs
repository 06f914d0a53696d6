//! `cargo xtask soak`: the long versions of what `ci` does briefly. Hours; for nights and releases.

use std::process::ExitCode;

use anyhow::Result;

use crate::line::Line;
use crate::part::{Outcome, Part, run_all};
use crate::{fuzz, loom};

/// Run the tests named `soak_`, loom without a bound, and each fuzz target for minutes.
#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> ExitCode {
    run_all(&PARTS)
}

const PARTS: [Part; 3] = [
    Part { name: "test", about: "tests named soak_, optimised", run: test },
    Part { name: "loom", about: "interleavings of threads, all", run: loom_unbounded },
    Part { name: "fuzz", about: "each target for TOPDECK_FUZZ_SECONDS", run: fuzz_long },
];

const FUZZ_SECONDS: u32 = 600;

fn test(part: &str) -> Result<Outcome> {
    let line = Line::new("cargo test --workspace --release --locked -- --include-ignored soak_");
    match line.run_tests(part)? {
        0 => Ok(Outcome::Skipped("no test is named soak_".to_owned())),
        _ => Ok(Outcome::Passed),
    }
}

fn loom_unbounded(part: &str) -> Result<Outcome> {
    loom::run(part, None)
}

fn fuzz_long(part: &str) -> Result<Outcome> {
    fuzz::run(part, FUZZ_SECONDS)
}
