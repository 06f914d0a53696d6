//! Collection of shared-memory metrics ([`shm`]) of all processes.
//!
//! Counters and distributions are reported cumulatively since the file was created, under labels
//! that do not depend on the collector: `host`, `process`, `pid`. Nothing is lost or counted twice
//! when topdeck or the program restarts. A reading consists of several batches. Counters and
//! distributions that are not accepted are part of the next reading; gauges become a gap.

mod collector;
mod in_flight_by_age;
mod rows;
mod tracked_process;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intake::{EventCounter, Intake, LatencyHistogram, Producer};
use role::settings::{Length, SettingsCheck};
use serde::Deserialize;

use crate::error::Result;
use crate::metric::RowReporter;
use crate::shm_metrics::collector::ShmCollector;
use crate::shm_metrics::rows::ShmRowWriter;
use crate::source::{HostSource, Opening, SourceSettings, TABLE};
use crate::thread::{CollectorThread, StopSignal, next_boundary, retry_final_reading};

/// Settings of metrics in shared memory.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShmMetricsSettings {
    /// Collect metrics that programs record into shared memory: true.
    shm_metrics: bool,
    /// Scrape interval: `1s`, from 100 ms to 30 s, because files of exited programs are kept for a
    /// minute.
    shm_scrape_interval: Length,
    /// Collect also the own metrics of other topdecks on this host: false. They would be stored
    /// twice, by each of them and here.
    shm_other_topdecks: bool,
}

impl ShmMetricsSettings {
    const INTERVALS: RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(30);
}

impl Default for ShmMetricsSettings {
    fn default() -> ShmMetricsSettings {
        let shm_scrape_interval = Length(Duration::from_secs(1));
        ShmMetricsSettings { shm_metrics: true, shm_scrape_interval, shm_other_topdecks: false }
    }
}

impl SourceSettings for ShmMetricsSettings {
    const KEYS: &'static [&'static str] =
        &["shm_metrics", "shm_scrape_interval", "shm_other_topdecks"];

    fn check(&self, check: &mut SettingsCheck<'_>) {
        check.range(TABLE, "shm_scrape_interval", Some(self.shm_scrape_interval), Self::INTERVALS);
    }

    fn is_enabled(&self) -> bool {
        self.shm_metrics
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        if !self.shm_metrics {
            return Ok(None);
        }
        let (host, interval) = (opening.host.to_owned(), self.shm_scrape_interval.0);
        let collector = ShmCollector::new(opening.intake.meter(), self.shm_other_topdecks);
        let thread = collect(host, interval, collector, Arc::clone(opening.intake))?;
        Ok(Some(Box::new(ShmScraper(thread))))
    }
}

/// Source with a collector thread, which writes its own batches at its own interval.
#[derive(Debug)]
struct ShmScraper(CollectorThread<Result<()>>);

impl HostSource for ShmScraper {
    fn read(&mut self, _report: &mut RowReporter<'_>, _began: i64) -> u64 {
        0
    }

    fn stop(&mut self) -> Result<()> {
        self.0.stop().unwrap_or(Ok(()))
    }
}

/// Collects at each interval, and once more when the thread stops.
fn collect(
    host: String,
    period: Duration,
    collector: ShmCollector,
    intake: Arc<Intake>,
) -> Result<CollectorThread<Result<()>>> {
    let meter = intake.meter();
    let deferred = "scrapes of shared-memory metrics deferred to the next one under backpressure";
    let supervised = intake.supervisor().thread("programs");
    let mut worker = ShmWorker {
        // The name must not change: a producer's identity is a hash of its name.
        producer: intake.producer("programs"),
        collector,
        host,
        period,
        lost_gauges: None,
        reading: meter.histogram(
            "topdeck_shm_scrape_duration",
            "duration of a scrape of shared-memory metrics",
            &[],
        ),
        deferred: meter.counter("topdeck_shm_deferred_scrapes_total", deferred, &[]),
        intake,
    };
    CollectorThread::start("programs", None, supervised, move |stop| worker.run(stop))
}

/// State of the shm metrics thread.
struct ShmWorker {
    intake: Arc<Intake>,
    producer: Producer,
    collector: ShmCollector,
    host: String,
    period: Duration,
    /// Gauges that were not accepted: end of the first such reading, and their number.
    lost_gauges: Option<(i64, u64)>,
    reading: LatencyHistogram,
    deferred: EventCounter,
}

impl ShmWorker {
    fn run(&mut self, stop: &StopSignal) -> Result<()> {
        let intake = Arc::clone(&self.intake);
        while let Some(end) = next_boundary(stop, self.period, || intake.now()) {
            let began = Instant::now();
            // A reading that is not accepted is part of the next one; the error was counted.
            let _ = self.read(end);
            // Pauses for as long as the reading took: the thread uses at most half a CPU.
            if stop.wait(began.elapsed()) {
                break;
            }
        }
        self.collector.rescan_now();
        Ok(retry_final_reading(|| self.read(intake.now()))?)
    }

    /// Reads all processes as of `end` and waits until the reading is durable.
    fn read(&mut self, end: i64) -> intake::Result<()> {
        let began = Instant::now();
        let retell = i64::try_from(self.intake.settings().interval.as_nanos()).unwrap_or(i64::MAX);
        let mut out = ShmRowWriter::new(&self.intake, &self.producer, &self.host, end, retell);
        if let Some((start, lost)) = self.lost_gauges {
            out.gap(start, lost);
        }
        self.collector.read(&mut out);
        let gauges = out.gauges;
        let outcome = out.finish();
        self.reading.record(began.elapsed());
        let receipt = match outcome {
            Ok(receipt) => receipt,
            Err(error) => {
                self.deferred.add(1);
                let (start, lost) = self.lost_gauges.unwrap_or((end, 0));
                self.lost_gauges = Some((start, lost + gauges));
                self.collector.rollback();
                return Err(error);
            }
        };
        self.lost_gauges = None;
        let safe = receipt.map_or(Ok(()), |receipt| receipt.wait_durable());
        match safe {
            Ok(()) => self.collector.commit(),
            Err(_) => self.collector.rollback(),
        }
        safe
    }
}
