//! Progress of a run.

use crate::tally::Tally;

/// Receives progress of a run.
pub trait Observer {
    /// The run starts at `start_ns` of the clock, some milliseconds ahead; the second value is the
    /// same as in [`RunResult`].
    fn run_started(&mut self, _start_ns: u64, _start_unix_ns: i64) {}

    /// A second ended, `end_ns` after the start: requests that ended in it. Seconds arrive in
    /// order, once all threads have reported. The last one ends with the run.
    fn second_ended(&mut self, _end_ns: u64, _tally: &Tally) {}
}

/// Ignores progress.
impl Observer for () {}
