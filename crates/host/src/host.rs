//! Host collector: one thread reads all sources at interval boundaries.

use std::sync::Arc;
use std::time::Instant;

use collect::RowSink;
use intake::{Counter, Intake, LatencyHistogram, Producer, SeriesKeyEncoding};
use model::Gap;

use crate::error::{Error, Result};
use crate::hiccup::Hiccup;
use crate::metric::RowReporter;
use crate::process_table;
use crate::settings::Settings;
use crate::shm_metrics;
use crate::source::Note;
use crate::sources::Sources;
use crate::thread::{CollectorThread, StopSignal, next_boundary, retry_final_reading};

/// Host collector; stops on drop.
#[derive(Debug)]
pub struct HostCollector {
    shm_thread: Option<CollectorThread<Result<()>>>,
    thread: CollectorThread<Result<()>>,
    _tables: Option<CollectorThread<()>>,
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
        let hiccup = settings.hiccup_interval.map(|period| {
            if !(Settings::HICCUP_INTERVAL_MIN..=Settings::HICCUP_INTERVAL_MAX).contains(&period) {
                return Err(Error::HiccupInterval { found: period });
            }
            let unrecorded = meter.counter(
                "topdeck_host_hiccups_dropped_total",
                "moments of long stalls that are in no distribution of hiccups",
                &[],
            );
            Hiccup::start(period, unrecorded, intake.supervisor().thread("hiccup"))
        });
        let (hiccup, waits) = hiccup.transpose()?.unzip();
        let programs = settings.shm_interval.map(|period| {
            if !(Settings::SHM_INTERVAL_MIN..=Settings::SHM_INTERVAL_MAX).contains(&period) {
                return Err(Error::ShmInterval { found: period });
            }
            shm_metrics::collect(host.clone(), period, Arc::clone(&intake))
        });
        let programs = programs.transpose()?;
        let began = intake.now();
        let mut sources = Sources::open(&settings, waits, began, &meter);
        let tables = sources
            .take_processes()
            .map(|processes| process_table::publish(processes, settings.folder.clone(), &intake));
        let (tables, unpublished) = tables.transpose()?.unzip();
        if let Some(why) = unpublished.flatten() {
            sources.add_warning(format!("the table of processes is not published now: {why}"));
        }
        let notes = sources.warnings().to_vec();
        let supervised = intake.supervisor().thread("host");
        let mut worker = HostWorker {
            producer: intake.producer("host"),
            host,
            sources,
            hiccup,
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
        Ok(HostCollector { shm_thread: programs, thread, _tables: tables, warnings: notes })
    }

    /// What is wanted and not told, and why: a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.iter().map(|note| note.text.clone()).collect()
    }

    /// Reads a last time, waits until that is taken, and ends the threads. Where there is no room in the journal for
    /// some seconds, what was not taken is lost, and said.
    pub fn stop(mut self) -> Result<()> {
        let programs = self.shm_thread.as_mut().and_then(CollectorThread::stop).unwrap_or(Ok(()));
        programs.and(self.thread.stop().unwrap_or(Ok(())))
    }
}

/// State of the host collector thread.
struct HostWorker {
    intake: Arc<Intake>,
    producer: Producer,
    host: String,
    sources: Sources,
    hiccup: Option<Hiccup>,
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
        if let Some(hiccup) = &mut self.hiccup {
            hiccup.stop();
        }
        Ok(retry_final_reading(|| self.read(intake.now()))?)
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
