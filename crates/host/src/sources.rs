//! All that is read of a host, together: what is there, what is not and why, and one reading of it.
//!
//! What happened between readings is kept until [`Sources::keep`] says that a reading is safe: one that was not taken
//! comes again within the next.

use std::sync::{Arc, OnceLock};

use hist::Histogram;
use intake::{Counter, Meter};

use crate::block_io::{BlockIo, Part};
use crate::bpf;
use crate::bpf::Cost;
use crate::hiccup::Waits;
use crate::metric::{Report, Take};
use crate::own;
use crate::processes::Processes;
use crate::procfs::Procfs;
use crate::run_queue::RunQueue;
use crate::settings::Settings;

/// The programs' names, as labels have them.
const BLOCK_IO: &str = "block_io";
const RUN_QUEUE: &str = "run_queue";
const PROCESSES: &str = "processes";
const OUT_OF_PROC: &str = "processes are read out of /proc, at more cost";

/// What is not told, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) about: &'static str,
    pub(crate) text: String,
}

/// All that is read.
#[derive(Debug)]
pub(crate) struct Sources {
    procfs: Option<Procfs>,
    block_io: Option<BlockIo>,
    run_queue: Option<RunQueue>,
    /// Until somebody takes them who publishes them.
    processes: Option<Processes>,
    /// Why they are read out of `/proc`, if they are: that may begin at any time.
    out_of_proc: Option<Arc<OnceLock<String>>>,
    waits: Option<Waits>,
    /// Waits of readings that were not taken.
    late: Histogram,
    /// Programs that are wanted, and whether they are at work.
    wanted: Vec<(&'static str, bool)>,
    notes: Vec<Note>,
    /// So many of them were told.
    noted: usize,
    /// Since when the programs count.
    began: i64,
    unread: Counter,
}

impl Sources {
    /// Opens what the settings want, as far as it is to be had.
    pub(crate) fn open(
        settings: &Settings,
        waits: Option<Waits>,
        began: i64,
        meter: &Meter,
    ) -> Sources {
        let mut notes = Vec::new();
        let mut wanted = Vec::new();
        let types = (settings.block_io || settings.run_queue || settings.processes)
            .then(bpf::types)
            .unwrap_or(Err(String::new()));
        let types = types.as_ref().map_err(String::clone);
        let mut note = |about, text: &str, found: Result<(), String>| {
            wanted.push((about, found.is_ok()));
            notes.extend(found.err().map(|why| Note { about, text: format!("{text}: {why}") }));
        };
        let mut block_io = None;
        if settings.block_io {
            let started = types.clone().and_then(BlockIo::start).map(|it| block_io = Some(it));
            let text = "block I/O has sums and means only, no distributions";
            note(BLOCK_IO, text, started);
        }
        let mut run_queue = None;
        if settings.run_queue {
            let started = types.clone().and_then(RunQueue::start).map(|it| run_queue = Some(it));
            note(RUN_QUEUE, "there are no times of tasks waiting for a processor", started);
        }
        let processes = settings.processes.then(|| Processes::with(types));
        let out_of_proc = processes.as_ref().map(Processes::shared_note);
        if let Some(why) = &out_of_proc {
            let started = why.get().map_or(Ok(()), |why| Err(why.clone()));
            note(PROCESSES, OUT_OF_PROC, started);
        }
        let sums_only = settings.block_io && block_io.is_none();
        let procfs = match settings.procfs {
            true => Some(Procfs::open()),
            false => sums_only.then(Procfs::open_disks),
        };
        let unread = meter.counter(
            "topdeck_host_unread_files_total",
            "files of the kernel that could not be read",
            &[],
        );
        let late = Histogram::default();
        Sources {
            procfs,
            block_io,
            run_queue,
            processes,
            out_of_proc,
            waits,
            late,
            wanted,
            notes,
            noted: 0,
            began,
            unread,
        }
    }

    /// Why what is wanted is not told.
    pub(crate) fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The processes, for who publishes them.
    pub(crate) fn take_processes(&mut self) -> Option<Processes> {
        self.processes.take()
    }

    /// Something is not told, of which the sources know nothing.
    pub(crate) fn add_note(&mut self, text: String) {
        self.notes.push(Note { about: PROCESSES, text });
    }

    /// Takes note of it when the program that reads processes has failed since.
    fn look_at_processes(&mut self) {
        let Some(why) = self.out_of_proc.as_ref().and_then(|why| why.get()) else { return };
        let works = self.wanted.iter_mut().find(|(program, works)| *program == PROCESSES && *works);
        if let Some((_, works)) = works {
            *works = false;
            self.notes.push(Note { about: PROCESSES, text: format!("{OUT_OF_PROC}: {why}") });
        }
    }

