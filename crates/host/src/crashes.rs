//! Crashes of programs on this host: notices that the handler of crashes leaves in the folder
//! `crash-notices` of the data directory (`topdeck crash install`), and of processes that the OOM
//! killer killed.
//!
//! They are sent by a thread of their own, and removed once they are durable. An agent that is
//! killed between the two sends them again.

mod oom_kills;

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::source::{HostSource, Note, Opening, SourceSettings};
use crate::thread::{CollectorThread, StopSignal, retry_final_scrape};

/// Period at which the folder is read if it has changed, and at which it is read in any case: a
/// partial notice is complete once its handler has ended, which changes no file.
const PERIOD: Duration = Duration::from_secs(1);
const RESCAN_PERIOD: Duration = Duration::from_secs(10);
/// Changes in this time before a reading may have been missed by it.
const CHANGE_MARGIN: Duration = Duration::from_secs(2);
/// Notices in a batch: some 4 MiB at most, as each has at most 64 KiB. A journal with a smaller
/// limit gets fewer.
const BATCH_MAX: usize = 64;

/// Distinct crashes of a time that have series of their own: any user of the host can crash
/// programs with any names.
const KINDS_MAX: usize = 1_000;
const KINDS_PERIOD: Duration = Duration::from_secs(86_400);
/// Program, service and signature of others.
const OTHER: &str = "other";

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
        let data_dir = data_dir_of(journal.dir()).filter(|_| self.crashes);
        let Some(data_dir) = data_dir else { return Ok(None) };
        let intake = Arc::clone(opening.intake);
        let supervised = intake.supervisor().thread("crashes");
        let producer = intake.producer("crashes");
        producer.disable_absence_monitor();
        let rejected = Arc::default();
        let mut sender = CrashSender {
            host: opening.host.to_owned(),
            spool: Spool::new(&data_dir),
            oom_kills: OomKills::default(),
            last_reading: None,
            settled: HashSet::new(),
            kinds: CrashKinds::default(),
            batch_max: BATCH_MAX,
            rejected: Arc::clone(&rejected),
            is_noted: false,
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
        Ok(Some(Box::new(CrashSource(thread, rejected))))
    }
}

/// The data directory that has a journal: an agent has the journal in it, a server has it in the
/// store, which is in it.
fn data_dir_of(journal: &Path) -> Option<PathBuf> {
    let above = journal.parent()?;
    let dir = if above.ends_with("store") { above.parent()? } else { above };
    // The folder may be named by a link, which the spool does not follow.
    Some(std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()))
}

/// Warning of the first notice that was rejected, until the next scrape takes it.
type RejectionNote = Arc<Mutex<Option<Note>>>;

/// Source with a thread, which writes its own batches.
#[derive(Debug)]
struct CrashSource(CollectorThread<Result<()>>, RejectionNote);

impl HostSource for CrashSource {
    fn read(&mut self, _report: &mut RowReporter<'_>, _began: i64) -> u64 {
        0
    }

