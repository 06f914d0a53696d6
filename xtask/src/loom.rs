//! The loom part: all interleavings of the lock-free code's threads, up to some preemptions.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::line::{Line, root};
use crate::part::Outcome;

/// The workspace that has the lock-free files of all crates in it; release would only compile longer.
const MODELS: &str =
    "cargo test --manifest-path loom/Cargo.toml --locked --target-dir loom/target loom_";

/// `preemptions`: how often threads may be stopped mid-way in one execution; `None` is no bound.
pub(crate) fn run(part: &str, preemptions: Option<u32>) -> Result<Outcome> {
    let line = Line::new(MODELS);
    let line = match preemptions {
        Some(count) => line.env("LOOM_MAX_PREEMPTIONS", &count.to_string()),
        None => line.unset("LOOM_MAX_PREEMPTIONS"),
    };
    let passed_count = line.run_tests(part)?;
    // A file that loom/ does not take in has its models compiled by nobody, and nothing else would tell.
    let written_count = models(&root().join("crates"))?;
    ensure!(
        passed_count == written_count && written_count > 0,
        "{passed_count} models ran, but crates/ has {written_count} tests named loom_: \
         is the file of each taken in by loom/tests/?"
    );
    Ok(Outcome::Passed)
}

/// How many models stand in the Rust files of a folder.
fn models(folder: &Path) -> Result<u64> {
    let listed = || format!("cannot read {}", folder.display());
    let mut count = 0;
    for entry in fs::read_dir(folder).with_context(listed)? {
        let path = entry.with_context(listed)?.path();
        if path.is_dir() {
            count += models(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            count += models_in(&text);
        }
    }
    Ok(count)
}

fn models_in(text: &str) -> u64 {
    text.lines().filter(|line| line.trim_start().starts_with("fn loom_")).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_counted_by_their_names() {
        let text = "//! fn loom_no\nmod tests {\n    #[test]\n    fn loom_a_b() {\n    }\n}\n";
        assert_eq!(models_in(text), 1);
        assert_eq!(models_in("fn other() { fn_loom_() }\n"), 0);
    }

    #[test]
    fn the_tree_has_models() {
        assert!(models(&root().join("crates")).unwrap() > 0);
    }
}
