//! The role: one thread that reads the host at the boundaries of intervals, and takes what it read into the intake.

use std::sync::Arc;
use std::time::Instant;

use collect::Rows;
use intake::{Counter, Intake, Producer, Timer, Way};
use model::Gap;

use crate::error::{Error, Result};
use crate::hiccup::Hiccup;
use crate::metric::Report;
use crate::programs;
use crate::settings::Settings;
use crate::source::Note;
use crate::sources::Sources;
use crate::table;
use crate::thread::{Stop, Thread, next_boundary, patiently};

/// This host, told about until it is stopped or dropped.
#[derive(Debug)]
pub struct Host {
    programs: Option<Thread<Result<()>>>,
    thread: Thread<Result<()>>,
    _tables: Option<Thread<()>>,
    notes: Vec<Note>,
}

impl Host {
    /// Begins. The threads end with [`Host::stop`].
    pub fn start(settings: Settings, intake: Arc<Intake>) -> Result<Host> {
        let host = settings.host.clone();
        if !(1..=Settings::HOST_BYTES_MAX).contains(&host.len()) {
            return Err(Error::NameSize { found: host.len() });
        }
        let meter = Arc::clone(intake.meter());
        let hiccup = settings.hiccup.map(|period| {
            if !(Settings::HICCUP_MIN..=Settings::HICCUP_MAX).contains(&period) {
                return Err(Error::Period { found: period });
            }
            let unrecorded = meter.counter(
                "topdeck_host_hiccups_unrecorded_total",
                "moments of long stalls that are in no distribution of hiccups",
                &[],
            );
            Hiccup::start(period, unrecorded, intake.supervisor().thread("hiccup"))
        });
        let (hiccup, waits) = hiccup.transpose()?.unzip();
        let programs = settings.programs.map(|period| {
            if !(Settings::PROGRAMS_MIN..=Settings::PROGRAMS_MAX).contains(&period) {
                return Err(Error::ProgramsPeriod { found: period });
            }
            programs::collect(host.clone(), period, Arc::clone(&intake))
        });
        let programs = programs.transpose()?;
        let began = intake.now();
        let mut sources = Sources::open(&settings, waits, began, &meter);
        let tables = sources
            .take_processes()
            .map(|processes| table::publish(processes, settings.folder.clone(), &intake));
        let (tables, unpublished) = tables.transpose()?.unzip();
        if let Some(why) = unpublished.flatten() {
            sources.add_note(format!("the table of processes is not published now: {why}"));
        }
        let notes = sources.notes().to_vec();
        let supervised = intake.supervisor().thread("host");
        let mut worker = Worker {
            producer: intake.producer("host"),
            host,
            sources,
            hiccup,
            since: began,
            missed: None,
            reading: meter.timer(
                "topdeck_host_reading",
                "how long a reading of the host takes",
                &[],
            ),
            deferred: meter.counter(
                "topdeck_host_deferred_total",
                "readings of the host that were not taken, and came again within the next",
                &[],
            ),
            refused: meter.counter(
                "topdeck_host_refused_total",
                "readings of the host in which a row was refused",
                &[],
            ),
            intake,
        };
        let thread = Thread::start("host", None, supervised, move |stop| worker.run(stop))?;
        Ok(Host { programs, thread, _tables: tables, notes })
    }

    /// What is wanted and not told, and why: a sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().map(|note| note.text.clone()).collect()
    }

    /// Reads a last time, waits until that is taken, and ends the threads. Where there is no room in the journal for
    /// some seconds, what was not taken is lost, and said.
    pub fn stop(mut self) -> Result<()> {
        let programs = self.programs.as_mut().and_then(Thread::stop).unwrap_or(Ok(()));
        programs.and(self.thread.stop().unwrap_or(Ok(())))
    }
}

/// The thread's.
struct Worker {
    intake: Arc<Intake>,
    producer: Producer,
    host: String,
    sources: Sources,
    hiccup: Option<Hiccup>,
    /// The end of the last reading that was taken.
    since: i64,
    /// Gauges that were not taken: the first reading's end, and how many.
    missed: Option<(i64, u64)>,
    reading: Timer,
    deferred: Counter,
    refused: Counter,
}

impl Worker {
    fn run(&mut self, stop: &Stop) -> Result<()> {
        let intake = Arc::clone(&self.intake);
        while let Some(end) = next_boundary(stop, intake.settings().interval, || intake.now()) {
            // What is not taken comes again; it was counted.
            let _ = self.read(end);
        }
        if let Some(hiccup) = &mut self.hiccup {
            hiccup.stop();
        }
        Ok(patiently(|| self.read(intake.now()))?)
    }

    /// Reads all, as of `end`, and waits until it is taken.
    fn read(&mut self, end: i64) -> intake::Result<()> {
        let began = Instant::now();
        let mut writer = self.intake.writer_of(self.producer.id(), Way::Host);
        if let Some((start, lost)) = self.missed {
            let reason = "there was no room for readings of the host; only what adds up came later";
            let producer = Some(self.producer.id());
            let (start, lost, reason) = (start.min(end), Some(lost), reason.to_owned());
            writer.gap(Gap { start, end, producer, lost, reason });
        }
        let mut report = Report::new(&mut writer, &self.host, self.since, end);
        self.sources.read(&mut report);
        self.intake.supervisor().fault_point("host reading");
        let gauges = report.gauges;
        if report.refused.is_some() {
            self.refused.add(1);
        }
        if writer.is_empty() {
            return Ok(());
        }
        let taken = self.intake.take(&self.producer, writer);
        self.reading.record(began.elapsed());
        let receipt = taken.inspect_err(|_| {
            self.deferred.add(1);
            let (start, lost) = self.missed.unwrap_or((end, 0));
            self.missed = Some((start, lost + gauges));
        })?;
        self.sources.keep();
        self.since = end;
        self.missed = None;
        receipt.wait()
    }
}
