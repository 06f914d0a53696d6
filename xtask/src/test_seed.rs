//! Seed of the random tests of `make test`: property tests, and the fuzzer that changes seeds.
//!
//! It is that of the sources: a commit draws the same on every machine, so that a failure of CI is
//! repeated by the same command, and each commit draws anew. `cargo test` and `make soak` draw anew
//! in each run.

use std::sync::OnceLock;

use anyhow::{Context as _, Result};

use crate::command_line::CommandLine;

/// Environment variable with another seed.
pub(crate) const VARIABLE: &str = "TOPDECK_TEST_SEED";

/// Environment variable from which property tests read their seed.
pub(crate) const PROPERTY_TESTS_VARIABLE: &str = "PROPTEST_RNG_SEED";

/// Returns the seed: that of the environment, or else of the tree of the last commit; 1 if git does
/// not know it.
///
/// # Errors
///
/// Fails if the variable is not a number.
pub(crate) fn test_seed() -> Result<u64> {
    static SEED: OnceLock<u64> = OnceLock::new();
    if let Some(seed) = SEED.get() {
        return Ok(*seed);
    }
    let seed = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE}={text} is not a number"))?,
        Err(_) => of_commit().unwrap_or(1),
    };
    Ok(*SEED.get_or_init(|| seed))
}

fn of_commit() -> Result<u64> {
    let tree = CommandLine::new("git rev-parse HEAD^{tree}").stdout()?;
    let tree = String::from_utf8(tree).context("git printed no name of a tree")?;
    let start = tree.get(..16).context("the name of a tree is too short")?;
    u64::from_str_radix(start, 16).with_context(|| format!("not the name of a tree: {tree}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_one_seed() {
        assert_eq!(of_commit().unwrap(), of_commit().unwrap());
        assert_eq!(test_seed().unwrap(), test_seed().unwrap());
    }
}
