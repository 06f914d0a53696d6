//! Crashes of programs on this host: notices that the handler of crashes leaves in the folder
//! `crashes` of the data directory (`topdeck crash install`), and of processes that the OOM killer
//! killed.
//!
//! They are sent by a thread of their own, and removed once they are durable. An agent that is
//! killed between the two sends them again.

mod oom_kills;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crash::{CrashNotice, NoticeLabels, Spool, SpooledNotice};
use decode::SeriesSink as _;
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::{EventCounter, Intake, Producer, SeriesKeyEncoding};
use model::{Sample, SampleValue, Series, SeriesKind};
use serde::Deserialize;

use crate::crashes::oom_kills::OomKills;
use crate::error::Result;
use crate::metric::RowReporter;
use crate::source::{HostSource, Opening, SourceSettings};
use crate::thread::{CollectorThread, StopSignal, retry_final_scrape};

/// Period at which the folder is read if it has changed, and at which it is read in any case: a
/// partial notice is complete once its handler has ended, which changes no file.
const PERIOD: Duration = Duration::from_secs(1);
const RESCAN_PERIOD: Duration = Duration::from_secs(10);
/// Changes in this time before a reading may have been missed by it.
const CHANGE_MARGIN: Duration = Duration::from_secs(2);
/// Notices in a batch.
const BATCH_MAX: usize = 64;

/// Settings of crashes.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CrashSettings {
    /// Send the notices of crashes on this host: true.
    crashes: bool,
}

impl Default for CrashSettings {
    fn default() -> CrashSettings {
        CrashSettings { crashes: true }
    }
}

impl SourceSettings for CrashSettings {
    const KEYS: &'static [&'static str] = &["crashes"];

    fn is_enabled(&self) -> bool {
        self.crashes
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        let journal = opening.intake.write_target().journal();
        // `journal` of the data directory, or of its store.
        let above = journal.dir().parent().filter(|_| self.crashes);
        let is_store = above.is_some_and(|above| above.ends_with("store"));
        let Some(data_dir) = above.and_then(|it| if is_store { it.parent() } else { Some(it) })
        else {
            return Ok(None);
        };
        // The folder may be named by a link, which the spool does not follow.
        let data_dir = std::fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let intake = Arc::clone(opening.intake);
        let supervised = intake.supervisor().thread("crashes");
        let producer = intake.producer("crashes");
        producer.disable_absence_monitor();
        let mut sender = CrashSender {
            host: opening.host.to_owned(),
            spool: Spool::new(&data_dir),
            oom_kills: OomKills::default(),
            last_reading: None,
            producer,
            dropped: intake.meter().counter(
                "topdeck_crash_dropped_notices_total",
                "crashes of this host without a notice: too many at a time, or a notice that \
                 cannot be read or stored",
                &[],
            ),
            intake,
        };
        let run = move |stop: &StopSignal| sender.run(stop);
        let thread = CollectorThread::start("crashes", None, supervised, run)?;
        Ok(Some(Box::new(CrashSource(thread))))
    }
}

/// Source with a thread, which writes its own batches.
#[derive(Debug)]
struct CrashSource(CollectorThread<Result<()>>);

impl HostSource for CrashSource {
    fn read(&mut self, _report: &mut RowReporter<'_>, _began: i64) -> u64 {
        0
    }

    fn stop(&mut self) -> Result<()> {
        self.0.stop().unwrap_or(Ok(()))
    }
}

/// State of the thread.
struct CrashSender {
    host: String,
    spool: Spool,
    oom_kills: OomKills,
    /// When the folder was read and all of it was sent.
    last_reading: Option<(Instant, SystemTime)>,
    intake: Arc<Intake>,
    producer: Producer,
    dropped: EventCounter,
}

