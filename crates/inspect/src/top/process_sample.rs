//! One sample of a process.

use std::path::PathBuf;

use shm::ProcessState;

use crate::top::partial_value::SampledSeries;

/// One sample of a process.
#[derive(Debug)]
pub(crate) struct ProcessSample {
    /// Its file, by which it is known.
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) command: String,
    /// Who wrote the file.
    pub(crate) format: &'static str,
    pub(crate) state: ProcessState,
    /// When its metrics were read: nanoseconds of `clock::now`.
    pub(crate) at_ns: u64,
    /// All that it shows, or why it could not be read.
    pub(crate) metrics: Result<Vec<SampledSeries>, String>,
    /// Records that found no room, and series.
    pub(crate) dropped: u64,
    pub(crate) rejected: u64,
}
