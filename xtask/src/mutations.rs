//! The part `mutations` of `make soak`: each patch of `testdata/mutations/` puts back a defect that
//! users once met, in a clone of the last commit; the random programs from outside must find it
//! within ten minutes, in which they find nothing without it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::line::{Line, root, target};
use crate::log::Log;
use crate::part::Outcome;
use crate::report::{TestEnd, TestReport};

/// Passes without a defect.
const TEST: &str = "blackbox::answers_from_outside_are_those_of_the_model";
/// Hundreds of programs, which fail with one.
const SEARCH: &str = "blackbox::soak_answers_from_outside_are_those_of_the_model";
const SEARCH_SECONDS_MAX: u32 = 600;

pub(crate) fn run(log: &Log) -> Result<Outcome> {
    let folder = target().join("mutations");
    let clone = folder.join("clone");
    if clone.exists() {
        fs::remove_dir_all(&clone).context("removing the clone of an earlier run")?;
    }
    let text = |path: &Path| path.display().to_string();
    Line::new("git clone --quiet --shared").word(&text(root())).word(&text(&clone)).run(log)?;
    let patches = root().join("testdata/mutations");
    let mut patches: Vec<_> = fs::read_dir(&patches)
        .with_context(|| format!("reading {}", patches.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    ensure!(!patches.is_empty(), "there is no patch in testdata/mutations");
    let manifest = text(&clone.join("Cargo.toml"));
    let build = text(&folder.join("target"));
    let git = || Line::new("git -C").word(&text(&clone));
    let cargo = |before: &str| {
        let line = Line::new(&format!("{before} cargo test --locked -p topdeck --test it"));
        line.word("--manifest-path").word(&manifest).env("CARGO_TARGET_DIR", &build)
    };
    cargo("").word(TEST).run(log).context("the random programs fail without a defect put back")?;
    // Whether a program failed, and what all wrote. Other ends than that of a failed test say nothing
    // of a defect, or that time was over.
    let search = || -> Result<(bool, String)> {
        cargo("").word("--no-run").run(log)?;
        let mut output = String::new();
        let search = cargo(&format!("timeout {SEARCH_SECONDS_MAX}")).word(SEARCH);
        let status = search.word("--").word("--ignored").run_reading(log, |line| {
            output.push_str(line);
            output.push('\n');
            true
        })?;
        Ok((!status.success() && output.contains("test result: FAILED"), output))
    };
    // What they find anyway would be taken for each of the defects.
    ensure!(!search()?.0, "a random program of the search fails without a defect put back");
    let find = |patch: &Path| -> Result<String> {
        git().word("checkout").word("--quiet").word(".").run(log)?;
        git()
            .word("apply")
            .word(&text(patch))
            .run(log)
            .context("the patch does not apply any more; make it anew for the code as it is")?;
        let (is_found, output) = search()?;
        ensure!(is_found, "the random programs did not find the defect");
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
    Ok(Outcome::Tests(report))
}
