//! Experiments: an operation that is repeated and timed.

use std::io;
use std::time::Duration;

use clock::Stopwatch;
use hist::{Histogram, Recorder};

use super::experiment_run::LIMITS_NS;
use super::{
    ExperimentSettings, memory_experiment, process_experiment, record_experiment, socket_experiment,
};

/// Measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Open and close a Unix socket while many others are open.
    Sockets,
    /// Start a small program and wait for its exit.
    Processes,
    /// Map, touch and unmap memory in a process with much memory.
    Memory,
    /// Count and record in a process that exports metrics in shared memory.
    Records,
}

/// Experiment with its resources, which are released on drop.
pub(crate) struct PreparedExperiment {
    /// Title with parameters.
    pub(crate) title: String,
    /// Name of the operation.
    pub(crate) operation: &'static str,
    pub(crate) operation_once: Box<dyn FnMut() -> io::Result<()> + Send>,
}

impl Experiment {
    /// All experiments, in the order of the report.
    pub const ALL: &[Experiment] =
        &[Experiment::Sockets, Experiment::Processes, Experiment::Memory, Experiment::Records];

    /// Name and description for a command line.
    pub fn argument(self) -> (&'static str, &'static str) {
        match self {
            Experiment::Sockets => {
                ("sockets", "Open and close a Unix socket while many others are open")
            }
            Experiment::Processes => ("processes", "Start a small program and wait for its exit"),
            Experiment::Memory => {
                ("memory", "Map, touch and unmap memory in a process with much memory")
            }
            Experiment::Records => {
                ("records", "Count and record in a process that exports metrics in shared memory")
            }
        }
    }

    /// Name for a title.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Experiment::Sockets => "Unix sockets",
            Experiment::Processes => "processes",
            Experiment::Memory => "memory",
            Experiment::Records => "records",
        }
    }

    /// Allocates the resources; fails with a reason.
    pub(crate) fn prepare(
        self,
        settings: &ExperimentSettings,
    ) -> Result<PreparedExperiment, String> {
        match self {
            Experiment::Sockets => socket_experiment::prepare(settings.sockets),
            Experiment::Processes => process_experiment::prepare(),
            Experiment::Memory => memory_experiment::prepare(settings.memory_bytes),
            Experiment::Records => record_experiment::prepare(),
        }
    }
}

impl PreparedExperiment {
    /// Nanoseconds per operation, until the time or the number of operations is reached.
    pub(crate) fn run(&mut self, time: Duration, rounds: Option<u64>) -> io::Result<Histogram> {
        let mut recorder = Recorder::new().with_thresholds(&LIMITS_NS.map(|limit| limit - 1));
        let stopwatch = Stopwatch::start();
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for _ in 0..rounds.unwrap_or(u64::MAX) {
            let once = Stopwatch::start();
            (self.operation_once)()?;
            recorder.record(once.elapsed_ns());
            if stopwatch.elapsed_ns() >= time_ns {
                break;
            }
        }
        Ok(recorder.snapshot())
    }
}
