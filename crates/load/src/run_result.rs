//! The result of a run.

use std::collections::BTreeMap;

use hist::Histogram;

use crate::failure::Failure;
use crate::file_limits::FileLimits;
use crate::settings::Settings;
use crate::tally::Tally;
use crate::validity::InvalidReason;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Counts and times of the whole run.
    pub tally: Tally,
    /// Response times by the second of the scheduled time, from the start.
    pub per_second: BTreeMap<u64, Histogram>,
    /// Response times by request, in order of the requests.
    pub per_request: Vec<(String, Histogram)>,
    /// Start: nanoseconds since 1970.
    pub start_unix_ns: i64,
    /// From the start to the last response or the end of the grace period. Nanoseconds.
    pub duration_ns: u64,
    /// Whether it was stopped before all requests were sent.
    pub is_interrupted: bool,
    /// Stalls of the generator: nanoseconds from the start.
    pub stalls: Vec<(u64, u64)>,
    /// By failure kind, the detail of the first failure. Passwords are removed.
    pub first_errors: [Option<String>; Failure::ALL.len()],
    /// Limits of open files; each connection is one.
    pub files: FileLimits,
    /// Why the run is invalid; empty if it is valid.
    pub invalid_reasons: Vec<InvalidReason>,
}

impl RunResult {
    /// An empty result, to which workers add.
    pub(crate) fn new(settings: &Settings, start_unix_ns: i64, files: FileLimits) -> RunResult {
        let names = settings.requests.names();
        RunResult {
            tally: Tally::default(),
            per_second: BTreeMap::new(),
            per_request: names.map(|name| (name.to_owned(), Histogram::default())).collect(),
            start_unix_ns,
            duration_ns: 0,
            is_interrupted: false,
            stalls: Vec::new(),
            first_errors: Default::default(),
            files,
            invalid_reasons: Vec::new(),
        }
    }

    /// Why a finished run of this many threads is invalid.
    pub(crate) fn find_invalid_reasons(&self, threads: usize) -> Vec<InvalidReason> {
        let tally = &self.tally;
        let mut reasons = Vec::new();
        if !self.stalls.is_empty() {
            reasons.push(InvalidReason::GeneratorStalled {
                times: self.stalls.len(),
                total_ns: self.stalls.iter().map(|(from, to)| to - from).sum(),
                not_sent: tally.not_sent,
                observed_late: tally.observed_late,
            });
        }
        reasons.extend(InvalidReason::interim(tally, self.duration_ns, threads));
        if tally.accounted() != tally.scheduled {
            let (scheduled, accounted) = (tally.scheduled, tally.accounted());
            reasons.push(InvalidReason::CountMismatch { scheduled, accounted });
        }
        reasons
    }
}
