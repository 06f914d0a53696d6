//! What was seen of a process at one moment.

use std::path::PathBuf;

use shm::Fate;

use crate::top::reading::Seen;

/// A look at one process.
#[derive(Debug)]
pub(crate) struct Look {
    /// Its file, by which it is known.
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) command: String,
    /// Who wrote the file.
    pub(crate) format: &'static str,
    pub(crate) fate: Fate,
    /// When its metrics were read: nanoseconds of `clock::now`.
    pub(crate) at_ns: u64,
    /// All that it shows, or why it could not be read.
    pub(crate) metrics: Result<Vec<Seen>, String>,
    /// Records that found no room, and series.
    pub(crate) lost: u64,
    pub(crate) refused: u64,
}