    /// Reads all.
    pub(crate) fn read(&mut self, report: &mut Report<'_>) {
        if let Some(procfs) = &mut self.procfs {
            self.unread.add(procfs.read(report));
        }
        self.look_at_processes();
        for (program, works) in &self.wanted {
            report.take(&own::BPF_AVAILABLE, &[("program", program)], f64::from(u8::from(*works)));
        }
        for note in &self.notes[self.noted..] {
            report.text(&own::NOTE, &[("about", note.about)], &note.text);
        }
        self.read_block_io(report);
        self.read_run_queue(report);
        if let Some(waits) = &self.waits {
            self.late.merge(&waits.interval()).expect("BUG: one scheme, fewer than 2^64 values");
            if !self.late.is_empty() {
                report.distribution(&own::HICCUP, &[], self.late.clone());
            }
        }
    }

    fn read_block_io(&mut self, report: &mut Report<'_>) {
        let Some(block_io) = &mut self.block_io else { return };
        let Ok(all) = block_io.read() else {
            // No memory for a window into the kernel's: it comes with the next reading.
            return self.unread.add(1);
        };
        let mut untimed = 0;
        for found in all {
            let labels = [("device", found.device.as_str()), ("operation", found.operation)];
            for (part, times) in found.times {
                let metric = match part {
                    Part::Total => &own::BLOCK_IO,
                    Part::Device => &own::BLOCK_IO_DEVICE,
                };
                report.distribution(metric, &labels, times);
            }
            report.count(&own::BLOCK_IO_ERRORS, &labels, self.began, found.errors);
            untimed += found.without_start;
        }
        for (cause, count) in [("no start", untimed), ("no slot", block_io.without_slot())] {
            report.count(&own::BLOCK_IO_UNTIMED, &[("cause", cause)], self.began, count);
        }
        cost(report, BLOCK_IO, self.began, block_io.cost());
    }

    fn read_run_queue(&mut self, report: &mut Report<'_>) {
        let Some(run_queue) = &mut self.run_queue else { return };
        if let Some(times) = run_queue.read() {
            report.distribution(&own::RUN_QUEUE, &[], times);
        }
        report.count(&own::RUN_QUEUE_UNTIMED, &[], self.began, run_queue.without_cells());
        cost(report, RUN_QUEUE, self.began, run_queue.cost());
    }

    /// The last reading is safe.
    pub(crate) fn keep(&mut self) {
        if let Some(block_io) = &mut self.block_io {
            block_io.keep();
        }
        if let Some(run_queue) = &mut self.run_queue {
            run_queue.keep();
        }
        self.late = Histogram::default();
        self.noted = self.notes.len();
    }
}

fn cost(report: &mut Report<'_>, program: &str, began: i64, cost: Cost) {
    let labels = [("program", program)];
    report.count(&own::BPF_MISSED, &labels, began, cost.missed);
    if cost.runs > 0 {
        report.count(&own::BPF_RUNS, &labels, began, cost.runs);
        report.sum(&own::BPF_TIME, &labels, began, cost.time_ns as f64 / 1e9);
    }
}

#[cfg(test)]
mod tests {
    use collect::RowsKept;
    use model::{Sample, Series, Value};

    use super::*;

    #[test]
    fn a_program_that_fails_later_is_told_once_and_is_not_available_from_then_on() {
        let settings = Settings {
            procfs: false,
            block_io: false,
            run_queue: false,
            processes: false,
            hiccup: None,
            ..Settings::of("h")
        };
        let mut sources = Sources::open(&settings, None, 0, &Meter::default());
        let why = Arc::new(OnceLock::new());
        (sources.wanted, sources.out_of_proc) = (vec![(PROCESSES, true)], Some(Arc::clone(&why)));
        let read = |sources: &mut Sources| {
            let mut rows = RowsKept::default();
            sources.read(&mut Report::new(&mut rows, "h", 10, 20));
            rows.rows.iter().map(written).collect::<Vec<_>>()
        };
        assert_eq!(read(&mut sources), ["host_bpf_available 1"]);
        sources.keep();
        why.set("it failed".to_owned()).unwrap();
        let note = "host_note processes are read out of /proc, at more cost: it failed";
        assert_eq!(read(&mut sources), ["host_bpf_available 0", note]);
        // What was not taken is told again.
        assert_eq!(read(&mut sources), ["host_bpf_available 0", note]);
        sources.keep();
        assert_eq!(read(&mut sources), ["host_bpf_available 0"]);
        assert_eq!(sources.notes().len(), 1);
    }

    fn written((series, sample): &(Series, Sample)) -> String {
        match &sample.value {
            Value::Number(number) => format!("{} {number}", series.name()),
            Value::Text(text) => format!("{} {text}", series.name()),
            Value::Histogram(_) => series.name().to_owned(),
        }
    }
}
