//! The part `mutations` of `make soak`. Each patch of `testdata/mutations/` restores a past defect
//! in a clone of the last commit. The black-box random tests must detect it within ten minutes, and
//! must pass for ten minutes without it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, root, target};
use crate::part_log::PartLog;
use crate::test_report::{TestEnd, TestReport};

/// The test that passes without a defect.
const TEST: &str = "blackbox::answers_from_outside_are_those_of_the_model";
/// Hundreds of random programs; the test fails at the first mismatch.
const SEARCH: &str = "blackbox::soak_answers_from_outside_are_those_of_the_model";
const SEARCH_SECONDS_MAX: u32 = 600;

pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    let dir = target().join("mutations");
    let clone = dir.join("clone");
    if clone.exists() {
        fs::remove_dir_all(&clone).context("cannot remove the clone of an earlier run")?;
    }
    let text = |path: &Path| path.display().to_string();
    CommandLine::new("git clone --quiet --shared")
        .arg(&text(root()))
        .arg(&text(&clone))
        .run(log)?;
    let patches = root().join("testdata/mutations");
    let mut patches: Vec<_> = fs::read_dir(&patches)
        .with_context(|| format!("reading {}", patches.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    ensure!(!patches.is_empty(), "testdata/mutations contains no patch");
    let manifest = text(&clone.join("Cargo.toml"));
    let build = text(&dir.join("target"));
    let git = || CommandLine::new("git -C").arg(&text(&clone));
    let cargo = |before: &str| {
        let line = CommandLine::new(&format!("{before} cargo test --locked -p topdeck --test it"));
        line.arg("--manifest-path").arg(&manifest).env("CARGO_TARGET_DIR", &build)
    };
    cargo("").arg(TEST).run(log).context("the random programs fail without a mutation")?;
    // Returns the failure of a program, if any. Any other exit than that of a failed test, and a
    // timeout, say nothing about a defect.
    let search = || -> Result<Option<Detection>> {
        cargo("").arg("--no-run").run(log)?;
        let start = Instant::now();
        let mut output = String::new();
        let search = cargo(&format!("timeout {SEARCH_SECONDS_MAX}")).arg(SEARCH);
        let status = search.arg("--").arg("--ignored").run_reading(log, |line| {
            output.push_str(line);
            output.push('\n');
            true
        })?;
        let is_found = !status.success() && output.contains("test result: FAILED");
        Ok(is_found.then(|| Detection { seconds: start.elapsed().as_secs_f64(), output }))
    };
    // A failure without a patch would be attributed to each of the defects.
    ensure!(search()?.is_none(), "a random program of the search fails without a mutation");
    let find = |patch: &Path| -> Result<Detection> {
        git().arg("checkout").arg("--quiet").arg(".").run(log)?;
        git()
            .arg("apply")
            .arg(&text(patch))
            .run(log)
            .context("cannot apply the patch; create it again for the current code")?;
        search()?.context("the random programs did not detect the defect")
    };
    let mut report = TestReport::default();
    for patch in patches {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match find(&patch) {
            Ok(Detection { seconds, output }) => {
                let seed = failed_seed(&output).unwrap_or("unknown");
                log.note(&format!("{name}: detected after {seconds:.0} s by seed {seed}"));
                report.add_test(&name, TestEnd::Passed, seconds, &output);
            }
            Err(error) => {
                let error = format!("{error:#}");
                log.note(&format!("{name}: {error}"));
                let end = TestEnd::Failed { repeat: "cargo xtask soak mutations".to_owned() };
                report.add_test(&name, end, f64::from(SEARCH_SECONDS_MAX), &error);
            }
        }
    }
    Ok(PartOutcome::Tests(report))
}

/// Failure of a random program.
struct Detection {
    /// Duration of the search, without the build.
    seconds: f64,
    output: String,
}

/// Seed of the failed program, from its list of steps.
fn failed_seed(output: &str) -> Option<&str> {
    let (_, rest) = output.rsplit_once("seed ")?;
    let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_the_failed_program_is_read_from_its_steps() {
        let output = "until 3 d 00:30: 4, not 5\nsum(x): {}\nseed 1007\nGauge to 0 d 00:10\n";
        assert_eq!(failed_seed(output), Some("1007"));
        assert_eq!(failed_seed("a program ended"), None);
    }
}
