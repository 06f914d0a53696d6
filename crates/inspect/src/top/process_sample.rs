//! One sample of a process.

use std::path::PathBuf;

use shm::ProcessState;

use crate::top::partial_value::SampledSeries;

/// One sample of a process.
#[derive(Debug)]
pub(crate) struct ProcessSample {
    /// Path of its file, which identifies it.
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) command: String,
    /// Format of the file.
    pub(crate) format: &'static str,
    pub(crate) state: ProcessState,
    /// Time of the sample: nanoseconds of `clock::now`.
    pub(crate) at_ns: u64,
    /// All series, or the error.
    pub(crate) metrics: Result<Vec<SampledSeries>, String>,
    /// Lost records and rejected series.
    pub(crate) dropped: u64,
    pub(crate) rejected: u64,
}