impl CrashSender {
    fn run(&mut self, stop: &StopSignal) -> Result<()> {
        while !stop.wait(PERIOD) {
            self.add_oom_kills();
            let now = (Instant::now(), SystemTime::now());
            if self.is_unchanged() {
                continue;
            }
            // Notices that the journal does not accept stay in the folder.
            self.last_reading = self.send().is_ok_and(|count| count < BATCH_MAX).then_some(now);
        }
        Ok(retry_final_scrape(|| self.send().map(|_| ()))?)
    }

    /// Whether nothing has come since the last reading.
    fn is_unchanged(&self) -> bool {
        let Some((read, time)) = self.last_reading else { return false };
        let is_before = |changed: SystemTime| changed + CHANGE_MARGIN < time;
        read.elapsed() < RESCAN_PERIOD && self.spool.changed().is_none_or(is_before)
    }

    /// Leaves a notice of each process that was killed for lack of memory.
    fn add_oom_kills(&mut self) {
        for (index, origin) in self.oom_kills.read().into_iter().enumerate() {
            let time_ns = self.intake.now();
            let name = format!("{time_ns:020}-oom-{index}");
            let reason = oom_kills::REASON.to_owned();
            let notice = CrashNotice { time_ns, origin, reason, ..CrashNotice::default() };
            if self.spool.finish(&name, notice.to_json().to_string().as_bytes()).is_err() {
                self.dropped.add(1);
            }
        }
    }

    /// Sends notices; returns how many there were.
    fn send(&mut self) -> intake::Result<usize> {
        self.dropped.add(self.spool.take_dropped());
        let waiting = self.spool.waiting(BATCH_MAX);
        let mut writer = self.intake.writer_for(self.producer.id(), SeriesKeyEncoding::CANONICAL);
        for notice in &waiting {
            let labels = NoticeLabels::parse(&notice.bytes);
            let written = labels.map(|labels| {
                samples(&self.host, &labels, notice).into_iter().try_for_each(|(series, sample)| {
                    let series = series.validate()?;
                    writer.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
                    writer.sample(&sample)
                })
            });
            if !matches!(written, Some(Ok(()))) {
                self.dropped.add(1);
            }
        }
        if !writer.is_empty() {
            self.intake.append(&self.producer, writer)?.wait_durable()?;
        }
        // Also those that cannot be read, which were counted.
        waiting.iter().for_each(|notice| _ = notice.remove());
        Ok(waiting.len())
    }
}

/// A crash as samples: a count, the time since the start of the process, and the notice.
fn samples(host: &str, labels: &NoticeLabels, notice: &SpooledNotice) -> Vec<(Series, Sample)> {
    let with_labels = |series: Series| {
        let own = [
            ("host", host),
            ("program", &labels.program),
            ("service", &labels.service),
            ("build", &labels.build),
            ("reason", &labels.reason),
            ("signature", &labels.signature),
        ];
        let own = own.into_iter().filter(|(_, value)| !value.is_empty());
        own.fold(series, |series, (name, value)| series.with_label(name, value))
    };
    let end = labels.time_ns;
    // The interval of a delta is not empty.
    let start = end.saturating_sub(1);
    let text = String::from_utf8_lossy(&notice.bytes).into_owned();
    let mut samples = vec![
        (
            with_labels(Series::new("crashes_total", SeriesKind::Counter(Temporality::Delta))),
            Sample { start, end, value: SampleValue::Number(1.0) },
        ),
        (
            with_labels(Series::new("crash", SeriesKind::Text)),
            Sample { start: end, end, value: SampleValue::Text(text) },
        ),
    ];
    if let Some(uptime_ns) = labels.uptime_ns {
        let mut uptime = Histogram::default();
        uptime.record(uptime_ns as f64);
        let series = Series::new("crash_uptime", SeriesKind::Histogram(Temporality::Delta));
        let value = SampleValue::Histogram(Box::new(uptime));
        let series = with_labels(series.with_unit("ns"));
        samples.push((series, Sample { start, end, value }));
    }
    samples
}
