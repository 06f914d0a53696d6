//! A source of the host: one file that opens, reads and reports something, and a row of [`SOURCES`].

use std::fmt;

use crate::bpf::BpfStats;
use crate::bpf::btf::Btf;
use crate::hiccup::HiccupRecorder;
use crate::metric::RowReporter;
use crate::metrics;
use crate::settings::Settings;
use crate::{block_io, hiccup, procfs, run_queue};

/// Opens a source, if the settings want it and it can be.
pub(crate) type Open = fn(&mut Opening<'_>) -> Option<Box<dyn HostSource>>;

/// All sources, in the order in which they are opened and read. Files of the kernel come after block
/// I/O: where it has no distributions, there are its sums.
pub(crate) const SOURCES: &[Open] = &[block_io::open, run_queue::open, hiccup::open, procfs::open];

/// Something of the host that is read at the end of each interval.
pub(crate) trait HostSource: fmt::Debug + Send {
    /// Reports what happened since the last reading that is safe; what counts since a start counts
    /// since `began`. Returns how many files could not be read.
    fn read(&mut self, report: &mut RowReporter<'_>, began: i64) -> u64;

    /// The last reading is safe: what it reported does not come again.
    fn commit(&mut self) {}
}

/// What is wanted and not told, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) collector: &'static str,
    pub(crate) text: String,
}

/// What sources are opened with, and what they note.
pub(crate) struct Opening<'a> {
    pub(crate) settings: &'a Settings,
    /// The kernel's types, or why there are none.
    pub(crate) types: Result<&'a Btf, String>,
    /// What the thread of hiccups records.
    pub(crate) waits: Option<HiccupRecorder>,
    /// Programs in the kernel that are wanted, and whether they are at work.
    pub(crate) programs: Vec<(&'static str, bool)>,
    pub(crate) notes: Vec<Note>,
}

impl Opening<'_> {
    /// Starts a program in the kernel. Where it cannot be, `otherwise` is noted with the reason.
    pub(crate) fn start<T>(
        &mut self,
        program: &'static str,
        otherwise: &str,
        start: impl FnOnce(&Btf) -> Result<T, String>,
    ) -> Option<T> {
        let started = self.types.clone().and_then(start);
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

    /// Whether a program is at work.
    pub(crate) fn is_running(&self, program: &str) -> bool {
        self.programs.contains(&(program, true))
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
