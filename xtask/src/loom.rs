//! The loom part: all interleavings of the lock-free code's threads, up to some preemptions.

use anyhow::{Result, ensure};

use crate::libtest::run_cargo_test;
use crate::line::Line;
use crate::log::Log;
use crate::named::count_in_sources;
use crate::part::Outcome;
use crate::passed::unless_unchanged;

/// The workspace that has the lock-free files of all crates in it; release would only compile longer.
const MODELS: &str =
    "cargo test --manifest-path loom/Cargo.toml --locked --target-dir loom/target loom_";

/// The models, and the crates whose files they take in.
const SOURCES: [&str; 5] =
    ["loom/", "crates/hist/", "crates/clock/", "crates/shm/", "crates/journal/"];

/// `preemptions`: how often threads may be stopped mid-way in one execution; `None` is no bound.
pub(crate) fn run(log: &Log, preemptions: Option<u32>) -> Result<Outcome> {
    let line = Line::new(MODELS);
    match preemptions {
        Some(count) => {
            let line = line.env("LOOM_MAX_PREEMPTIONS", &count.to_string());
            unless_unchanged(log, &SOURCES, &[], || explore(log, &line))
        }
        None => explore(log, &line.unset("LOOM_MAX_PREEMPTIONS")),
    }
}

fn explore(log: &Log, line: &Line) -> Result<Outcome> {
    let report = run_cargo_test(log, line, "cargo xtask ci loom")?;
    // A file that loom/ does not take in has its models compiled by nobody, and nothing else would tell.
    let (ran, written) = (report.count(), count_in_sources("loom_")?);
    ensure!(
        ran == written,
        "{ran} models ran, but crates/ has {written} tests named loom_: is the file of each taken in \
         by loom/tests/?"
    );
    Ok(Outcome::Tests(report))
}
