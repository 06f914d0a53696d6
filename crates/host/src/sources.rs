//! All that is read of a host, together: what is there, what is not and why, and one reading of it.
//!
//! What happened between readings is kept until [`Sources::keep`] says that a reading is safe: one that was not taken
//! comes again within the next.

use std::sync::{Arc, OnceLock};

use intake::{Counter, Meter};

use crate::bpf;
use crate::hiccup::Waits;
use crate::metric::{Report, Take};
use crate::own;
use crate::processes::Processes;
use crate::settings::Settings;
use crate::source::{HostSource, Note, Opening, SOURCES};

/// The program that reads processes, as labels have it.
const PROCESSES: &str = "processes";
const OUT_OF_PROC: &str = "processes are read out of /proc, at more cost";

/// All that is read.
#[derive(Debug)]
pub(crate) struct Sources {
    all: Vec<Box<dyn HostSource>>,
    /// Until somebody takes them who publishes them.
    processes: Option<Processes>,
    /// Why they are read out of `/proc`, if they are: that may begin at any time.
    out_of_proc: Option<Arc<OnceLock<String>>>,
    /// Programs in the kernel that are wanted, and whether they are at work.
    programs: Vec<(&'static str, bool)>,
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
        let types = (settings.block_io || settings.run_queue || settings.processes)
            .then(bpf::types)
            .unwrap_or(Err(String::new()));
        let types = types.as_ref().map_err(String::clone);
        let (programs, notes) = (Vec::new(), Vec::new());
        let mut opening = Opening { settings, types, waits, programs, notes };
        let all = SOURCES.iter().filter_map(|open| open(&mut opening)).collect();
        let processes = settings.processes.then(|| Processes::with(opening.types.clone()));
        let out_of_proc = processes.as_ref().map(Processes::shared_note);
        if let Some(why) = &out_of_proc {
            let started = why.get().map_or(Ok(()), |why| Err(why.clone()));
            opening.note(PROCESSES, OUT_OF_PROC, started);
        }
        let unread = meter.counter(
            "topdeck_host_unread_files_total",
            "files of the kernel that could not be read",
            &[],
        );
        let Opening { programs, notes, .. } = opening;
        Sources { all, processes, out_of_proc, programs, notes, noted: 0, began, unread }
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
        let works =
            self.programs.iter_mut().find(|(program, works)| *program == PROCESSES && *works);
        if let Some((_, works)) = works {
            *works = false;
            self.notes.push(Note { about: PROCESSES, text: format!("{OUT_OF_PROC}: {why}") });
        }
    }

    /// Reads all.
    pub(crate) fn read(&mut self, report: &mut Report<'_>) {
        self.look_at_processes();
        for (program, works) in &self.programs {
            report.take(&own::BPF_AVAILABLE, &[("program", program)], f64::from(u8::from(*works)));
        }
        for note in &self.notes[self.noted..] {
            report.text(&own::NOTE, &[("about", note.about)], &note.text);
        }
        for source in &mut self.all {
            self.unread.add(source.read(report, self.began));
        }
    }

    /// The last reading is safe.
    pub(crate) fn keep(&mut self) {
        self.all.iter_mut().for_each(|source| source.keep());
        self.noted = self.notes.len();
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
        (sources.programs, sources.out_of_proc) = (vec![(PROCESSES, true)], Some(Arc::clone(&why)));
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