    fn degradation(&mut self) -> Option<Note> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).take()
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
    /// Names of notices that were sent or rejected but cannot be removed, such as on a file system
    /// that has become read-only: they are not sent again.
    settled: HashSet<String>,
    kinds: CrashKinds,
    /// Notices in a batch: fewer after one was too large for the journal.
    batch_max: usize,
    rejected: RejectionNote,
    is_noted: bool,
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
            let mut sent = self.send();
            while matches!(sent, Ok(false)) {
                sent = self.send();
            }
            self.last_reading = sent.is_ok().then_some(now);
        }
        Ok(retry_final_scrape(|| {
            while !self.send()? {}
            Ok(())
        })?)
    }

    /// Whether nothing has come since the last reading.
    fn is_unchanged(&self) -> bool {
        let Some((read, time)) = self.last_reading else { return false };
        let is_settled = |changed| is_settled(changed, time);
        read.elapsed() < RESCAN_PERIOD && self.spool.changed().is_none_or(is_settled)
    }

    /// Leaves a notice of each process that was killed for lack of memory.
    fn add_oom_kills(&mut self) {
        for (index, origin) in self.oom_kills.read().into_iter().enumerate() {
            let time_ns = self.intake.now();
            let name = format!("{time_ns:020}-oom-{index}");
            let reason = oom_kills::REASON.to_owned();
            let notice = CrashNotice { time_ns, origin, reason, ..CrashNotice::default() };
            let bytes = notice.to_bytes();
            // Beyond the limit of notices it is counted there.
            let written = self.spool.begin(&name, &bytes).and_then(|partial| match partial {
                Some(_held) => self.spool.finish(&name, &bytes),
                None => Ok(()),
            });
            if written.is_err() {
                self.dropped.add(1);
            }
        }
    }

    /// Sends notices; returns whether these were all.
    fn send(&mut self) -> intake::Result<bool> {
        self.dropped.add(self.spool.take_dropped());
        let count_max = self.batch_max;
        let waiting = self.spool.waiting(count_max, |name| !self.settled.contains(name));
        let mut writer = self.intake.writer_for(self.producer.id(), SeriesKeyEncoding::CANONICAL);
        let (mut sent, mut rejected) = (Vec::new(), Vec::new());
        for notice in &waiting {
            let labels = NoticeLabels::parse(&notice.bytes).map(|labels| self.kinds.limit(labels));
            let samples = labels.and_then(|labels| samples(&self.host, &labels, notice));
            let written = samples.is_some_and(|samples| {
                let mut samples = samples.into_iter();
                samples.all(|(key, series, sample)| {
                    let written = writer.series(&key, &mut || Ok(series.clone()));
                    written.and_then(|()| writer.sample(&sample)).is_ok()
                })
            });
            if written { sent.push(notice) } else { rejected.push(notice) }
        }
        if !writer.is_empty() {
            let appended = self.intake.append(&self.producer, writer);
            match appended.and_then(|pending_ack| pending_ack.wait_durable()) {
                Ok(()) => self.batch_max = BATCH_MAX.min(2 * count_max),
                Err(intake::Error::TooLarge { .. }) if sent.len() == 1 => {
                    rejected.append(&mut sent);
                }
                Err(intake::Error::TooLarge { .. }) => {
                    self.batch_max = (waiting.len() / 2).max(1);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.dropped.add(rejected.len() as u64);
        for notice in &rejected {
            self.note_rejected(&notice.name);
        }
        let removed = sent.into_iter().map(|notice| (notice, notice.remove()));
        for (notice, done) in removed.chain(rejected.into_iter().map(|it| (it, it.reject()))) {
            if done.is_err() {
                self.settled.insert(notice.name.clone());
            }
        }
        Ok(waiting.len() < count_max)
    }

    /// Warns of the first one.
    fn note_rejected(&mut self, name: &str) {
        if !std::mem::replace(&mut self.is_noted, true) {
            let text = format!(
                "cannot read the notice {name:?} of a crash: it is no notice of this version, or \
                 too large; see {name}.rejected in the folder of notices"
            );
            let note = Note { collector: "crashes", text };
            *self.rejected.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
        }
    }
}

/// Whether a change was seen by a reading at a time. Its owner sets the time of a folder at will.
fn is_settled(changed: SystemTime, read: SystemTime) -> bool {
    changed.checked_add(CHANGE_MARGIN).is_some_and(|settled| settled < read)
}

/// Crashes that have series of their own, by hashes of their labels.
struct CrashKinds {
    known: HashSet<u64>,
    since: Instant,
}

impl CrashKinds {
    /// Replaces the labels of a crash beyond the limit: it is counted, with its notice.
    fn limit(&mut self, labels: NoticeLabels) -> NoticeLabels {
        if self.since.elapsed() > KINDS_PERIOD {
            *self = CrashKinds::default();
        }
        let NoticeLabels { program, service, build, reason, signature, .. } = &labels;
        let kind = BuildHasherDefault::<DefaultHasher>::default()
            .hash_one((program, service, build, reason, signature));
        if self.known.contains(&kind) {
            return labels;
        }
        if self.known.len() < KINDS_MAX {
            self.known.insert(kind);
            return labels;
        }
        let [program, service, signature] = [OTHER; 3].map(str::to_owned);
        let (build, reason) = (String::new(), String::new());
        NoticeLabels { program, service, build, reason, signature, ..labels }
    }
}

impl Default for CrashKinds {
    fn default() -> CrashKinds {
        CrashKinds { known: HashSet::new(), since: Instant::now() }
    }
}

/// A crash as samples with the keys of their series: a count, the time since the start of the
/// process, and the notice. `None` if a label is invalid.
fn samples(
    host: &str,
    labels: &NoticeLabels,
    notice: &SpooledNotice,
) -> Option<Vec<(Vec<u8>, Series, Sample)>> {
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
    let with_key = |(series, sample): (Series, Sample)| {
        let series = series.validate().ok()?;
        Some((series.canonical_key(), series, sample))
    };
    samples.into_iter().map(with_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_time_that_cannot_be_is_read() {
        let now = SystemTime::now();
        assert!(is_settled(now - 2 * CHANGE_MARGIN, now) && !is_settled(now, now));
        let last = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX as u64));
        assert!(!is_settled(last.unwrap(), now));
    }

    #[test]
    fn crashes_of_many_kinds_have_a_limited_number_of_series() {
        let mut kinds = CrashKinds::default();
        let labels = |program: usize| NoticeLabels {
            program: program.to_string(),
            time_ns: 7,
            ..NoticeLabels::default()
        };
        for program in 0..KINDS_MAX {
            assert_eq!(kinds.limit(labels(program)), labels(program));
        }
        let other = kinds.limit(labels(KINDS_MAX));
        assert_eq!((other.program.as_str(), other.signature.as_str()), (OTHER, OTHER));
        assert_eq!(other.time_ns, 7);
        assert_eq!(kinds.limit(labels(5)), labels(5));
    }
}
