//! Tests that are told apart by how their name begins (`loom_`, `miri_`), counted in the sources: a
//! filter that matches nothing also succeeds.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::line::root;

/// How many functions in the sources of `crates` have a name that begins with `prefix`.
pub(crate) fn count_in_sources(crates: &[&str], prefix: &str) -> Result<u64> {
    let mut count = 0;
    for name in crates {
        count += count_below(&root().join("crates").join(name).join("src"), prefix)?;
    }
    Ok(count)
}

fn count_below(folder: &Path, prefix: &str) -> Result<u64> {
    let mut count = 0;
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
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
}
