//! Sources of the host collector and their warnings.
//!
//! Sources keep the events since the last committed scrape ([`Sources::commit`]): a scrape that
//! was not accepted is part of the next one.

use std::sync::Arc;

use intake::{EventCounter, Intake};

use crate::error::Result;
use crate::metric::{MetricSink, RowReporter};
use crate::metrics;
use crate::settings::Settings;
use crate::shm_metrics::running_processes::RunningProcesses;
use crate::source::{HostSource, Note, Opening};

/// All sources of the host collector.
#[derive(Debug)]
pub(crate) struct Sources {
    all: Vec<Box<dyn HostSource>>,
    /// Enabled BPF programs and whether they are attached.
    programs: Vec<(&'static str, bool)>,
    warnings: Vec<Note>,
    /// Number of warnings already reported.
    warnings_reported: usize,
    /// Running programs with metrics in shared memory.
    pub(crate) live: RunningProcesses,
    /// Start of the programs' counters.
    began: i64,
    read_errors: EventCounter,
}

impl Sources {
    /// Opens all enabled sources that are available.
    pub(crate) fn open(
        settings: &Settings,
        started_at: i64,
        intake: &Arc<Intake>,
    ) -> Result<Sources> {
        let mut opening = Opening::new(&settings.host, settings.dir.as_deref(), intake);
        let mut all = Vec::new();
        for source in &settings.sources {
            all.extend(source.open(&mut opening)?);
        }
        let read_errors = intake.meter().counter(
            "topdeck_host_read_errors_total",
            "failed reads of kernel files (/proc, /sys)",
            &[],
        );
        let Opening { live, programs, notes: warnings, .. } = opening;
        Ok(Sources {
            all,
            programs,
            warnings,
            warnings_reported: 0,
            live,
            began: started_at,
            read_errors,
        })
    }

    /// Why enabled sources are unavailable or degraded.
    pub(crate) fn warnings(&self) -> &[Note] {
        &self.warnings
    }

    /// Collects warnings of sources that degraded since the last scrape.
    fn collect_degradations(&mut self) {
        for note in self.all.iter_mut().filter_map(|source| source.degradation()) {
            let works = self.programs.iter_mut().find(|(program, _)| *program == note.collector);
            if let Some((_, works)) = works {
                *works = false;
            }
            self.warnings.push(note);
        }
    }

    /// Stops the threads of all sources; returns the first error.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.all.iter_mut().map(|source| source.stop()).fold(Ok(()), Result::and)
    }

    /// Reads all sources.
    pub(crate) fn read(&mut self, report: &mut RowReporter<'_>) {
        self.collect_degradations();
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

    /// Commits the last scrape.
    pub(crate) fn commit(&mut self) {
        self.all.iter_mut().for_each(|source| source.commit());
        self.warnings_reported = self.warnings.len();
    }
}

#[cfg(test)]
mod tests {
    use decode::VecSeriesSink;
    use model::{Sample, SampleValue, Series};

    use super::*;

    /// Source that degrades at the next scrape.
    #[derive(Debug)]
    struct FallingBack(Option<Note>);

    impl HostSource for FallingBack {
        fn read(&mut self, _report: &mut RowReporter<'_>, _began: i64) -> u64 {
            0
        }

        fn degradation(&mut self) -> Option<Note> {
            self.0.take()
        }
    }

    #[test]
    fn failed_bpf_program_is_reported_once() {
        let mut sources = Sources {
            all: vec![Box::new(FallingBack(None))],
            programs: vec![("processes", true)],
            warnings: Vec::new(),
            warnings_reported: 0,
            live: RunningProcesses::default(),
            began: 0,
            read_errors: EventCounter::default(),
        };
        let read = |sources: &mut Sources| {
            let mut rows = VecSeriesSink::default();
            sources.read(&mut RowReporter::new(&mut rows, "h", 10, 20));
            rows.rows.iter().map(describe).collect::<Vec<_>>()
        };
        assert_eq!(read(&mut sources), ["host_bpf_available 1"]);
        sources.commit();
        let note = Note { collector: "processes", text: "it failed".to_owned() };
        sources.all = vec![Box::new(FallingBack(Some(note)))];
        let note = "host_collector_warning it failed";
        assert_eq!(read(&mut sources), ["host_bpf_available 0", note]);
        // A scrape that was not committed is reported again.
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
