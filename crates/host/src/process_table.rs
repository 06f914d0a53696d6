//! Process table publisher.
//!
//! It has its own thread, because scrapes of the host may wait for a disk, and that is when the
//! table is needed most. It allocates nothing but the rows. If another topdeck already publishes,
//! or memory is short, it retries later.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use intake::{EventCounter, Intake, LatencyHistogram};
use serde::Deserialize;
use shm::process_table::{CollectionInfo, ProcessRow, TableWriter};

use crate::error::Result;
use crate::metric::RowReporter;
use crate::processes::ProcessCollector;
use crate::source::{HostSource, Note, Opening, SourceSettings};
use crate::thread::{CollectorThread, StopSignal};

/// Publication period.
const PERIOD: Duration = Duration::from_secs(1);
/// Periods between retries after a failure.
const RETRY_PERIODS: u32 = 10;
/// Stack of the process table thread.
const STACK_BYTES: usize = 128 << 10;

/// Value of the label `program`.
const PROGRAM: &str = "processes";
const PROCFS_FALLBACK: &str = "process table read from /proc (higher cost)";

/// Settings of the process table.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProcessTableSettings {
    /// Process table in shared memory, published each second: true. Costs about 100 us a second for
    /// a hundred processes.
    pub(crate) processes: bool,
}

impl Default for ProcessTableSettings {
    fn default() -> ProcessTableSettings {
        ProcessTableSettings { processes: true }
    }
}

impl SourceSettings for ProcessTableSettings {
    const KEYS: &'static [&'static str] = &["processes"];

    fn is_enabled(&self) -> bool {
        self.processes
    }

    /// Publishes a first table and starts the thread.
    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        if !self.processes {
            return Ok(None);
        }
        let processes = ProcessCollector::from_bpf(opening.types());
        let fallback_reason = processes.shared_fallback_reason();
        let started = fallback_reason.get().map_or(Ok(()), |reason| Err(reason.clone()));
        let has_fallen_back = started.is_err();
        opening.note(PROGRAM, PROCFS_FALLBACK, started);
        let dir = opening.dir.map(Path::to_owned);
        let (thread, unpublished) = publish(processes, dir, opening.intake)?;
        let text = |reason| format!("process table not published: {reason}");
        let note = |reason| Note { collector: PROGRAM, text: text(reason) };
        opening.notes.extend(unpublished.map(note));
        let publisher = TablePublisher { thread, fallback_reason, has_fallen_back };
        Ok(Some(Box::new(publisher)))
    }
}

/// Source that publishes the process table. It reports no rows.
#[derive(Debug)]
struct TablePublisher {
    thread: CollectorThread<()>,
    /// Why processes are read from `/proc`, if they are; the fallback may happen at any time.
    fallback_reason: Arc<OnceLock<String>>,
    has_fallen_back: bool,
}

impl HostSource for TablePublisher {
    fn read(&mut self, _report: &mut RowReporter<'_>, _began: i64) -> u64 {
        0
    }

    fn degradation(&mut self) -> Option<Note> {
        let reason = self.fallback_reason.get().filter(|_| !self.has_fallen_back)?;
        self.has_fallen_back = true;
        Some(Note { collector: PROGRAM, text: format!("{PROCFS_FALLBACK}: {reason}") })
    }

    fn stop(&mut self) -> Result<()> {
        // The thread returns nothing.
        let _ = self.thread.stop();
        Ok(())
    }
}

/// Publishes a first table and starts the thread. Also returns why publishing is not possible now,
/// if so.
fn publish(
    processes: ProcessCollector,
    dir: Option<PathBuf>,
    intake: &Intake,
) -> Result<(CollectorThread<()>, Option<String>)> {
    let meter = intake.meter();
    let mut worker = TableWorker {
        processes,
        dir,
        writer: None,
        scrape: meter.histogram(
            "topdeck_host_processes_scrape_duration",
            "duration of reading and publishing the process table",
            &[],
        ),
        publish_errors: meter.counter(
            "topdeck_host_process_table_errors_total",
            "process tables not read or not published",
            &[],
        ),
    };
    let note = worker.publish().err();
    let is_published = note.is_none();
    let supervised = intake.supervisor().thread("processes");
    let run = move |stop: &StopSignal| worker.run(stop, is_published);
    Ok((CollectorThread::start("processes", Some(STACK_BYTES), supervised, run)?, note))
}

/// State of the process table thread.
struct TableWorker {
    processes: ProcessCollector,
    dir: Option<PathBuf>,
    writer: Option<TableWriter>,
    scrape: LatencyHistogram,
    publish_errors: EventCounter,
}

impl TableWorker {
    fn run(&mut self, stop: &StopSignal, mut is_published: bool) {
        loop {
            let periods = if is_published { 1 } else { RETRY_PERIODS };
            if stop.wait(PERIOD * periods) {
                return;
            }
            is_published = self.publish().is_ok();
        }
    }

    /// Reads and publishes if this process owns the table.
    fn publish(&mut self) -> Result<(), String> {
        let done = self.try_publish();
        if done.is_err() {
            self.publish_errors.add(1);
            // Releases the table so that another publisher can try.
            self.writer = None;
        }
        done
    }

    fn try_publish(&mut self) -> Result<(), String> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let dir = match &self.dir {
                    Some(dir) => dir.clone(),
                    None => shm::metrics_dir().map_err(|error| error.to_string())?,
                };
                TableWriter::new(&dir).map_err(|error| error.to_string())?
            }
        };
        let writer = self.writer.insert(writer);
        let began = Instant::now();
        let (at_ns, unix_ns) = (clock::now(), clock::wall().unix_ns);
        self.processes.read().map_err(|error| format!("cannot read /proc: {error}"))?;
        let ticks_per_second = ProcessCollector::ticks_per_second();
        let collection = CollectionInfo {
            started_ns: at_ns,
            unix_ns,
            method: self.processes.method(),
            ticks_per_second,
        };
        let rows: &[ProcessRow] = self.processes.rows();
        writer.publish(&collection, rows).map_err(|error| error.to_string())?;
        self.scrape.record(began.elapsed());
        Ok(())
    }
}
