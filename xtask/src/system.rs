//! `cargo xtask system`: real peers and clusters. Each part is meant to take at most 15 minutes, all of
//! them two hours; `ci` has a short or recorded form of each.

use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::part::{Part, Show, run_all};
use crate::{aarch64, clients, conformance, hostile, page, suite};

/// Hold topdeck against real peers: all parts, or those named.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Parts to run, in the order of this list; all if none is named
    #[arg(value_name = "PART", value_parser = part_names())]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let is_named = |part: &&Part| {
        options.parts.is_empty() || options.parts.iter().any(|name| name == part.name)
    };
    run_all("cargo xtask system", PARTS.iter().filter(is_named), Show::Everything)
}

const PARTS: [Part; 6] = [
    Part {
        name: "scripts",
        about: "Prometheus' own scripts of questions",
        after: &[],
        is_alone: true,
        run: conformance::scripts,
    },
    Part {
        name: "prometheus",
        about: "answers of a Prometheus, which is built first",
        after: &[],
        is_alone: true,
        run: conformance::built_and_compared,
    },
    Part {
        name: "clients",
        about: "libraries of others, and a Prometheus if built, send to topdeck",
        after: &[],
        is_alone: true,
        run: |log| clients::run(log, &suite::build_topdeck(log)?),
    },
    Part {
        name: "browser",
        about: "a browser looks at the page of the program that `make run` builds",
        after: &[],
        is_alone: true,
        run: |log| page::browser(log, &suite::build_topdeck(log)?),
    },
    Part {
        name: "hostile",
        about: "hostile clients beside an innocent one: memory, counts and liveness",
        after: &[],
        is_alone: true,
        run: hostile::run,
    },
    Part {
        name: "aarch64",
        about: "the core's tests and the static binary on 64-bit ARM",
        after: &[],
        is_alone: true,
        run: aarch64::run,
    },
];

fn part_names() -> PossibleValuesParser {
    PARTS.iter().map(|part| PossibleValue::new(part.name).help(part.about)).into()
}
