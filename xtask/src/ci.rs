//! `cargo xtask ci`: everything that must hold before a change goes in; `make test` runs it all.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::line::{Line, TESTS, root};
use crate::part::{Outcome, Part, run_all};
use crate::{clients, conformance, fuzz, loom, miri, page};

/// Check everything, or the parts named. Ends with a table and non-zero status if any part failed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Parts to run, in this order; all if none is named
    #[arg(value_name = "PART", value_parser = part_names())]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if options.parts.is_empty() {
        return run_all(&PARTS);
    }
    let named = |name: &String| PARTS.iter().find(|part| part.name == name);
    run_all(options.parts.iter().map(|name| named(name).expect("BUG: clap let a name pass")))
}

/// Fast ones first: who broke the format should not wait for the fuzzers to hear it.
const PARTS: [Part; 14] = [
    Part { name: "fmt", about: "rustfmt finds nothing to change", run: fmt },
    Part { name: "page", about: "the page: checks, tests, build", run: page::run },
    Part { name: "clippy", about: "no warning anywhere", run: clippy },
    Part { name: "tidy", about: "facts about the tree; tests of xtask", run: tidy },
    Part { name: "test", about: "unit, property, golden tests", run: test },
    Part {
        name: "scripts",
        about: "Prometheus' own scripts of questions",
        run: conformance::scripts,
    },
    Part {
        name: "compared",
        about: "answers of a Prometheus, if built",
        run: conformance::compared,
    },
    Part { name: "clients", about: "libraries of others send to topdeck", run: clients::run },
    Part { name: "browser", about: "a browser looks at the page", run: page::browser },
    Part { name: "release", about: "the binary as people get it", run: release },
    Part { name: "loom", about: "interleavings of threads, up to a bound", run: loom_bounded },
    Part { name: "miri", about: "undefined behaviour (nightly)", run: miri::run },
    Part { name: "fuzz", about: "each target for TOPDECK_FUZZ_SECONDS", run: fuzz_short },
    Part { name: "bench", about: "the benches compile", run: bench },
];

/// Loom's own advice is 2 or 3: most of what more would find, in a fraction of the time.
/// `cargo xtask soak` has no bound.
const LOOM_PREEMPTIONS: u32 = 3;
const FUZZ_SECONDS: u32 = 5;

fn fmt(part: &str) -> Result<Outcome> {
    Line::new("cargo fmt --all --check").run(part)?;
    // These two are workspaces of their own, which `--all` does not see.
    for manifest in ["fuzz/Cargo.toml", "bench/Cargo.toml"] {
        if root().join(manifest).exists() {
            Line::new(&format!("cargo fmt --manifest-path {manifest} --check")).run(part)?;
        }
    }
    Ok(Outcome::Passed)
}

fn clippy(part: &str) -> Result<Outcome> {
    passed(Line::new("cargo clippy --workspace --all-targets --locked -- -D warnings").run(part))
}

fn tidy(part: &str) -> Result<Outcome> {
    passed(Line::new("cargo test -p xtask --locked").run(part))
}

fn test(part: &str) -> Result<Outcome> {
    passed(Line::new(TESTS).run(part))
}

fn release(part: &str) -> Result<Outcome> {
    passed(Line::new("cargo build --release -p topdeck --locked").run(part))
}

fn loom_bounded(part: &str) -> Result<Outcome> {
    loom::run(part, Some(LOOM_PREEMPTIONS))
}

fn fuzz_short(part: &str) -> Result<Outcome> {
    fuzz::run(part, FUZZ_SECONDS)
}

fn bench(part: &str) -> Result<Outcome> {
    if !root().join("bench").exists() {
        return Ok(Outcome::Skipped("there is no folder bench/".to_owned()));
    }
    let check = "cargo check --manifest-path bench/Cargo.toml --locked --target-dir bench/target";
    passed(Line::new(check).run(part))
}

fn passed(result: Result<()>) -> Result<Outcome> {
    result.map(|()| Outcome::Passed)
}

fn part_names() -> PossibleValuesParser {
    PARTS.iter().map(|part| PossibleValue::new(part.name).help(part.about)).into()
}
