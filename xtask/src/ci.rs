//! `cargo xtask ci`: everything that must hold before a change goes in; `make test` runs it all.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::line::{Line, root};
use crate::log::Log;
use crate::part::{Outcome, Part, Show, run_all};
use crate::{clients, conformance, fuzz, loom, miri, page, suite};

/// Check everything, or the parts named. Ends with a table and non-zero status if any part failed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Parts to run, in this order; all if none is named
    #[arg(value_name = "PART", value_parser = part_names())]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let command = "cargo xtask ci";
    if options.parts.is_empty() {
        return run_all(command, &PARTS, Show::Progress);
    }
    let named = |name: &String| PARTS.iter().find(|part| part.name == name);
    let parts = options.parts.iter().map(|name| named(name).expect("BUG: clap let a name pass"));
    run_all(command, parts, Show::Progress)
}

/// In the order in which they start. Fast ones first: who broke the format should not wait for the
/// fuzzers to hear it. Then those that others wait for.
const PARTS: [Part; 15] = [
    Part { name: "fmt", about: "rustfmt finds nothing to change", run: fmt, ..PART },
    Part { name: "page", about: "the page is built", run: page::run, ..PART },
    Part {
        name: "build",
        about: "everything compiles without a warning of clippy",
        // The program packs the page.
        after: &["page"],
        run: suite::build,
        ..PART
    },
    Part {
        name: "web",
        about: "checks and tests of the page, without a browser",
        after: &["page"],
        run: page::check,
        ..PART
    },
    Part {
        name: "loom",
        about: "interleavings of threads, up to a bound",
        run: loom_bounded,
        ..PART
    },
    Part { name: "miri", about: "undefined behaviour (nightly)", run: miri::run, ..PART },
    Part {
        name: "test",
        about: "unit, property, golden tests; facts about the tree",
        after: &["build"],
        run: suite::shared,
        ..PART
    },
    Part {
        name: "fuzz",
        about: "each target for TOPDECK_FUZZ_SECONDS (nightly)",
        after: &["build"],
        run: fuzz_short,
        ..PART
    },
    Part {
        name: "clients",
        about: "libraries of others send to topdeck",
        after: &["build"],
        run: |log| clients::run(log, &suite::topdeck(log)?),
        ..PART
    },
    Part {
        name: "browser",
        about: "a browser looks at the page",
        after: &["build"],
        run: |log| page::browser(log, &suite::topdeck(log)?),
        ..PART
    },
    Part {
        name: "doc",
        about: "examples in the documentation",
        after: &["build"],
        run: suite::documentation,
        ..PART
    },
    Part {
        name: "scripts",
        about: "Prometheus' own scripts of questions",
        after: &["build"],
        run: conformance::scripts,
        ..PART
    },
    Part {
        name: "compared",
        about: "answers of a Prometheus, if built",
        after: &["build"],
        run: conformance::compared,
        ..PART
    },
    Part { name: "bench", about: "the benches compile", run: bench, ..PART },
    Part {
        name: "timing",
        about: "tests that measure time, with nothing beside them",
        after: &["build"],
        is_alone: true,
        run: suite::alone,
    },
];

/// What most parts have in common.
const PART: Part =
    Part { name: "", about: "", after: &[], is_alone: false, run: |_| Ok(Outcome::Passed) };

/// Loom's own advice is 2 or 3: most of what more would find, in a fraction of the time.
/// `cargo xtask soak` has no bound.
const LOOM_PREEMPTIONS: u32 = 3;
const FUZZ_SECONDS: u32 = 5;

fn fmt(log: &Log) -> Result<Outcome> {
    Line::new("cargo fmt --all --check").run(log)?;
    // These are workspaces of their own, which `--all` does not see.
    for manifest in ["fuzz/Cargo.toml", "bench/Cargo.toml", "loom/Cargo.toml"] {
        Line::new(&format!("cargo fmt --manifest-path {manifest} --check")).run(log)?;
    }
    Ok(Outcome::Passed)
}

fn loom_bounded(log: &Log) -> Result<Outcome> {
    loom::run(log, Some(LOOM_PREEMPTIONS))
}

fn fuzz_short(log: &Log) -> Result<Outcome> {
    fuzz::run(log, FUZZ_SECONDS)
}

fn bench(log: &Log) -> Result<Outcome> {
    let target = root().join("bench/target");
    let target = target.to_str().expect("BUG: the repository's path is not UTF-8");
    let check = Line::new("cargo check --manifest-path bench/Cargo.toml --locked --target-dir");
    check.word(target).run(log)?;
    Ok(Outcome::Passed)
}

fn part_names() -> PossibleValuesParser {
    PARTS.iter().map(|part| PossibleValue::new(part.name).help(part.about)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_wait_only_for_parts_that_are_there() {
        for part in &PARTS {
            let is_known = |name: &&&str| PARTS.iter().any(|other| other.name == **name);
            assert_eq!(part.after.iter().find(|name| !is_known(name)), None, "{}", part.name);
        }
    }
}
