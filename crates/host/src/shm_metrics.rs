//! Collection of shared-memory metrics ([`shm`]) of all processes.
//!
//! Counters and distributions are reported cumulatively since the file was created, under the
//! labels `host`, `process`, `generation`. A generation is held by one process at a time
//! ([`generation_table`]); which process holds it is durable before its rows are appended.
//! Processes without a generation are added to a sum at their exit ([`exit_totals`]), in a batch
//! whose identity tells after a crash whether it was accepted. So nothing is lost or counted twice
//! when topdeck or the program restarts. A scrape consists of several batches. Counters and
//! distributions that are not accepted are part of the next scrape; gauges become a gap.

mod collector;
mod exit_totals;
mod generation_file;
mod generation_table;
mod in_flight_by_age;
mod rows;
pub(crate) mod running_processes;
mod tracked_process;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intake::{
    EventCounter, Intake, LatencyHistogram, Producer, SEQUENCE_JUMP_MAX, SeriesKeyEncoding,
};
use role::settings::{DurationSetting, SettingsCheck};
use serde::Deserialize;

use crate::error::Result;
use crate::metric::RowReporter;
use crate::shm_metrics::collector::{CollectorOptions, ShmCollector};
use crate::shm_metrics::exit_totals::ExitTotals;
use crate::shm_metrics::generation_file::GenerationFile;
use crate::shm_metrics::rows::ShmRowWriter;
use crate::source::{HostSource, Opening, SourceSettings, TABLE};
use crate::thread::{CollectorThread, StopSignal, next_boundary, retry_final_scrape};

/// Name of the producer of sums. It must not change: a producer's identity is a hash of its name.
const SUMS_PRODUCER: &str = "programs that exited";
/// Maximum number of processes in a batch of sums; fewer after a batch that was too large.
const SUMMED_PROCESSES_MAX: usize = 256;

/// Settings of metrics in shared memory.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShmMetricsSettings {
    /// Collect metrics that programs record into shared memory: true.
    shm_metrics: bool,
    /// Scrape interval: `1s`, from 100 ms to 30 s, because files of exited programs are kept for a
    /// minute.
    shm_scrape_interval: DurationSetting,
    /// Collect also the own metrics of other topdecks on this host: false. They would be stored
    /// twice, by each of them and here.
    shm_other_topdecks: bool,
    /// Maximum number of processes of a program that are stored apart at a time: 64, at most 1,000.
    /// The others are added to the generation `other` when they exit.
    shm_generations: u32,
    /// A process that exits within this time after its start is only added to the generation
    /// `short`: `10s`, at most 5 min.
    shm_short_lived: DurationSetting,
}

impl ShmMetricsSettings {
    const INTERVALS: RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(30);
    const GENERATIONS: RangeInclusive<u32> = 1..=1_000;
    const SHORT_LIVED: RangeInclusive<Duration> =
        Duration::from_nanos(1)..=Duration::from_secs(300);
}

impl Default for ShmMetricsSettings {
    fn default() -> ShmMetricsSettings {
        let shm_scrape_interval = DurationSetting(Duration::from_secs(1));
        ShmMetricsSettings {
            shm_metrics: true,
            shm_scrape_interval,
            shm_other_topdecks: false,
            shm_generations: 64,
            shm_short_lived: DurationSetting(Duration::from_secs(10)),
        }
    }
}

