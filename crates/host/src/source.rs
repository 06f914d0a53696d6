//! A source of the host: one file with its settings and what it opens, reads and reports, and a row
//! of [`SOURCES`].

use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use intake::Intake;
use role::settings::{Document, Problems, SettingsCheck, TableRef};
use serde::de::DeserializeOwned;

use crate::block_io::BlockIoSettings;
use crate::bpf::btf::Btf;
use crate::bpf::{self, BpfStats};
use crate::error::Result;
use crate::hiccup::HiccupSettings;
use crate::metric::RowReporter;
use crate::metrics;
use crate::process_table::ProcessTableSettings;
use crate::procfs::ProcfsSettings;
use crate::run_queue::RunQueueSettings;
use crate::shm_metrics::ShmMetricsSettings;

/// The table of all sources.
pub(crate) const TABLE: TableRef<'static> = TableRef::named("host");

/// All sources, in the order in which they are opened and read. Hiccups come first: their first row
/// begins when sources are opened, and programs in the kernel take some time. Files of the kernel
/// come after block I/O: where it has no distributions, there are its sums.
pub(crate) const SOURCES: &[SourceRow] = &[
    row::<HiccupSettings>(),
    row::<BlockIoSettings>(),
    row::<RunQueueSettings>(),
    row::<ProcfsSettings>(),
    row::<ProcessTableSettings>(),
    row::<ShmMetricsSettings>(),
];

/// The settings of a source, a field for each key of `[host]`, with what opens it.
pub(crate) trait SourceSettings:
    DeserializeOwned + Default + fmt::Debug + PartialEq + Send + Sync + 'static
{
    /// Its keys. No other source has them.
    const KEYS: &'static [&'static str];

    /// Reports what is wrong with them.
    fn check(&self, _check: &mut SettingsCheck<'_>) {}

    /// Whether the settings ask for it.
    fn is_enabled(&self) -> bool;

    /// Opens it, if the settings ask for it and the system has it; what is missing is noted. Called
    /// for all sources, enabled or not.
    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>>;
}

/// Something of the host that is read at the end of each interval.
pub(crate) trait HostSource: fmt::Debug + Send {
    /// Reports what happened since the last reading that is safe; what counts since a start counts
    /// since `began`. Returns how many files could not be read.
    fn read(&mut self, report: &mut RowReporter<'_>, began: i64) -> u64;

    /// The last reading is safe: what it reported does not come again.
    fn commit(&mut self) {}

    /// Why it is less than it was since the last reading, once.
    fn degradation(&mut self) -> Option<Note> {
        None
    }

    /// Ends its thread, if it has one. A last reading follows.
    fn stop(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What is wanted and not told, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) collector: &'static str,
    pub(crate) text: String,
}

/// What sources are opened with, and what they note.
pub(crate) struct Opening<'a> {
    /// The host's name.
    pub(crate) host: &'a str,
    /// The folder of the process table; `None` for [`shm::folder`].
    pub(crate) folder: Option<&'a Path>,
    pub(crate) intake: &'a Arc<Intake>,
    /// The kernel's types, or why there are none; read for the first that needs them.
    types: OnceCell<Result<Btf, String>>,
    /// Programs in the kernel that are wanted, and whether they are at work.
    pub(crate) programs: Vec<(&'static str, bool)>,
    pub(crate) notes: Vec<Note>,
}

impl<'a> Opening<'a> {
    pub(crate) fn new(
        host: &'a str,
        folder: Option<&'a Path>,
        intake: &'a Arc<Intake>,
    ) -> Opening<'a> {
        let (types, programs, notes) = (OnceCell::new(), Vec::new(), Vec::new());
        Opening { host, folder, intake, types, programs, notes }
    }

    /// The kernel's types, or why there are none.
    pub(crate) fn types(&self) -> Result<&Btf, String> {
        self.types.get_or_init(bpf::kernel_types).as_ref().map_err(String::clone)
    }

    /// Starts a program in the kernel. Where it cannot be, `otherwise` is noted with the reason.
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

    /// Notes whether a program is at work.
    pub(crate) fn note(
        &mut self,
        program: &'static str,
        otherwise: &str,
        started: Result<(), String>,
    ) {
        self.programs.push((program, started.is_ok()));
        let note = |why| Note { collector: program, text: format!("{otherwise}: {why}") };
        self.notes.extend(started.err().map(note));
    }

    /// Whether a program is wanted and not at work.
    pub(crate) fn has_failed(&self, program: &str) -> bool {
        self.programs.contains(&(program, false))
    }
}

/// Reports what a program in the kernel cost.
pub(crate) fn report_cost(report: &mut RowReporter<'_>, program: &str, began: i64, cost: BpfStats) {
    let labels = [("program", program)];
    report.count(&metrics::BPF_RECURSION_MISSES, &labels, began, cost.recursion_misses);
    if cost.runs > 0 {
        report.count(&metrics::BPF_RUNS, &labels, began, cost.runs);
        report.sum(&metrics::BPF_TIME, &labels, began, cost.time_ns as f64 / 1e9);
    }
}

/// The row of a source.
pub(crate) struct SourceRow {
    pub(crate) keys: &'static [&'static str],
    /// Without keys.
    pub(crate) default: fn() -> AnySource,
    /// With the keys of a file.
    pub(crate) read: fn(&Document<'_>) -> Result<AnySource, Problems>,
}

const fn row<S: SourceSettings>() -> SourceRow {
    SourceRow { keys: S::KEYS, default: default::<S>, read: read::<S> }
}

fn default<S: SourceSettings>() -> AnySource {
    AnySource(Arc::new(S::default()))
}

fn read<S: SourceSettings>(document: &Document<'_>) -> Result<AnySource, Problems> {
    Ok(AnySource(Arc::new(document.read_table::<S>(TABLE, S::KEYS)?)))
}

/// The settings of any source.
#[derive(Clone)]
pub(crate) struct AnySource(Arc<dyn Erased>);

impl AnySource {
    pub(crate) fn check(&self, check: &mut SettingsCheck<'_>) {
        self.0.check(check);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.0.is_enabled()
    }

    pub(crate) fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        self.0.open(opening)
    }

    /// The settings, if they are of that source.
    pub(crate) fn get<S: SourceSettings>(&self) -> Option<&S> {
        (&*self.0 as &dyn Any).downcast_ref()
    }
}

impl fmt::Debug for AnySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl PartialEq for AnySource {
    fn eq(&self, other: &AnySource) -> bool {
        self.0.equals(&*other.0)
    }
}

/// [`SourceSettings`] without its type.
trait Erased: Any + fmt::Debug + Send + Sync {
    fn equals(&self, other: &(dyn Erased + 'static)) -> bool;
    fn check(&self, check: &mut SettingsCheck<'_>);
    fn is_enabled(&self) -> bool;
    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>>;
}

impl<S: SourceSettings> Erased for S {
    fn equals(&self, other: &(dyn Erased + 'static)) -> bool {
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
