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
    let folder = target().join("mutations");
    let clone = folder.join("clone");
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
    let build = text(&folder.join("target"));
    let git = || CommandLine::new("git -C").arg(&text(&clone));
    let cargo = |before: &str| {
        let line = CommandLine::new(&format!("{before} cargo test --locked -p topdeck --test it"));
        line.arg("--manifest-path").arg(&manifest).env("CARGO_TARGET_DIR", &build)
    };
    cargo("").arg(TEST).run(log).context("the random programs fail without a mutation")?;
    // Returns whether a program failed, and the output. Any other exit than that of a failed test,
    // and a timeout, say nothing about a defect.
    let search = || -> Result<(bool, String)> {
        cargo("").arg("--no-run").run(log)?;
        let mut output = String::new();
        let search = cargo(&format!("timeout {SEARCH_SECONDS_MAX}")).arg(SEARCH);
        let status = search.arg("--").arg("--ignored").run_reading(log, |line| {
            output.push_str(line);
            output.push('\n');
            true
        })?;
        Ok((!status.success() && output.contains("test result: FAILED"), output))
    };
    // A failure without a patch would be attributed to each of the defects.
    ensure!(!search()?.0, "a random program of the search fails without a mutation");
    let find = |patch: &Path| -> Result<String> {
        git().arg("checkout").arg("--quiet").arg(".").run(log)?;
        git()
            .arg("apply")
            .arg(&text(patch))
            .run(log)
            .context("cannot apply the patch; create it again for the current code")?;
        let (is_found, output) = search()?;
        ensure!(is_found, "the random programs did not detect the defect");
        Ok(output)
    };
    let mut report = TestReport::default();
    for patch in patches {
        let start = Instant::now();
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (end, output) = match find(&patch) {
            Ok(output) => (TestEnd::Passed, output),
            Err(error) => {
                let repeat = "cargo xtask soak mutations".to_owned();
                (TestEnd::Failed { repeat }, format!("{error:#}"))
            }
        };
        report.add_test(&name, end, start.elapsed().as_secs_f64(), &output);
    }
    Ok(PartOutcome::Tests(report))
}
