//! What is done again and again, and how long each time takes.

use std::io;
use std::time::Duration;

use clock::Stopwatch;
use hist::{Histogram, Recorder};

use super::experiment_run::LIMITS_NS;
use super::{Options, memory_experiment, process_experiment, record_experiment, socket_experiment};

/// Measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Experiment {
    /// Open and close a Unix socket while many others are held
    Sockets,
    /// Start a small program and wait for its end
    Processes,
    /// Map, touch and unmap memory in a process that has much of it
    Memory,
    /// Count and record in a process that shows metrics in shared memory
    Records,
}

/// An experiment with all it needs, which goes when it is dropped.
pub(crate) struct PreparedExperiment {
    /// What it is, with its numbers.
    pub(crate) title: String,
    /// What is done once.
    pub(crate) operation: &'static str,
    pub(crate) operation_once: Box<dyn FnMut() -> io::Result<()> + Send>,
}

impl Experiment {
    pub(crate) const ALL: &[Experiment] =
        &[Experiment::Sockets, Experiment::Processes, Experiment::Memory, Experiment::Records];

    /// Its name in a title.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Experiment::Sockets => "Unix sockets",
            Experiment::Processes => "processes",
            Experiment::Memory => "memory",
            Experiment::Records => "records",
        }
    }

    /// Makes ready; or why that cannot be.
    pub(crate) fn prepare(self, options: &Options) -> Result<PreparedExperiment, String> {
        match self {
            Experiment::Sockets => socket_experiment::prepare(options.sockets),
            Experiment::Processes => process_experiment::prepare(),
            Experiment::Memory => memory_experiment::prepare(options.memory),
            Experiment::Records => record_experiment::prepare(),
        }
    }
}

impl PreparedExperiment {
    /// Nanoseconds of each time, until the time or the count is over.
    pub(crate) fn run(&mut self, time: Duration, rounds: Option<u64>) -> io::Result<Histogram> {
        let mut recorder = Recorder::new().with_thresholds(&LIMITS_NS.map(|limit| limit - 1));
        let begun = Stopwatch::start();
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for _ in 0..rounds.unwrap_or(u64::MAX) {
            let once = Stopwatch::start();
            (self.operation_once)()?;
            recorder.record(once.elapsed_ns());
            if begun.elapsed_ns() >= time_ns {
                break;
            }
        }
        Ok(recorder.snapshot())
    }
}
