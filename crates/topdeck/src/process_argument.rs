//! Resolves the process argument of the command line.

use client::print_message;
use inspect::find::{self, MatchPreference, MatchedProcess};

/// Finds the process, and prints a note if the choice is not obvious.
pub(crate) fn find_process(text: &str, prefer: MatchPreference) -> inspect::Result<MatchedProcess> {
    let (process, remark) = find::find_one(text, prefer)?;
    remark.iter().for_each(print_message);
    Ok(process)
}
