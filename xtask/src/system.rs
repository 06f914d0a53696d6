//! `cargo xtask system`: tests against real peers and clusters. Target: 15 minutes per part, two
//! hours in total. `ci` has a short or recorded form of each part.

use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::ci_part::{CiPart, CpuUse, OutputMode, run_all};
use crate::{
    aarch64, alertmanager, clients, conformance, crash, extensions, hostile, installed_packages,
    page, suite, wire,
};

/// Test topdeck against real peers: all parts, or the named ones
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Parts to run, in the order of this list; default: all
    #[arg(value_name = "PART", value_parser = part_names())]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let is_named = |part: &&CiPart| {
        options.parts.is_empty() || options.parts.iter().any(|name| name == part.name)
    };
    run_all("cargo xtask system", PARTS.iter().filter(is_named), OutputMode::Everything)
}

const PARTS: [CiPart; 11] = [
    CiPart {
        name: "scripts",
        description: "test scripts of Prometheus",
        cpu_use: CpuUse::Exclusive,
        run: conformance::run_scripts,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "prometheus",
        description: "comparison with a Prometheus, which is built first",
        cpu_use: CpuUse::Exclusive,
        run: conformance::build_and_compare,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "clients",
        description: "third-party client libraries, and a Prometheus if built",
        cpu_use: CpuUse::Exclusive,
        run: |log| clients::run(log, &suite::build_topdeck(log)?),
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "alertmanager",
        description: "amtool, which is built first",
        cpu_use: CpuUse::Exclusive,
        run: |log| alertmanager::run(log, &suite::build_topdeck(log)?),
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "browser",
        description: "browser tests of the page of the program that `make run` builds",
        cpu_use: CpuUse::Exclusive,
        run: |log| page::test_in_browser(log, &suite::build_topdeck(log)?),
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "hostile",
        description: "hostile clients next to an innocent one: memory, counts and liveness",
        cpu_use: CpuUse::Exclusive,
        run: hostile::run,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "wire",
        description: "real servers and their clients, observed by `topdeck wire`",
        cpu_use: CpuUse::Exclusive,
        run: wire::run,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "extensions",
        description: "an added role, check, format, function, view and others in a clone",
        cpu_use: CpuUse::Exclusive,
        run: extensions::run,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "packages",
        description: "packages installed, used, upgraded and removed in bare roots (as root)",
        cpu_use: CpuUse::Exclusive,
        run: installed_packages::run,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "crash",
        description: "crashes of real programs through the kernel's core_pattern (as root)",
        cpu_use: CpuUse::Exclusive,
        run: crash::run,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "aarch64",
        description: "tests of the core crates and the static binary on 64-bit ARM",
        cpu_use: CpuUse::Exclusive,
        run: aarch64::run,
        ..CiPart::DEFAULT
    },
];

fn part_names() -> PossibleValuesParser {
    PARTS.iter().map(|part| PossibleValue::new(part.name).help(part.description)).into()
}
