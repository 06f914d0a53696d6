//! What programs of this host record into shared memory ([`shm`]), collected each second: nothing is to be set up in the programs.
//!
//! Counts and distributions are told whole, as they are since the file was made, under labels that are the same for whoever looks and
//! whenever: `host`, `process`, `pid`. So nothing is lost or counted twice when topdeck or the program is started anew. One reading is
//! some batches; what is not taken comes again with the next reading, but for gauges, which become a gap.

mod collector;
mod flight;
mod process;
mod rows;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use intake::{Counter, Intake, Producer, Timer};

use crate::error::{Error, Result};
use crate::host::{LATE, PATIENCE, RETRY, Stop, after};
use crate::programs::collector::Collector;
use crate::programs::rows::Out;

/// The thread.
#[derive(Debug)]
pub(crate) struct Programs {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Programs {
    /// Begins to collect, every so often.
    pub(crate) fn start(host: String, period: Duration, intake: Arc<Intake>) -> Result<Programs> {
        let meter = intake.meter();
        let deferred = "readings of programs that were not taken, and came again within the next";
        let worker = Worker {
            producer: intake.producer("programs"),
            collector: Collector::new(meter),
            host,
            period: i64::try_from(period.as_nanos()).unwrap_or(i64::MAX).max(1),
            missed: None,
            reading: meter.timer(
                "topdeck_programs_reading",
                "how long a reading of all programs takes",
                &[],
            ),
            deferred: meter.counter("topdeck_programs_deferred_total", deferred, &[]),
            intake,
        };
        let stop = Arc::new(Stop::default());
        let name = "programs";
        let run = {
            let stop = Arc::clone(&stop);
            move || worker.run(&stop)
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|source| Error::Thread { name, source })?;
        Ok(Programs { stop, thread: Some(thread) })
    }

    /// Reads a last time and waits until that is taken.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.stop.say();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            // It panics only for a bug, which it has told already.
            Some(Err(_)) | None => Ok(()),
        }
    }
}

/// The thread's.
struct Worker {
    intake: Arc<Intake>,
    producer: Producer,
    collector: Collector,
    host: String,
    period: i64,
    /// Gauges that were not taken: the first reading's end, and how many.
    missed: Option<(i64, u64)>,
    reading: Timer,
    deferred: Counter,
}

impl Worker {
    fn run(mut self, stop: &Stop) -> Result<()> {
        let mut boundary = after(self.intake.now(), self.period);
        loop {
            let now = self.intake.now();
            // The clock was set back: the boundary has become too far.
            if boundary.saturating_sub(now) > self.period {
                boundary = after(now, self.period);
            }
            let left = boundary.saturating_sub(now);
            if left > 0 {
                if stop.wait(Duration::from_nanos(left.unsigned_abs())) {
                    return self.last();
                }
                continue;
            }
            let is_late = now.saturating_sub(boundary) > self.period / LATE;
            // What is not taken comes again; it was counted.
            let _ = self.read(if is_late { now } else { boundary });
            // As long a rest as it took: whatever there is to read, half a processor is left to others.
            let done = self.intake.now();
            boundary = after(done.saturating_add(done.saturating_sub(now).max(0)), self.period)
                .min(done.saturating_add(self.period));
            let rest = Duration::from_nanos(done.saturating_sub(now).max(0).unsigned_abs());
            if rest > Duration::from_nanos(self.period.unsigned_abs()) && stop.wait(rest) {
                return self.last();
            }
        }
    }

    /// The last reading, tried for some time.
    fn last(&mut self) -> Result<()> {
        self.collector.look_now();
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
        let retell = i64::try_from(self.intake.settings().interval.as_nanos()).unwrap_or(i64::MAX);
        let mut out = Out::new(&self.intake, &self.producer, &self.host, end, retell);
        if let Some((start, lost)) = self.missed {
            out.gap(start, lost);
        }
        self.collector.read(&mut out);
        let gauges = out.gauges;
        let taken = out.finish();
        self.reading.record(began.elapsed());
        let receipt = match taken {
            Ok(receipt) => receipt,
            Err(error) => {
                self.deferred.add(1);
                let (start, lost) = self.missed.unwrap_or((end, 0));
                self.missed = Some((start, lost + gauges));
                self.collector.tell_again();
                return Err(error);
            }
        };
        self.missed = None;
        let safe = receipt.map_or(Ok(()), |receipt| receipt.wait());
        match safe {
            Ok(()) => self.collector.keep(),
            Err(_) => self.collector.tell_again(),
        }
        safe
    }
}
