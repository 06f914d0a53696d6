//! The role: one thread that reads the host at the boundaries of intervals, and takes what it read into the intake.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use collect::Rows;
use intake::{Counter, Intake, Producer, Timer, Way};
use model::Gap;

use crate::error::{Error, Result};
use crate::hiccup::Hiccup;
use crate::metric::Report;
use crate::programs::Programs;
use crate::settings::Settings;
use crate::sources::{Note, Sources};
use crate::table::Tables;

/// A reading this part of an interval behind its boundary is a reading of the boundary. Otherwise the last
/// microseconds of each interval would put its row into the next one.
pub(crate) const LATE: i64 = 20;
/// How long the last reading is tried again where there is no room for it, and how often.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
pub(crate) const RETRY: Duration = Duration::from_millis(100);

/// This host, told about until it is stopped or dropped.
#[derive(Debug)]
pub struct Host {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Result<()>>>,
    programs: Option<Programs>,
    _tables: Option<Tables>,
    notes: Vec<Note>,
}

/// Whether to stop.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    said: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    pub(crate) fn say(&self) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    /// Waits that long, or until it is said. Whether it was.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wake.wait_timeout_while(said, time, |said| !*said);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
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
            Hiccup::start(period, unrecorded)
        });
        let (hiccup, waits) = hiccup.transpose()?.unzip();
        let programs = settings.programs.map(|period| {
            if !(Settings::PROGRAMS_MIN..=Settings::PROGRAMS_MAX).contains(&period) {
                return Err(Error::ProgramsPeriod { found: period });
            }
            Programs::start(host.clone(), period, Arc::clone(&intake))
        });
        let programs = programs.transpose()?;
        let began = intake.now();
        let mut sources = Sources::open(&settings, waits, began, &meter);
        let tables = sources
            .take_processes()
            .map(|processes| Tables::start(processes, settings.folder.clone(), &meter));
        let (tables, unpublished) = tables.transpose()?.unzip();
        if let Some(why) = unpublished.flatten() {
            sources.add_note(format!("the table of processes is not published now: {why}"));
        }
        let notes = sources.notes().to_vec();
        let stop = Arc::new(Stop::default());
        let worker = Worker {
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
        let name = "host";
        let run = {
            let stop = Arc::clone(&stop);
            move || worker.run(&stop)
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|source| Error::Thread { name, source })?;
        Ok(Host { stop, thread: Some(thread), programs, _tables: tables, notes })
    }

    /// What is wanted and not told, and why: a sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().map(|note| note.text.clone()).collect()
    }

    /// Reads a last time, waits until that is taken, and ends the threads. Where there is no room in the journal for
    /// some seconds, what was not taken is lost, and said.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let programs = self.programs.take().map_or(Ok(()), |mut programs| programs.stop());
        self.stop.say();
        let ended = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            // It panics only for a bug, which it has told already.
            Some(Err(_)) | None => Ok(()),
        };
        programs.and(ended)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Who wants to know says `stop`.
        let _ = self.end();
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
    fn run(mut self, stop: &Stop) -> Result<()> {
        let interval = i64::try_from(self.intake.settings().interval.as_nanos());
        let interval = interval.unwrap_or(i64::MAX).max(1);
        let mut boundary = after(self.intake.now(), interval);
        loop {
            let now = self.intake.now();
            // The clock was set back: the boundary has become too far.
            if boundary.saturating_sub(now) > interval {
                boundary = after(now, interval);
            }
            let left = boundary.saturating_sub(now);
            if left > 0 {
                if stop.wait(Duration::from_nanos(left.unsigned_abs())) {
                    return self.last();
                }
                continue;
            }
            let is_late = now.saturating_sub(boundary) > interval / LATE;
            // What is not taken comes again; it was counted.
            let _ = self.read(if is_late { now } else { boundary });
            boundary = after(self.intake.now(), interval);
        }
    }

    /// The last reading, tried for some time.
    fn last(&mut self) -> Result<()> {
        if let Some(hiccup) = &mut self.hiccup {
            hiccup.stop();
        }
        let began = Instant::now();
        loop {
            match self.read(self.intake.now()) {
                Err(error) if error.is_temporary() && began.elapsed() < PATIENCE => {
                    std::thread::sleep(RETRY);
                }
                ended => return Ok(ended?),
            }
        }
    }

    /// Reads all, as of `end`, and waits until it is taken.
    fn read(&mut self, end: i64) -> intake::Result<()> {
        let began = Instant::now();
        let mut writer = self.intake.writer(Way::Host);
        if let Some((start, lost)) = self.missed {
            let reason = "there was no room for readings of the host; only what adds up came later";
            let producer = Some(self.producer.id());
            let (start, lost, reason) = (start.min(end), Some(lost), reason.to_owned());
            writer.gap(Gap { start, end, producer, lost, reason });
        }
        let mut report = Report::new(&mut writer, &self.host, self.since, end);
        self.sources.read(&mut report);
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

/// The first boundary after `now`.
pub(crate) fn after(now: i64, interval: i64) -> i64 {
    now.saturating_sub(now.rem_euclid(interval)).saturating_add(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(now: i64, expected: i64) {
        assert_eq!(after(now, 10), expected);
    }

    #[test]
    fn boundaries_are_multiples_of_the_interval() {
        check(0, 10);
        check(9, 10);
        check(10, 20);
        check(-1, 0);
        check(i64::MAX, i64::MAX);
    }
}
