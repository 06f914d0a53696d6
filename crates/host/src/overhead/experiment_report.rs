//! Report of one experiment.

use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use hist::Histogram;

use super::ExperimentSettings;
use super::analysis;
use super::cpus::Cpus;
use super::experiment::{Experiment, PreparedExperiment};
use super::experiment_run::{self, ExperimentRun};
use super::observer::{self, ObserverSpec};
use super::observer_process::ObserverProcess;

/// Name of the baseline row.
const BASELINE: &str = "baseline";
/// Poll interval of the end of a run: long enough not to disturb it.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(20);

/// Results of one experiment.
pub(crate) struct ExperimentReport {
    name: &'static str,
    /// Title, or the reason why the experiment was not run.
    title: Result<String, String>,
    rows: Vec<ExperimentRun>,
    /// Conclusions on observers.
    conclusions: Vec<String>,
    /// Observers without a result, with the reason.
    failures: Vec<String>,
}

impl ExperimentReport {
    /// Runs the baseline, each observer, and the baseline again.
    pub(crate) fn measure(
        experiment: Experiment,
        settings: &ExperimentSettings,
        cpus: &Cpus,
        progress: &mut dyn FnMut(&str),
    ) -> ExperimentReport {
        let name = experiment.name();
        let (rows, said, missing) = (Vec::new(), Vec::new(), Vec::new());
        let mut section = ExperimentReport {
            name,
            title: Err(String::new()),
            rows,
            conclusions: said,
            failures: missing,
        };
        let mut prepared = match experiment.prepare(settings) {
            Ok(prepared) => prepared,
            Err(reason) => {
                section.title = Err(reason);
                return section;
            }
        };
        section.title = Ok(prepared.title.clone());
        let mut run = |beside: &'static str| {
            run_experiment(&mut prepared, settings, cpus, || {
                progress(&format!("{name}, with {beside}"));
            })
        };
        if let Err(error) = section.run_all(experiment, &mut run) {
            section.title = Err(format!("the operation failed: {error}"));
        }
        let still: Vec<&ExperimentRun> =
            section.rows.iter().filter(|row| row.observer == BASELINE).collect();
        let readers: Vec<&ObserverSpec> = observer::observers_of(experiment).collect();
        for row in &section.rows {
            let Some(reader) = readers.iter().find(|reader| reader.name == row.observer) else {
                continue;
            };
            section.conclusions.push(analysis::conclusion(
                row,
                &still,
                prepared.operation,
                reader.remark,
            ));
        }
        section
    }

    fn run_all(
        &mut self,
        experiment: Experiment,
        run: &mut dyn FnMut(&'static str) -> io::Result<Histogram>,
    ) -> io::Result<()> {
        self.rows.push(ExperimentRun { observer: BASELINE, times: run(BASELINE)?, rounds: None });
        for reader in observer::observers_of(experiment) {
            let name = reader.name;
            let observer = match ObserverProcess::start(reader) {
                Ok(observer) => observer,
                Err(reason) => {
                    self.failures.push(format!("{name}: not measured: {reason}"));
                    continue;
                }
            };
            self.conclusions.extend(observer.warnings.iter().map(|note| format!("{name}: {note}")));
            let times = run(name)?;
            match observer.stop() {
                Ok(read) => {
                    self.rows.push(ExperimentRun { observer: name, times, rounds: Some(read) })
                }
                Err(reason) => self.failures.push(format!("{name}: not measured: {reason}")),
            }
        }
        self.rows.push(ExperimentRun { observer: BASELINE, times: run(BASELINE)?, rounds: None });
        Ok(())
    }

    /// Whether all observers were measured.
    pub(crate) fn is_complete(&self) -> bool {
        self.title.is_ok() && self.failures.is_empty()
    }
}

impl fmt::Display for ExperimentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.title {
            Ok(title) => {
                writeln!(f, "{}: {title}", self.name)?;
                f.write_str(&experiment_run::table_text(&self.rows))?;
            }
            Err(reason) => writeln!(f, "{}: not measured: {reason}", self.name)?,
        }
        self.conclusions.iter().chain(&self.failures).try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// One run, on a new thread on the measured CPU.
fn run_experiment(
    prepared: &mut PreparedExperiment,
    settings: &ExperimentSettings,
    cpus: &Cpus,
    mut show: impl FnMut(),
) -> io::Result<Histogram> {
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            cpus.move_to_measured();
            prepared.run(settings.duration, settings.max_operations)
        });
        while !run.is_finished() {
            show();
            thread::sleep(PROGRESS_INTERVAL);
        }
        run.join().expect("BUG: a run panicked")
    })
}
