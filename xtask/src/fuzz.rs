//! The fuzz part: builds the fuzzer of fuzz/, which has the checks of all targets in it, and runs it on each for some seconds.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::line::{Line, TESTS, root};
use crate::part::Outcome;

/// Overrides how long each target runs, in seconds.
const SECONDS_VARIABLE: &str = "TOPDECK_FUZZ_SECONDS";

/// Which target the fuzzer runs; `list` prints the names of all.
const TARGET_VARIABLE: &str = "TOPDECK_FUZZ_TARGET";

const FUZZER: &str = "cargo +nightly fuzz run --target-dir fuzz/target check";

/// What no decoder may exceed, whatever the bytes. 64 MiB per allocation is the promise of the
/// decoders; 512 MiB in all leaves room for the sanitizer's own; ten seconds for one input is a
/// hang.
const LIMITS: &str = "-malloc_limit_mb=64 -rss_limit_mb=512 -timeout=10";

/// Of `store_chunk`: pco reserves room for a dictionary, at most 2^25 numbers of 8 bytes, before it looks whether its
/// bytes hold one. In a store, only what has a matching checksum comes that far.
const LIMITS_WITH_PCO: &str = "-malloc_limit_mb=257 -rss_limit_mb=1024 -timeout=10";

fn limits(target: &str) -> &'static str {
    if target == "store_chunk" { LIMITS_WITH_PCO } else { LIMITS }
}

/// Writes fuzz/corpus/ from the golden files: a fuzzer that begins with nothing spends its minute on magic
/// numbers.
const SEEDS: &str = "--test it write_seeds -- --ignored";

/// Every target is run even if one before it fails.
pub(crate) fn run(part: &str, seconds_default: u32) -> Result<Outcome> {
    if !root().join("fuzz").exists() {
        return Ok(Outcome::Skipped("there is no folder fuzz/".to_owned()));
    }
    let seconds = seconds(seconds_default)?;
    if let Err(reason) = prepare(part) {
        return Ok(Outcome::Skipped(format!("{reason:#}")));
    }
    Line::new(&format!("{TESTS} {SEEDS}")).run(part)?;
    Line::new("cargo +nightly fuzz build --target-dir fuzz/target").run(part)?;
    let names = Line::new(FUZZER).env(TARGET_VARIABLE, "list").stdout()?;
    let names = String::from_utf8(names).context("the names of targets")?;
    let targets: Vec<&str> = names.lines().collect();
    ensure!(!targets.is_empty(), "`{FUZZER}` names no targets");
    let mut failed: Vec<&str> = Vec::new();
    for target in &targets {
        if let Err(error) = fuzz_one(part, target, seconds) {
            println!("FAILED: {part}: {error:#}");
            failed.push(target);
        }
    }
    let (count, names) = (failed.len(), failed.join(", "));
    ensure!(failed.is_empty(), "{count} of {} targets: {names}", targets.len());
    Ok(Outcome::Passed)
}

fn fuzz_one(part: &str, target: &str, seconds: u32) -> Result<()> {
    // What it finds is kept beside the others of its target.
    let [corpus, artifacts] = ["corpus", "artifacts"].map(|of| format!("fuzz/{of}/{target}"));
    for folder in [&corpus, &artifacts] {
        let made = fs::create_dir_all(root().join(folder));
        made.with_context(|| format!("cannot make {folder}"))?;
    }
    let end = format!("-max_total_time={seconds} -verbosity=0 -print_final_stats=1");
    let kept = format!("-artifact_prefix={artifacts}/");
    let line = Line::new(&format!("{FUZZER} {corpus} -- {end} {} {kept}", limits(target)));
    let line = line.env(TARGET_VARIABLE, target);
    // Freed memory that the sanitizer holds back (256 MiB by default) counts as ours.
    line.env("ASAN_OPTIONS", "quarantine_size_mb=64").run(part)
}

/// What fuzzing needs beyond stable Rust: nightly, cargo-fuzz, and a C++ compiler for libFuzzer.
fn prepare(part: &str) -> Result<()> {
    let compiler = Line::new("c++ --version").succeeds();
    ensure!(compiler, "libFuzzer needs a C++ compiler (Debian: apt-get install g++)");
    if !Line::new("rustup which --toolchain nightly cargo").succeeds() {
        Line::new("rustup toolchain install nightly --profile minimal").run(part)?;
    }
    if !Line::new("cargo fuzz --version").succeeds() {
        Line::new("cargo install cargo-fuzz --locked").run(part)?;
    }
    Ok(())
}

fn seconds(default: u32) -> Result<u32> {
    let Ok(text) = std::env::var(SECONDS_VARIABLE) else { return Ok(default) };
    // libFuzzer takes 0 for "without end", which would hang a run that meant "not at all".
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
    seconds
        .with_context(|| format!("{SECONDS_VARIABLE}={text:?} is not a number of seconds above 0"))
}
