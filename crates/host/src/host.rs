//! Host collector: one thread reads all sources at interval boundaries.

use std::sync::Arc;
use std::time::Instant;

use collect::RowSink;
use intake::{Counter, Intake, LatencyHistogram, Producer, SeriesKeyEncoding};
use model::Gap;

use crate::error::{Error, Result};
use crate::metric::RowReporter;
use crate::settings::Settings;
use crate::source::Note;
use crate::sources::Sources;
use crate::thread::{CollectorThread, StopSignal, next_boundary, retry_final_reading};

/// Host collector; stops on drop.
#[derive(Debug)]
pub struct HostCollector {
    thread: CollectorThread<Result<()>>,
    warnings: Vec<Note>,
}

impl HostCollector {
    /// Begins. The threads end with [`Host::stop`].
    pub fn start(settings: Settings, intake: Arc<Intake>) -> Result<HostCollector> {
        let host = settings.host.clone();
        if !(1..=Settings::HOST_BYTES_MAX).contains(&host.len()) {
            return Err(Error::NameSize { found: host.len() });
        }
        let meter = Arc::clone(intake.meter());
        let began = intake.now();
        let sources = Sources::open(&settings, began, &intake)?;
        let notes = sources.warnings().to_vec();
        let supervised = intake.supervisor().thread("host");
        let mut worker = HostWorker {
            producer: intake.producer("host"),
            host,
            sources,
            last_end: began,
            lost_gauges: None,
            reading: meter.histogram(
                "topdeck_host_reading_duration",
                "how long a reading of the host takes",
                &[],
            ),
            deferred: meter.counter(
                "topdeck_host_deferred_readings_total",
                "readings of the host that were not taken, and came again within the next",
                &[],
            ),
            rejected: meter.counter(
                "topdeck_host_rejected_readings_total",
                "readings of the host in which a row was refused",
                &[],
            ),
            intake,
        };
        let thread =
            CollectorThread::start("host", None, supervised, move |stop| worker.run(stop))?;
        Ok(HostCollector { thread, warnings: notes })
    }

    /// What is wanted and not told, and why: a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.iter().map(|note| note.text.clone()).collect()
    }

    /// Reads a last time, waits until that is taken, and ends the threads. Where there is no room
    /// in the journal for some seconds, what was not taken is lost, and said.
    pub fn stop(mut self) -> Result<()> {
        self.thread.stop().unwrap_or(Ok(()))
    }
}

/// State of the host collector thread.
struct HostWorker {
    intake: Arc<Intake>,
    producer: Producer,
    host: String,
    sources: Sources,
    /// The end of the last reading that was taken.
    last_end: i64,
    /// Gauges that were not taken: the first reading's end, and how many.
    lost_gauges: Option<(i64, u64)>,
    reading: LatencyHistogram,
    deferred: Counter,
    rejected: Counter,
}

impl HostWorker {
    fn run(&mut self, stop: &StopSignal) -> Result<()> {
        let intake = Arc::clone(&self.intake);
        while let Some(end) = next_boundary(stop, intake.settings().interval, || intake.now()) {
            // What is not taken comes again; it was counted.
            let _ = self.read(end);
        }
        let stopped = self.sources.stop();
        let last = retry_final_reading(|| self.read(intake.now()));
        stopped.and(last.map_err(Error::from))
    }

    /// Reads all, as of `end`, and waits until it is taken.
    fn read(&mut self, end: i64) -> intake::Result<()> {
        let began = Instant::now();
        let mut writer = self.intake.writer_for(self.producer.id(), SeriesKeyEncoding::new("host"));
        if let Some((start, lost)) = self.lost_gauges {
            let reason = "there was no room for readings of the host; only what adds up came later";
            let producer = Some(self.producer.id());
            let (start, lost, reason) = (start.min(end), Some(lost), reason.to_owned());
            writer.gap(Gap { start, end, producer, lost, reason });
        }
        let mut report = RowReporter::new(&mut writer, &self.host, self.last_end, end);
        self.sources.read(&mut report);
        self.intake.supervisor().fault_point("host reading");
        let gauges = report.gauges;
        if report.first_rejection.is_some() {
            self.rejected.add(1);
        }
        if writer.is_empty() {
            return Ok(());
        }
        let taken = self.intake.append(&self.producer, writer);
        self.reading.record(began.elapsed());
        let receipt = taken.inspect_err(|_| {
            self.deferred.add(1);
            let (start, lost) = self.lost_gauges.unwrap_or((end, 0));
            self.lost_gauges = Some((start, lost + gauges));
        })?;
        self.sources.commit();
        self.last_end = end;
        self.lost_gauges = None;
        receipt.wait_durable()
    }
}
