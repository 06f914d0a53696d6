//! Process table publisher.
//!
//! A thread of its own, for the readings of the host may wait for a disk, and that is when somebody looks. It takes no memory but
//! the rows. Where another topdeck publishes already, or there is no room, it is tried again later.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use intake::{Counter, Intake, LatencyHistogram};
use shm::process_table::{CollectionInfo, ProcessRow, TableWriter};

use crate::error::Result;
use crate::processes::ProcessCollector;
use crate::thread::{CollectorThread, StopSignal};

/// How often a table is published.
const PERIOD: Duration = Duration::from_secs(1);
/// After how many periods it is tried again where it cannot be.
const RETRY_PERIODS: u32 = 10;
/// State of the process table thread.
const STACK_BYTES: usize = 128 << 10;

/// Publishes a first table and begins. Also why that is not possible now, if it is not.
pub(crate) fn publish(
    processes: ProcessCollector,
    folder: Option<PathBuf>,
    intake: &Intake,
) -> Result<(CollectorThread<()>, Option<String>)> {
    let meter = intake.meter();
    let mut worker = TableWorker {
        processes,
        folder,
        writer: None,
        reading: meter.histogram(
            "topdeck_host_processes_read_duration",
            "how long it takes to read all processes of the host and to publish them",
            &[],
        ),
        publish_errors: meter.counter(
            "topdeck_host_process_table_errors_total",
            "tables of processes that could not be read or published",
            &[],
        ),
    };
    let note = worker.publish().err();
    let is_published = note.is_none();
    let supervised = intake.supervisor().thread("processes");
    let run = move |stop: &StopSignal| worker.run(stop, is_published);
    Ok((CollectorThread::start("processes", Some(STACK_BYTES), supervised, run)?, note))
}

/// The thread's.
struct TableWorker {
    processes: ProcessCollector,
    folder: Option<PathBuf>,
    writer: Option<TableWriter>,
    reading: LatencyHistogram,
    publish_errors: Counter,
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

    /// Reads and publishes, if this is the one that does.
    fn publish(&mut self) -> Result<(), String> {
        let done = self.try_publish();
        if done.is_err() {
            self.publish_errors.add(1);
            // Another may have more luck.
            self.writer = None;
        }
        done
    }

    fn try_publish(&mut self) -> Result<(), String> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let folder = match &self.folder {
                    Some(folder) => folder.clone(),
                    None => shm::folder().map_err(|error| error.to_string())?,
                };
                TableWriter::new(&folder).map_err(|error| error.to_string())?
            }
        };
        let writer = self.writer.insert(writer);
        let began = Instant::now();
        let (at_ns, unix_ns) = (clock::now(), clock::wall().unix_ns);
        self.processes.read().map_err(|error| format!("cannot read /proc: {error}"))?;
        let ticks_per_second = ProcessCollector::ticks_per_second();
        let taken = CollectionInfo {
            started_ns: at_ns,
            unix_ns,
            method: self.processes.method(),
            ticks_per_second,
        };
        let rows: &[ProcessRow] = self.processes.rows();
        writer.publish(&taken, rows).map_err(|error| error.to_string())?;
        self.reading.record(began.elapsed());
        Ok(())
    }
}
