//! `cargo xtask soak`: long versions of the parts of `ci`. Takes hours; for nights and releases.

use std::process::ExitCode;

use anyhow::Result;

use crate::ci_part::{CiPart, CpuUse, OutputMode, PartOutcome, run_all};
use crate::command_line::CommandLine;
use crate::libtest::run_cargo_test;
use crate::part_log::PartLog;
use crate::test_report::TestReport;
use crate::{fuzz, loom, mutations, page};

/// Run the tests named `soak_`, random tests with new seeds, loom without a preemption bound, each
/// fuzz target for minutes, and mutation tests
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only these parts
    #[arg(value_name = "PART", value_parser = clap::builder::PossibleValuesParser::new(names()))]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let is_named = |part: &&CiPart| {
        options.parts.is_empty() || options.parts.iter().any(|name| name == part.name)
    };
    run_all("cargo xtask soak", PARTS.iter().filter(is_named), OutputMode::Everything)
}

fn names() -> Vec<clap::builder::PossibleValue> {
    PARTS
        .iter()
        .map(|part| clap::builder::PossibleValue::new(part.name).help(part.description))
        .collect()
}

const PARTS: [CiPart; 6] = [
    CiPart {
        name: "test",
        description: "tests named soak_, optimized",
        cpu_use: CpuUse::Exclusive,
        run: test,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "alerts",
        description: "kills, failing sites, full disks: alerts arrive; part of test",
        cpu_use: CpuUse::Exclusive,
        run: alerts,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "random",
        description: "all integration tests, ten times: property tests draw anew in each round",
        cpu_use: CpuUse::Exclusive,
        run: random,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "loom",
        description: "thread interleavings, unbounded",
        cpu_use: CpuUse::Exclusive,
        run: loom_unbounded,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "fuzz",
        description: "each target for TOPDECK_FUZZ_SECONDS, guided by coverage (nightly)",
        cpu_use: CpuUse::Exclusive,
        run: fuzz_long,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "mutations",
        description: "mutation tests: past defects that the black-box tests must detect",
        cpu_use: CpuUse::Exclusive,
        run: mutations::run,
        ..CiPart::DEFAULT
    },
];

const FUZZ_SECONDS: u32 = 600;
const RANDOM_ROUNDS: usize = 10;

fn test(log: &PartLog) -> Result<PartOutcome> {
    let command =
        "cargo test --workspace --profile quick --locked --no-fail-fast -- --include-ignored soak_";
    let report = run_cargo_test(log, &page::permit_missing(CommandLine::new(command)), command)?;
    match report.count() {
        0 => Ok(PartOutcome::Skipped("no test named soak_".to_owned())),
        _ => Ok(PartOutcome::Tests(report)),
    }
}

fn alerts(log: &PartLog) -> Result<PartOutcome> {
    let command =
        "cargo test -p topdeck --profile quick --locked --test it -- --include-ignored soak_alerts";
    let report = run_cargo_test(log, &page::permit_missing(CommandLine::new(command)), command)?;
    Ok(PartOutcome::Tests(report))
}

/// What `make test` draws for its commit, these draw anew.
fn random(log: &PartLog) -> Result<PartOutcome> {
    let command = "cargo test --workspace --locked --no-fail-fast --test it";
    let mut all = TestReport::default();
    for _ in 0..RANDOM_ROUNDS {
        all.add(run_cargo_test(log, &page::permit_missing(CommandLine::new(command)), command)?);
    }
    Ok(PartOutcome::Tests(all))
}

fn loom_unbounded(log: &PartLog) -> Result<PartOutcome> {
    loom::run(log, None)
}

fn fuzz_long(log: &PartLog) -> Result<PartOutcome> {
    fuzz::run(log, fuzz::FuzzEngine::Coverage, FUZZ_SECONDS)
}
