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
use std::time::{Duration, Instant};

use intake::{Counter, Intake, Producer, Timer};

use crate::error::Result;
use crate::programs::collector::Collector;
use crate::programs::rows::Out;
use crate::thread::{Stop, Thread, next_boundary, patiently};

/// Begins to collect, every so often. The last reading is taken when it stops.
pub(crate) fn collect(
    host: String,
    period: Duration,
    intake: Arc<Intake>,
) -> Result<Thread<Result<()>>> {
    let meter = intake.meter();
    let deferred = "readings of programs that were not taken, and came again within the next";
    let supervised = intake.supervisor().thread("programs");
    let mut worker = Worker {
        producer: intake.producer("programs"),
        collector: Collector::new(meter),
        host,
        period,
        missed: None,
        reading: meter.timer(
            "topdeck_programs_reading",
            "how long a reading of all programs takes",
            &[],
        ),
        deferred: meter.counter("topdeck_programs_deferred_total", deferred, &[]),
        intake,
    };
    Thread::start("programs", None, supervised, move |stop| worker.run(stop))
}

/// The thread's.
struct Worker {
    intake: Arc<Intake>,
    producer: Producer,
    collector: Collector,
    host: String,
    period: Duration,
    /// Gauges that were not taken: the first reading's end, and how many.
    missed: Option<(i64, u64)>,
    reading: Timer,
    deferred: Counter,
}

impl Worker {
    fn run(&mut self, stop: &Stop) -> Result<()> {
        let intake = Arc::clone(&self.intake);
        while let Some(end) = next_boundary(stop, self.period, || intake.now()) {
            let began = Instant::now();
            // What is not taken comes again; it was counted.
            let _ = self.read(end);
            // As long a rest as it took: whatever there is to read, half a processor is left to others.
            if stop.wait(began.elapsed()) {
                break;
            }
        }
        self.collector.look_now();
        Ok(patiently(|| self.read(intake.now()))?)
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
