//! The fuzz part: builds the targets of fuzz/ once and runs each for some seconds.

use std::fs;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use crate::line::{Line, root};
use crate::part::Outcome;

/// Overrides how long each target runs, in seconds.
const SECONDS_VARIABLE: &str = "TOPDECK_FUZZ_SECONDS";

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
const SEEDS: &str = "cargo test --locked -p topdeck-hist -p topdeck-collect -p topdeck-journal -p topdeck-load -p topdeck-shm -p topdeck-store --test it -- --ignored write_seeds";

/// Every target is run even if one before it fails.
pub(crate) fn run(part: &str, seconds_default: u32) -> Result<Outcome> {
    let manifest = root().join("fuzz/Cargo.toml");
    if !manifest.exists() {
        return Ok(Outcome::Skipped("there is no folder fuzz/".to_owned()));
    }
    let seconds = seconds(seconds_default)?;
    let targets = targets(&fs::read_to_string(&manifest)?).context("fuzz/Cargo.toml")?;
    if let Err(reason) = prepare(part) {
        return Ok(Outcome::Skipped(format!("{reason:#}")));
    }
    Line::new(SEEDS).run(part)?;
    Line::new("cargo +nightly fuzz build --target-dir fuzz/target").run(part)?;
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
    let run = format!("cargo +nightly fuzz run --target-dir fuzz/target {target} --");
    let end = format!("-max_total_time={seconds} -verbosity=0 -print_final_stats=1");
    // Freed memory that the sanitizer holds back (256 MiB by default) counts as ours.
    let line = Line::new(&format!("{run} {end} {}", limits(target)));
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

/// Names of the `[[bin]]`s of a manifest; at least one.
fn targets(manifest: &str) -> Result<Vec<String>> {
    let manifest: Table = manifest.parse()?;
    let bins = manifest.get("bin").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = |bin: &Value| {
        let name = bin.get("name").and_then(Value::as_str).context("a [[bin]] has no name")?;
        Ok(name.to_owned())
    };
    let names = bins.iter().map(name).collect::<Result<Vec<String>>>()?;
    ensure!(!names.is_empty(), "no [[bin]]: there is nothing to fuzz");
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_bins() {
        let manifest = "[package]\nname = 'f'\n[[bin]]\nname = 'hlog'\n[[bin]]\nname = 'frame'\n";
        assert_eq!(targets(manifest).unwrap(), ["hlog", "frame"]);
    }

    #[test]
    fn a_manifest_without_targets_is_refused() {
        let error = targets("[package]\nname = 'f'\n").unwrap_err();
        assert_eq!(error.to_string(), "no [[bin]]: there is nothing to fuzz");
    }

    #[test]
    fn a_target_without_name_is_refused() {
        let error = targets("[[bin]]\npath = 'x.rs'\n").unwrap_err();
        assert_eq!(error.to_string(), "a [[bin]] has no name");
    }
}
