//! Overhead of monitoring tools on this machine.
//!
//! An operation is repeated on one CPU: without an observer, and while an observer process runs on
//! the other CPUs. A run ends after its time or its number of operations. The first and the last
//! run are baselines without an observer; their difference is noise. An observer exits with this
//! process. No files are written, except that this process exports metrics in shared memory for
//! observers to read.

mod analysis;
mod cpus;
mod experiment;
mod experiment_report;
mod experiment_run;
mod host_observer;
mod memory_disk;
mod memory_experiment;
mod metrics_observer;
mod observer;
mod observer_process;
mod process_experiment;
mod record_experiment;
mod socket_experiment;

use std::fmt::Write as _;
use std::time::Duration;

use cpus::Cpus;
use experiment_report::ExperimentReport;
use record_experiment::ExampleMetrics;

pub use experiment::Experiment;
pub use observer_process::run_as_observer;
pub use socket_experiment::SOCKETS_MAX;

/// Length and size of the runs.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentSettings {
    /// Duration of each run.
    pub duration: Duration,
    /// Maximum number of operations per run.
    pub max_operations: Option<u64>,
    /// Number of other Unix sockets held open.
    pub sockets: u64,
    /// Memory of the process while it maps more, in bytes.
    pub memory_bytes: u64,
}

/// Report of some experiments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterferenceReport {
    /// Tables and conclusions, one section per experiment.
    pub text: String,
    /// Whether everything was measured.
    pub is_complete: bool,
}

/// Number of runs of some experiments.
pub fn run_count(experiments: &[Experiment]) -> usize {
    experiments.iter().map(|it| 2 + observer::observers_of(*it).count()).sum()
}

/// Runs experiments one after another. `progress` is called about fifty times a second with the
/// name of the current run.
pub fn measure(
    experiments: &[Experiment],
    settings: &ExperimentSettings,
    progress: &mut dyn FnMut(&str),
) -> InterferenceReport {
    // Metrics of this process for the shared memory observers. They report an error if it fails.
    let _shown = ExampleMetrics::create();
    let cpus = Cpus::reserve_one();
    // Starts the thread of the clock here and not on the measured CPU.
    clock::now();
    let mut report = InterferenceReport { text: String::new(), is_complete: true };
    for experiment in experiments {
        let section = ExperimentReport::measure(*experiment, settings, &cpus, progress);
        report.is_complete &= section.is_complete();
        let _ = writeln!(report.text, "{section}");
    }
    let _ = writeln!(report.text, "{}", cpus.description());
    report
}