impl SourceSettings for ShmMetricsSettings {
    const KEYS: &'static [&'static str] = &[
        "shm_metrics",
        "shm_scrape_interval",
        "shm_other_topdecks",
        "shm_generations",
        "shm_short_lived",
    ];

    fn check(&self, check: &mut SettingsCheck<'_>) {
        check.range(TABLE, "shm_scrape_interval", Some(self.shm_scrape_interval), Self::INTERVALS);
        check.range(TABLE, "shm_short_lived", Some(self.shm_short_lived), Self::SHORT_LIVED);
        if !Self::GENERATIONS.contains(&self.shm_generations) {
            let (found, (min, max)) = (self.shm_generations, Self::GENERATIONS.into_inner());
            let what = format!("shm_generations is {found}, must be {min} to {max}");
            check.problem(TABLE, "shm_generations", what);
        }
    }

    fn is_enabled(&self) -> bool {
        self.shm_metrics
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        if !self.shm_metrics {
            return Ok(None);
        }
        let (host, interval) = (opening.host.to_owned(), self.shm_scrape_interval.0);
        let options = CollectorOptions {
            with_topdecks: self.shm_other_topdecks,
            generations_max: self.shm_generations,
            short_lived_ns: i64::try_from(self.shm_short_lived.0.as_nanos()).unwrap_or(i64::MAX),
        };
        let journal = opening.intake.write_target().journal();
        let file = GenerationFile::open(Arc::clone(journal.disk()), journal.dir());
        let (meter, live) = (opening.intake.meter(), opening.live.clone());
        let collector = ShmCollector::new(meter, options, file, live);
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
        producer: intake.volatile_producer("programs"),
        sums_producer: intake.volatile_producer(SUMS_PRODUCER),
        sums_max: SUMMED_PROCESSES_MAX,
        collector,
        host,
        period,
        lost_gauges: None,
        scrape: meter.histogram(
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
    /// Producer of the batches of sums, whose identities are in the generation table.
    sums_producer: Producer,
    /// Maximum number of processes in the next batch of sums.
    sums_max: usize,
    collector: ShmCollector,
    host: String,
    period: Duration,
    /// Gauges that were not accepted: end of the first such scrape, and their number.
    lost_gauges: Option<(i64, u64)>,
    scrape: LatencyHistogram,
    deferred: EventCounter,
}

impl ShmWorker {
    fn run(&mut self, stop: &StopSignal) -> Result<()> {
        let intake = Arc::clone(&self.intake);
        while let Some(end) = next_boundary(stop, self.period, || intake.now()) {
            let began = Instant::now();
            // A scrape that is not accepted is part of the next one; the error was counted.
            let _ = self.read(end);
            // Pauses for as long as the scrape took: the thread uses at most half a CPU.
            if stop.wait(began.elapsed()) {
                break;
            }
        }
        self.collector.rescan_now();
        let last = retry_final_scrape(|| self.read(intake.now()));
        // Otherwise the next start reports the same values again, which changes nothing.
        let _ = self.collector.save();
        if last.is_ok() {
            intake.end_volatile_producer(&self.producer);
            intake.end_volatile_producer(&self.sums_producer);
        }
        Ok(last?)
    }

    /// Scans for processes, and appends the sums of those that have exited without a generation.
    fn prepare(&mut self, end: i64) -> intake::Result<()> {
        self.settle_sums(0)?;
        self.collector.prepare(end)?;
        while let Some((mut sums, end)) = self.collector.begin_sums(self.sums_max, end)? {
            self.append_sums(&mut sums, end)?;
        }
        Ok(())
    }

    fn append_sums(&mut self, sums: &mut ExitTotals, end: i64) -> intake::Result<()> {
        let producer = self.sums_producer.id();
        let Some(identity) = self.collector.table.pending_identity(producer) else { return Ok(()) };
        let encoding = SeriesKeyEncoding::new("shared memory");
        let mut writer = self.intake.writer_for(producer, encoding);
        sums.write(&self.host, end, &mut writer);
        let appended =
            self.intake.append_with_identity(identity, SEQUENCE_JUMP_MAX, SUMS_PRODUCER, writer);
        match appended {
            Ok(pending_ack) => {
                // Programs exit when they like: a time without exits is no absence.
                self.intake.retire_source(&self.sums_producer);
                pending_ack.wait_durable()?;
                self.collector.settle_sums(true, sums.rejected);
                self.sums_max = SUMMED_PROCESSES_MAX;
                Ok(())
            }
            // No part of it is stored: fewer processes fit, or one does not fit at all.
            Err(intake::Error::TooLarge { .. }) => {
                self.collector.settle_sums(self.sums_max == 1, 1);
                self.sums_max = (self.sums_max / 2).max(1);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Ends a batch of sums whose outcome is unknown, also after a restart: the journal knows
    /// whether it was accepted.
    fn settle_sums(&mut self, rejected: u64) -> intake::Result<()> {
        let pending = self.collector.table.pending_identity(self.sums_producer.id());
        let Some(identity) = pending else { return Ok(()) };
        let pending_ack = self.intake.find_duplicate(identity)?;
        let is_accepted = pending_ack.is_some();
        pending_ack.map_or(Ok(()), |pending_ack| pending_ack.wait_durable())?;
        self.collector.settle_sums(is_accepted, rejected);
        Ok(())
    }

    /// Reads all processes as of `end` and waits until the scrape is durable.
    fn read(&mut self, end: i64) -> intake::Result<()> {
        let began = Instant::now();
        let retell = i64::try_from(self.intake.settings().interval.as_nanos()).unwrap_or(i64::MAX);
        if let Err(error) = self.prepare(end) {
            // Rows must not be appended before their assignment is durable.
            self.deferred.add(1);
            self.lost_gauges.get_or_insert((end, 0));
            return Err(error);
        }
        let mut out = ShmRowWriter::new(&self.intake, &self.producer, &self.host, end, retell);
        if let Some((start, lost)) = self.lost_gauges {
            out.gap(start, lost);
        }
        self.collector.read(&mut out);
        if out.is_idle() {
            // No program is left to read: there is nothing to send, and nothing is absent.
            self.intake.retire_source(&self.producer);
        }
        let gauges = out.gauges;
        let outcome = out.finish();
        self.scrape.record(began.elapsed());
        let pending_ack = match outcome {
            Ok(pending_ack) => pending_ack,
            Err(error) => {
                self.deferred.add(1);
                let (start, lost) = self.lost_gauges.unwrap_or((end, 0));
                self.lost_gauges = Some((start, lost + gauges));
                self.collector.rollback();
                return Err(error);
            }
        };
        self.lost_gauges = None;
        let safe = pending_ack.map_or(Ok(()), |pending_ack| pending_ack.wait_durable());
        match safe {
            Ok(()) => self.collector.commit(),
            Err(_) => self.collector.rollback(),
        }
        safe
    }
}
