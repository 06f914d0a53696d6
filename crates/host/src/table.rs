//! The process table, published each second for all who want to see it.
//!
//! A thread of its own, for the readings of the host may wait for a disk, and that is when somebody looks. It takes no memory but
//! the rows. Where another topdeck publishes already, or there is no room, it is tried again later.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use intake::{Counter, Intake, Timer};
use shm::table::{Process, Taken, Writer};

use crate::error::Result;
use crate::processes::Processes;
use crate::thread::{Stop, Thread};

/// How often a table is published.
const PERIOD: Duration = Duration::from_secs(1);
/// After how many periods it is tried again where it cannot be.
const PERIODS_PER_TRY: u32 = 10;
/// The thread's stack: it calls nothing deep.
const STACK_BYTES: usize = 128 << 10;

/// Publishes a first table and begins. Also why that is not possible now, if it is not.
pub(crate) fn publish(
    processes: Processes,
    folder: Option<PathBuf>,
    intake: &Intake,
) -> Result<(Thread<()>, Option<String>)> {
    let meter = intake.meter();
    let mut worker = Worker {
        processes,
        folder,
        writer: None,
        reading: meter.timer(
            "topdeck_host_processes_read",
            "how long it takes to read all processes of the host and to publish them",
            &[],
        ),
        unpublished: meter.counter(
            "topdeck_host_processes_unpublished_total",
            "tables of processes that could not be read or published",
            &[],
        ),
    };
    let note = worker.publish().err();
    let is_published = note.is_none();
    let supervised = intake.supervisor().thread("processes");
    let run = move |stop: &Stop| worker.run(stop, is_published);
    Ok((Thread::start("processes", Some(STACK_BYTES), supervised, run)?, note))
}

/// The thread's.
struct Worker {
    processes: Processes,
    folder: Option<PathBuf>,
    writer: Option<Writer>,
    reading: Timer,
    unpublished: Counter,
}

impl Worker {
    fn run(&mut self, stop: &Stop, mut is_published: bool) {
        loop {
            let periods = if is_published { 1 } else { PERIODS_PER_TRY };
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
            self.unpublished.add(1);
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
                Writer::new(&folder).map_err(|error| error.to_string())?
            }
        };
        let writer = self.writer.insert(writer);
        let began = Instant::now();
        let (at_ns, unix_ns) = (clock::now(), clock::wall().unix_ns);
        self.processes.read().map_err(|error| format!("cannot read /proc: {error}"))?;
        let ticks_per_second = Processes::ticks_per_second();
        let taken = Taken { at_ns, unix_ns, how: self.processes.how(), ticks_per_second };
        let rows: &[Process] = self.processes.rows();
        writer.publish(&taken, rows).map_err(|error| error.to_string())?;
        self.reading.record(began.elapsed());
        Ok(())
    }
}
