//! A source of host metrics: its settings, what it opens, and what it reads at the end of each
//! interval. Each source has one file and one row in [`crate::source_table`].

use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bpf::{BpfStats, Btf};
use intake::Intake;
use role::settings::{SettingsCheck, TableRef};
use serde::de::DeserializeOwned;

use crate::error::Result;
use crate::metric::RowReporter;
use crate::metrics;
use crate::shm_metrics::running_processes::RunningProcesses;

/// The settings table that holds the keys of all sources.
pub(crate) const TABLE: TableRef<'static> = TableRef::named("host");

/// Settings of a source: a field for each key of `[host]`, and the constructor of the source.
pub(crate) trait SourceSettings:
    DeserializeOwned + Default + fmt::Debug + PartialEq + Send + Sync + 'static
{
    /// Keys of the source. Each key belongs to one source.
    const KEYS: &'static [&'static str];

    /// Reports invalid keys.
    fn check(&self, _check: &mut SettingsCheck<'_>) {}

    /// Whether the settings enable the source.
    fn is_enabled(&self) -> bool;

    /// Opens the source if it is enabled and available, and notes why it is not available. Called
    /// for all sources, enabled or not.
    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>>;
}

/// Source of host metrics, read at the end of each interval.
pub(crate) trait HostSource: fmt::Debug + Send {
    /// Reports events since the last committed scrape; cumulative counters started at `began`.
    /// Returns how many files could not be read.
    fn read(&mut self, report: &mut RowReporter<'_>, began: i64) -> u64;

    /// Commits the last scrape: its events are not reported again.
    fn commit(&mut self) {}

    /// Why the source is degraded since the last scrape, once.
    fn degradation(&mut self) -> Option<Note> {
        None
    }

    /// Stops the thread of the source, if it has one. A final scrape follows.
    fn stop(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Why an enabled source is unavailable or degraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) collector: &'static str,
    pub(crate) text: String,
}

/// Context in which sources are opened; collects their warnings.
pub(crate) struct Opening<'a> {
    /// Host name.
    pub(crate) host: &'a str,
    /// Directory of the process table; `None` for [`shm::metrics_dir`].
    pub(crate) dir: Option<&'a Path>,
    pub(crate) intake: &'a Arc<Intake>,
    /// Where a collector of programs publishes those that run.
    pub(crate) live: RunningProcesses,
    /// The kernel's BTF, or why it is unavailable; read at first use.
    types: OnceCell<Result<Btf, String>>,
    /// Enabled BPF programs and whether they are attached.
    pub(crate) programs: Vec<(&'static str, bool)>,
    pub(crate) notes: Vec<Note>,
}

impl<'a> Opening<'a> {
    pub(crate) fn new(
        host: &'a str,
        dir: Option<&'a Path>,
        intake: &'a Arc<Intake>,
    ) -> Opening<'a> {
        let (types, programs, notes) = (OnceCell::new(), Vec::new(), Vec::new());
        let live = RunningProcesses::default();
        Opening { host, dir, intake, live, types, programs, notes }
    }

    /// The kernel's BTF, or why it is unavailable.
    pub(crate) fn types(&self) -> Result<&Btf, String> {
        self.types.get_or_init(bpf::kernel_types).as_ref().map_err(String::clone)
    }

    /// Starts a BPF program. On failure, notes `otherwise` with the reason.
    pub(crate) fn start<T>(
        &mut self,
        program: &'static str,
        otherwise: &str,
        start: impl FnOnce(&Btf) -> Result<T, String>,
    ) -> Option<T> {
        let started = self.types().and_then(start);
        self.note(program, otherwise, started.as_ref().map(|_| ()).map_err(String::clone));
        started.ok()
    }

    /// Notes whether a BPF program is attached.
    pub(crate) fn note(
        &mut self,
        program: &'static str,
        otherwise: &str,
        started: Result<(), String>,
    ) {
        self.programs.push((program, started.is_ok()));
        let note = |reason| Note { collector: program, text: format!("{otherwise}: {reason}") };
        self.notes.extend(started.err().map(note));
    }

    /// Whether a BPF program is enabled and not attached.
    pub(crate) fn has_failed(&self, program: &str) -> bool {
        self.programs.contains(&(program, false))
    }
}

/// Reports the cost of a BPF program.
pub(crate) fn report_cost(report: &mut RowReporter<'_>, program: &str, began: i64, cost: BpfStats) {
    let labels = [("program", program)];
    report.count(&metrics::BPF_RECURSION_MISSES, &labels, began, cost.recursion_misses);
    if cost.runs > 0 {
        report.count(&metrics::BPF_RUNS, &labels, began, cost.runs);
        report.sum(&metrics::BPF_TIME, &labels, began, cost.time_ns as f64 / 1e9);
    }
}

/// Settings of a source, type-erased.
#[derive(Clone)]
pub(crate) struct SourceHandle(Arc<dyn DynSource>);

impl SourceHandle {
    pub(crate) fn new(settings: impl SourceSettings) -> SourceHandle {
        SourceHandle(Arc::new(settings))
    }

    pub(crate) fn check(&self, check: &mut SettingsCheck<'_>) {
        self.0.check(check);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.0.is_enabled()
    }

    pub(crate) fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        self.0.open(opening)
    }

    /// The settings, if they have that type.
    pub(crate) fn get<S: SourceSettings>(&self) -> Option<&S> {
        (&*self.0 as &dyn Any).downcast_ref()
    }
}

impl fmt::Debug for SourceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl PartialEq for SourceHandle {
    fn eq(&self, other: &SourceHandle) -> bool {
        self.0.equals(&*other.0)
    }
}

/// [`SourceSettings`], object-safe.
trait DynSource: Any + fmt::Debug + Send + Sync {
    fn equals(&self, other: &(dyn DynSource + 'static)) -> bool;
    fn check(&self, check: &mut SettingsCheck<'_>);
    fn is_enabled(&self) -> bool;
    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>>;
}

impl<S: SourceSettings> DynSource for S {
    fn equals(&self, other: &(dyn DynSource + 'static)) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn check(&self, check: &mut SettingsCheck<'_>) {
        SourceSettings::check(self, check);
    }

    fn is_enabled(&self) -> bool {
        SourceSettings::is_enabled(self)
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        SourceSettings::open(self, opening)
    }
}
