//! Counts tests with a name prefix (`loom_`, `miri_`) in the sources, because a test filter that
//! matches nothing succeeds.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::ci_part::PartOutcome;
use crate::command_line::root;

/// Fails unless a part ran every test in `crates/` whose name starts with `prefix`. After a failed
/// test it reports only that.
pub(crate) fn check_all_ran_with_prefix(outcome: &PartOutcome, prefix: &str) -> Result<()> {
    let (PartOutcome::Tests(report) | PartOutcome::Unchanged(report)) = outcome else {
        return Ok(());
    };
    let (ran, written) = (report.count(), count_in_sources(prefix)?);
    ensure!(
        ran == written || !report.failed.is_empty(),
        "{ran} tests ran, but crates/ contains {written} whose names start with {prefix}"
    );
    Ok(())
}

/// Number of functions in `crates/` whose name starts with `prefix`; fails if there is none.
fn count_in_sources(prefix: &str) -> Result<u64> {
    let count = count_below(&root().join("crates"), prefix)?;
    ensure!(count > 0, "crates/ contains no test named {prefix}…");
    Ok(count)
}

fn count_below(dir: &Path, prefix: &str) -> Result<u64> {
    let mut count = 0;
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            count += count_below(&path, prefix)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            count += count_in(&text, prefix);
        }
    }
    Ok(count)
}

fn count_in(text: &str, prefix: &str) -> u64 {
    let function = format!("fn {prefix}");
    text.lines().filter(|line| line.trim_start().starts_with(&function)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_counted_and_mentions_are_not() {
        let text = "// fn miri_no\n    fn miri_a() {}\nfn miri_b() { let x = \"fn miri_\"; }\n";
        assert_eq!(count_in(text, "miri_"), 2);
    }

    #[test]
    fn a_prefix_that_no_test_has_is_an_error() {
        assert!(count_in_sources("loom_").unwrap() > 0);
        assert!(count_in_sources("no_test_begins_like_this_").is_err());
    }
}
