//! Sources of the host collector and their warnings.
//!
//! What happened between readings is kept until [`Sources::keep`] says that a reading is safe: one that was not taken
//! comes again within the next.

use std::sync::{Arc, OnceLock};

use intake::{Counter, Meter};

use crate::bpf;
use crate::hiccup::HiccupRecorder;
use crate::metric::{MetricSink, RowReporter};
use crate::metrics;
use crate::processes::ProcessCollector;
use crate::settings::Settings;
use crate::source::{HostSource, Note, Opening, SOURCES};

/// The program that reads processes, as labels have it.
const PROCESSES: &str = "processes";
const PROCFS_FALLBACK: &str = "processes are read out of /proc, at more cost";

/// All sources of the host collector.
#[derive(Debug)]
pub(crate) struct Sources {
    all: Vec<Box<dyn HostSource>>,
    /// Until somebody takes them who publishes them.
    processes: Option<ProcessCollector>,
    /// Why they are read out of `/proc`, if they are: that may begin at any time.
    procfs_fallback_reason: Option<Arc<OnceLock<String>>>,
    /// Programs in the kernel that are wanted, and whether they are at work.
    programs: Vec<(&'static str, bool)>,
    warnings: Vec<Note>,
    /// So many of them were told.
    warnings_reported: usize,
    /// Since when the programs count.
    began: i64,
    read_errors: Counter,
}

impl Sources {
    /// Opens what the settings want, as far as it is to be had.
    pub(crate) fn open(
        settings: &Settings,
        hiccups: Option<HiccupRecorder>,
        started_at: i64,
        meter: &Meter,
    ) -> Sources {
        let types = (settings.block_io || settings.run_queue || settings.processes)
            .then(bpf::kernel_types)
            .unwrap_or(Err(String::new()));
        let types = types.as_ref().map_err(String::clone);
        let (programs, notes) = (Vec::new(), Vec::new());
        let mut opening = Opening { settings, types, waits: hiccups, programs, notes };
        let all = SOURCES.iter().filter_map(|open| open(&mut opening)).collect();
        let processes =
            settings.processes.then(|| ProcessCollector::from_bpf(opening.types.clone()));
        let out_of_proc = processes.as_ref().map(ProcessCollector::shared_fallback_reason);
        if let Some(why) = &out_of_proc {
            let started = why.get().map_or(Ok(()), |why| Err(why.clone()));
            opening.note(PROCESSES, PROCFS_FALLBACK, started);
        }
        let unread = meter.counter(
            "topdeck_host_read_errors_total",
            "files of the kernel that could not be read",
            &[],
        );
        let Opening { programs, notes, .. } = opening;
        Sources {
            all,
            processes,
            procfs_fallback_reason: out_of_proc,
            programs,
            warnings: notes,
            warnings_reported: 0,
            began: started_at,
            read_errors: unread,
        }
    }

    /// Why what is wanted is not told.
    pub(crate) fn warnings(&self) -> &[Note] {
        &self.warnings
    }

    /// The processes, for who publishes them.
    pub(crate) fn take_processes(&mut self) -> Option<ProcessCollector> {
        self.processes.take()
    }

    /// Something is not told, of which the sources know nothing.
    pub(crate) fn add_warning(&mut self, text: String) {
        self.warnings.push(Note { collector: PROCESSES, text });
    }

    /// Takes note of it when the program that reads processes has failed since.
    fn check_process_fallback(&mut self) {
        let Some(why) = self.procfs_fallback_reason.as_ref().and_then(|why| why.get()) else {
            return;
        };
        let works =
            self.programs.iter_mut().find(|(program, works)| *program == PROCESSES && *works);
        if let Some((_, works)) = works {
            *works = false;
            self.warnings
                .push(Note { collector: PROCESSES, text: format!("{PROCFS_FALLBACK}: {why}") });
        }
    }

    /// Reads all.
    pub(crate) fn read(&mut self, report: &mut RowReporter<'_>) {
        self.check_process_fallback();
        for (program, works) in &self.programs {
            report.record(
                &metrics::BPF_AVAILABLE,
                &[("program", program)],
                f64::from(u8::from(*works)),
            );
        }
        for note in &self.warnings[self.warnings_reported..] {
            report.text(&metrics::COLLECTOR_WARNING, &[("collector", note.collector)], &note.text);
        }
        for source in &mut self.all {
            self.read_errors.add(source.read(report, self.began));
        }
    }

    /// The last reading is safe.
    pub(crate) fn commit(&mut self) {
        self.all.iter_mut().for_each(|source| source.commit());
        self.warnings_reported = self.warnings.len();
    }
}

#[cfg(test)]
mod tests {
    use collect::VecRowSink;
    use model::{Sample, SampleValue, Series};

    use super::*;

    #[test]
    fn failed_bpf_program_is_reported_once() {
        let settings = Settings {
            procfs: false,
            block_io: false,
            run_queue: false,
            processes: false,
            hiccup_interval: None,
            ..Settings::for_host("h")
        };
        let mut sources = Sources::open(&settings, None, 0, &Meter::default());
        let why = Arc::new(OnceLock::new());
        (sources.programs, sources.procfs_fallback_reason) =
            (vec![(PROCESSES, true)], Some(Arc::clone(&why)));
        let read = |sources: &mut Sources| {
            let mut rows = VecRowSink::default();
            sources.read(&mut RowReporter::new(&mut rows, "h", 10, 20));
            rows.rows.iter().map(describe).collect::<Vec<_>>()
        };
        assert_eq!(read(&mut sources), ["host_bpf_available 1"]);
        sources.commit();
        why.set("it failed".to_owned()).unwrap();
        let note =
            "host_collector_warning processes are read out of /proc, at more cost: it failed";
        assert_eq!(read(&mut sources), ["host_bpf_available 0", note]);
        // What was not taken is told again.
        assert_eq!(read(&mut sources), ["host_bpf_available 0", note]);
        sources.commit();
        assert_eq!(read(&mut sources), ["host_bpf_available 0"]);
        assert_eq!(sources.warnings().len(), 1);
    }

    fn describe((series, sample): &(Series, Sample)) -> String {
        match &sample.value {
            SampleValue::Number(number) => format!("{} {number}", series.name()),
            SampleValue::Text(text) => format!("{} {text}", series.name()),
            SampleValue::Histogram(_) => series.name().to_owned(),
        }
    }
}
