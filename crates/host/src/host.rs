//! Host collector: one thread reads all sources at interval boundaries.

use std::sync::Arc;
use std::time::Instant;

use decode::SeriesSink;
use intake::{EventCounter, Intake, LatencyHistogram, Producer, SeriesKeyEncoding};
use model::Gap;

use crate::error::{Error, Result};
use crate::metric::RowReporter;
use crate::settings::Settings;
use crate::shm_metrics::running_processes::RunningProcesses;
use crate::source::Note;
use crate::sources::Sources;
use crate::thread::{CollectorThread, StopSignal, next_boundary, retry_final_scrape};

/// Host collector; stops on drop.
#[derive(Debug)]
pub struct HostCollector {
    thread: CollectorThread<Result<()>>,
    warnings: Vec<Note>,
    live: RunningProcesses,
}

impl HostCollector {
    /// Starts the threads. [`HostCollector::stop`] ends them.
    pub fn start(settings: Settings, intake: Arc<Intake>) -> Result<HostCollector> {
        let host = settings.host.clone();
        if !(1..=Settings::HOST_BYTES_MAX).contains(&host.len()) {
            return Err(Error::NameSize { found: host.len() });
        }
        let meter = Arc::clone(intake.meter());
        let began = intake.now();
        let sources = Sources::open(&settings, began, &intake)?;
        let (notes, live) = (sources.warnings().to_vec(), sources.live.clone());
        let supervised = intake.supervisor().thread("host");
        let mut worker = HostWorker {
            producer: intake.volatile_producer("host"),
            host,
            sources,
            last_end: began,
            lost_gauges: None,
            scrape: meter.histogram(
                "topdeck_host_scrape_duration",
                "duration of a host scrape",
                &[],
            ),
            deferred: meter.counter(
                "topdeck_host_deferred_scrapes_total",
                "host scrapes deferred to the next one under backpressure",
                &[],
            ),
            rejected: meter.counter(
                "topdeck_host_rejected_scrapes_total",
                "host scrapes with at least one rejected sample",
                &[],
            ),
            intake,
        };
        let thread =
            CollectorThread::start("host", None, supervised, move |stop| worker.run(stop))?;
        Ok(HostCollector { thread, warnings: notes, live })
    }

    /// Running programs with metrics in shared memory.
    pub(crate) fn running_processes(&self) -> RunningProcesses {
        self.live.clone()
    }

    /// Enabled sources that are unavailable or degraded, one text with the reason each.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.iter().map(|note| note.text.clone()).collect()
    }

    /// Takes a final scrape, waits until it is durable, and ends the threads. If the journal has
    /// no space for some seconds, the scrape is lost and an error is returned.
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
    /// End of the last committed scrape.
    last_end: i64,
    /// Gauges that were not accepted: end of the first such scrape, and their number.
    lost_gauges: Option<(i64, u64)>,
    scrape: LatencyHistogram,
    deferred: EventCounter,
    rejected: EventCounter,
}

impl HostWorker {
    fn run(&mut self, stop: &StopSignal) -> Result<()> {
        let intake = Arc::clone(&self.intake);
        while let Some(end) = next_boundary(stop, intake.settings().interval, || intake.now()) {
            // A scrape that is not accepted is part of the next one; the error was counted.
            let _ = self.read(end);
        }
        let stopped = self.sources.stop();
        let last = retry_final_scrape(|| self.read(intake.now()));
        if last.is_ok() {
            intake.end_volatile_producer(&self.producer);
        }
        stopped.and(last.map_err(Error::from))
    }

    /// Reads all sources as of `end` and waits until the scrape is durable.
    fn read(&mut self, end: i64) -> intake::Result<()> {
        let began = Instant::now();
        let mut writer = self.intake.writer_for(self.producer.id(), SeriesKeyEncoding::new("host"));
        if let Some((start, lost)) = self.lost_gauges {
            let reason =
                "backpressure: gauge samples are lost; counters are cumulative and lose nothing";
            let producer = Some(self.producer.id());
            let (start, lost, reason) = (start.min(end), Some(lost), reason.to_owned());
            writer.gap(Gap { start, end, producer, lost, reason });
        }
        let mut report = RowReporter::new(&mut writer, &self.host, self.last_end, end);
        self.sources.read(&mut report);
        self.intake.supervisor().failpoint("host scrape");
        let gauges = report.gauges;
        if report.first_rejection.is_some() {
            self.rejected.add(1);
        }
        if writer.is_empty() {
            return Ok(());
        }
        let outcome = self.intake.append(&self.producer, writer);
        self.scrape.record(began.elapsed());
        let pending_ack = outcome.inspect_err(|_| {
            self.deferred.add(1);
            let (start, lost) = self.lost_gauges.unwrap_or((end, 0));
            self.lost_gauges = Some((start, lost + gauges));
        })?;
        self.sources.commit();
        self.last_end = end;
        self.lost_gauges = None;
        pending_ack.wait_durable()
    }
}
