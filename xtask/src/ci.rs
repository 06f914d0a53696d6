//! `cargo xtask ci`: all checks of a change. `make test` runs all parts.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::ci_part::{CiPart, CpuUse, ON_IDLE_CPU, OutputMode, PartOutcome, run_all};
use crate::command_line::{CommandLine, target};
use crate::part_log::PartLog;
use crate::{bindings, clients, conformance, fuzz, loom, miri, page, suite};

/// Run all checks, or the named parts. Prints a table at the end; the exit status is 1 if any part
/// failed
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Parts to run, in this order; default: all
    #[arg(value_name = "PART", value_parser = part_names())]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let command = "cargo xtask ci";
    if options.parts.is_empty() {
        return run_all(command, &PARTS, OutputMode::Progress);
    }
    let named = |name: &String| PARTS.iter().find(|part| part.name == name);
    let parts =
        (options.parts.iter()).map(|name| named(name).expect("BUG: clap accepted an unknown part"));
    run_all(command, parts, OutputMode::Progress)
}

/// In start order: fast parts first, so that a formatting error is reported before the fuzzers run.
/// What nothing waits for runs beside the build and the tests, on the CPU that they leave. Its last
/// part is the fuzzers, which keep all CPUs busy until the end.
const PARTS: [CiPart; 16] = [
    CiPart {
        name: "fmt",
        description: "rustfmt finds nothing to change",
        run: fmt,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "page",
        description: "the page is built",
        // npm waits for files.
        cpu_use: CpuUse::Idle,
        run: page::build_page,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "build",
        description: "everything compiles without clippy warnings",
        // The program embeds the web UI.
        dependencies: &["page"],
        run: suite::build,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "loom",
        description: "thread interleavings, with a preemption bound",
        cpu_use: CpuUse::Background,
        run: loom_bounded,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "web",
        description: "checks and tests of the web UI, without a browser",
        dependencies: &["page"],
        cpu_use: CpuUse::Background,
        run: page::check_and_test,
    },
    CiPart {
        name: "miri",
        description: "undefined behaviour (nightly)",
        cpu_use: CpuUse::Background,
        run: miri::run,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "bench",
        description: "the benches compile",
        // It uses what `build` compiled: macros, build scripts and C libraries. `doc` would wait
        // until it leaves the build directory.
        dependencies: &["build", "doc"],
        cpu_use: CpuUse::Background,
        run: bench,
    },
    CiPart {
        name: "test",
        description: "unit, property, golden tests; facts about the tree",
        dependencies: &["build"],
        run: suite::run_shared,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "doc",
        description: "examples in the documentation",
        dependencies: &["build"],
        run: suite::run_doc_tests,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "fuzz",
        description: "each target for TOPDECK_FUZZ_SECONDS of CPU time, from seeds",
        dependencies: &["build"],
        cpu_use: CpuUse::Background,
        run: |log| fuzz::run(log, fuzz::FuzzEngine::Seeds, FUZZ_SECONDS),
    },
    CiPart {
        name: "clients",
        description: "third-party client libraries",
        dependencies: &["build"],
        cpu_use: CpuUse::Idle,
        run: |log| clients::run(log, &suite::topdeck(log)?),
    },
    CiPart {
        name: "bindings",
        description: "packages for Go, Python, Node and Java",
        // Of Go's standard library it uses what that part compiled.
        dependencies: &["build", "clients"],
        // Most of its programs wait for each other.
        cpu_use: CpuUse::Idle,
        run: |log| bindings::run(log, &suite::topdeck(log)?),
    },
    CiPart {
        name: "browser",
        description: "browser tests of the web UI",
        dependencies: &["build"],
        cpu_use: CpuUse::Idle,
        run: |log| page::test_in_browser(log, &suite::topdeck(log)?),
    },
    CiPart {
        name: "scripts",
        description: "test scripts of Prometheus",
        dependencies: &["build"],
        cpu_use: CpuUse::Idle,
        run: conformance::run_scripts,
    },
    CiPart {
        name: "compared",
        description: "comparison with a Prometheus, if built",
        dependencies: &["build"],
        run: conformance::compare_with_prometheus,
        ..CiPart::DEFAULT
    },
    CiPart {
        name: "timing",
        description: "tests that measure time, one program at a time",
        // The tests of the web UI have time limits, so they have more than the idle CPU.
        dependencies: &["build", "web"],
        cpu_use: CpuUse::Exclusive,
        run: suite::run_alone,
    },
];

/// Preemption bound. Loom recommends 2 or 3, which finds most defects in a fraction of the time.
/// `cargo xtask soak` sets no bound.
const LOOM_PREEMPTIONS: u32 = 3;
const FUZZ_SECONDS: u32 = 5;

fn fmt(log: &PartLog) -> Result<PartOutcome> {
    CommandLine::new("cargo fmt --all --check").run(log)?;
    // Separate workspaces, which `--all` does not include.
    for manifest in ["bench/Cargo.toml", "loom/Cargo.toml"] {
        CommandLine::new(&format!("cargo fmt --manifest-path {manifest} --check")).run(log)?;
    }
    Ok(PartOutcome::Passed)
}

fn loom_bounded(log: &PartLog) -> Result<PartOutcome> {
    loom::run(log, Some(LOOM_PREEMPTIONS))
}

fn bench(log: &PartLog) -> Result<PartOutcome> {
    let target = target();
    let target = target.to_str().expect("BUG: the path of the repository is not UTF-8");
    let check = "cargo check --manifest-path bench/Cargo.toml --locked --target-dir";
    CommandLine::new(&format!("{ON_IDLE_CPU} {check}")).arg(target).run(log)?;
    Ok(PartOutcome::Passed)
}

fn part_names() -> PossibleValuesParser {
    PARTS.iter().map(|part| PossibleValue::new(part.name).help(part.description)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_wait_only_for_parts_that_are_there() {
        for part in &PARTS {
            let is_known = |name: &&&str| PARTS.iter().any(|other| other.name == **name);
            assert_eq!(
                part.dependencies.iter().find(|name| !is_known(name)),
                None,
                "{}",
                part.name
            );
        }
    }
}
