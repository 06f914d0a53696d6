//! Intake: the entry point of the write path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use journal::log::LogLevel;
use journal::supervisor::DamageAcknowledgement;
use journal::{BatchIdentity, Supervisor, WallClock};
use model::{Batch, Gap, SeriesId, TraceId};

use crate::absence_monitor::{AbsenceMonitor, SourceActivity};
use crate::acknowledged_damage::AcknowledgedDamage;
use crate::audit::{Audit, DownstreamStage};
use crate::batch_outcomes::{BatchOutcomes, IdentityRejections};
use crate::error::{Error, Result};
use crate::exemplar_intake::ExemplarIntake;
use crate::group_commit::{GroupCommit, PendingAck};
use crate::housekeeping;
use crate::ingest_writer::IngestWriter;
use crate::intake_state::{IntakeState, SELF_PRODUCER, batch_bytes_max, lock};
use crate::key_encoding::SeriesKeyEncoding;
use crate::known_keys::{KnownKeys, ProducerKey};
use crate::ledger_file::LedgerFile;
use crate::ledger_reader::{self, LedgerReader};
use crate::meter::Meter;
use crate::producer::Producer;
use crate::rejected_input::{RejectedInput, RejectedInputs};
use crate::rejections::Rejections;
use crate::restartable::ClockThread;
use crate::self_metrics;
use crate::series_cache::SeriesCache;
use crate::settings::Settings;
use crate::space_monitor::SpaceMonitor;
use crate::trace_buffer::{KEPT_NS, TraceFate};
use crate::unit_conflict::UnitConflict;
use crate::write_target::WriteTarget;

const UNIT_CONFLICTS: &str = "topdeck_ingest_unit_conflicts_total";
const UNIT_CONFLICTS_HELP: &str = "Requests with a new histogram in another unit than others of \
                                   its metric, by sender; they are stored";
/// Maximum number of such conflicts that are logged.
const UNIT_CONFLICTS_LOGGED: usize = 1000;

/// Maximum jump of sequences of a sender with numbers of its own. A sender cannot lose more
/// batches; a larger jump is a bug or a forgery, and would turn all later batches of the sender
/// into duplicates.
pub const SEQUENCE_JUMP_MAX: u64 = 1 << 20;
/// The same for a sender without a secret, whose name others can use: one forged request causes at
/// most this many duplicates. A sender that has to skip more uses a new epoch.
pub const UNAUTHENTICATED_SEQUENCE_JUMP_MAX: u64 = 1 << 12;
/// The same for a journal: its sequences are positions, so this is the maximum number of records
/// that it may drop at once.
pub const JOURNAL_SEQUENCE_JUMP_MAX: u64 = 1 << 32;

/// The write path. All methods may be called from any thread.
#[derive(Debug)]
pub struct Intake {
    shared: Arc<IntakeState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Intake {
    /// Opens the write path into a store or a journal, and its ledgers. If the previous process was
    /// killed, a gap records what may be lost.
    pub fn new(home: WriteTarget, settings: Settings) -> Result<Intake> {
        let meter = if settings.publish { Meter::with_shared_memory() } else { Meter::default() };
        let meter = Arc::new(meter);
        let reader = LedgerReader::open(&home, Arc::clone(&settings.clock))?;
        let syncing = meter.histogram(
            "topdeck_journal_sync_duration",
            "Duration of a journal sync (group commit)",
            &[],
        );
        let space = Arc::new(SpaceMonitor::default());
        let commit =
            GroupCommit::start(home.clone(), syncing, Arc::clone(&space), settings.clone())
                .map_err(no_thread)?;
        let started_at = (settings.clock)();
        self_metrics::register_gauges(&meter, home.clone(), started_at);
        let batches = |outcome| {
            let about = "Batches received, by outcome";
            meter.counter("topdeck_batches_total", about, &[("outcome", outcome)])
        };
        let mut notes = Vec::new();
        let (disk, dir) = (home.journal().disk().clone(), home.journal().dir().to_owned());
        let known_keys = KnownKeys::open(disk.clone(), &dir, &mut notes)?;
        let place = (dir.as_path(), home.journal().id());
        let acknowledged_damage =
            AcknowledgedDamage::open(disk, place, home.supervisor(), &mut notes)?;
        let impostors = |reason| {
            let about = "Requests rejected because their producer id belongs to another sender, or \
                         its sequence jumped";
            meter.counter("topdeck_intake_identity_rejections_total", about, &[("reason", reason)])
        };
        let series_cache = Arc::new(SeriesCache::new(settings.traces.clone(), &meter));
        if let Some(store) = home.store() {
            let recent = store.recent_trace_ids(started_at.saturating_sub(KEPT_NS));
            series_cache.spans.traces.restore(recent, started_at);
        }
        let buffered = Arc::clone(&series_cache);
        meter.register_collector(move |all| buffered.spans.traces.snapshot(all));
        let shared = Arc::new(IntakeState {
            sequences: Mutex::default(),
            known_keys,
            acknowledged_damage,
            identity_rejections: IdentityRejections {
                keys: impostors("key"),
                sequences: impostors("sequence"),
            },
            epoch: journal::random_id() as u64,
            started_at,
            producers: Mutex::default(),
            accepted: Mutex::default(),
            series_cache,
            rejections: Arc::new(Rejections::new(&meter)),
            rejected_inputs: RejectedInputs::default(),
            logged_unit_conflicts: Mutex::default(),
            exemplars: Arc::new(ExemplarIntake::new(
                settings.exemplars.clone(),
                home.journal().id(),
                &meter,
            )),
            outcomes: BatchOutcomes {
                accepted: batches("accepted"),
                duplicate: batches("duplicate"),
                rejected: batches("rejected"),
                deferred: batches("deferred"),
            },
            append_latency: meter.histogram(
                "topdeck_journal_append_duration",
                "Duration of appending a batch to the journal",
                &[],
            ),
            shutdown_gap_receipt: Mutex::default(),
            is_unclean: AtomicBool::new(false),
            batch_bytes_max: batch_bytes_max(&home),
            space,
            absence: AbsenceMonitor::new(settings.absence),
            group_commit: commit,
            ledger_reader: reader,
            stages: Mutex::default(),
            warnings: Mutex::new(notes),
            meter,
            target: home,
            settings,
            stop: (Mutex::new(false), Condvar::new()),
        });
        shared.report_unclean_shutdown();
        let thread = match shared.settings.background {
            true => Some(start_housekeeping(&shared)?),
            false => None,
        };
        Ok(Intake { shared, thread: Mutex::new(thread) })
    }

    /// The write target.
    pub fn write_target(&self) -> &WriteTarget {
        &self.shared.target
    }

    /// Restarts threads after a panic; shared by all roles.
    pub fn supervisor(&self) -> &Supervisor {
        self.shared.target.supervisor()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// What became of a trace that was received, if that is remembered.
    pub fn trace_fate(&self, trace_id: &TraceId) -> Option<TraceFate> {
        self.shared.series_cache.spans.traces.fate(trace_id)
    }

    /// Numbers of traces since the start whose root was received: kept, dropped when their time was
    /// over, and dropped earlier.
    pub fn trace_counts(&self) -> [u64; 3] {
        self.shared.series_cache.spans.traces.root_counts()
    }

    /// The own metrics.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.shared.meter
    }

    /// What the sender of a metric says of it: HELP, or a description.
    pub fn description(&self, metric: &str) -> Option<Arc<str>> {
        self.shared.series_cache.descriptions.get(metric)
    }

    /// The current time, in nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        (self.shared.settings.clock)()
    }

    /// The clock of [`Intake::now`], for what the intake itself holds, such as a gauge: if it held
    /// the intake, the journal would never be closed.
    pub fn clock(&self) -> WallClock {
        Arc::clone(&self.shared.settings.clock)
    }

    /// Bytes of accepted batches that wait for the disk.
    pub fn in_flight_bytes(&self) -> u64 {
        self.shared.group_commit.in_flight()
    }

    /// The producer of a name: a source of this process, or all clients of one kind. Every call
    /// with the same name returns the same producer.
    pub fn producer(&self, name: &str) -> Producer {
        self.shared.producer(name)
    }

    /// A writer without series limits, for topdeck's own data. `encoding` names the decoder that
    /// makes the keys.
    pub fn writer(&self, encoding: SeriesKeyEncoding) -> IngestWriter {
        self.shared.writer(encoding)
    }

    /// A writer of a producer, by its number. Samples of a new series beyond a limit of the store
    /// are rejected individually; all others are accepted.
    pub fn writer_for(&self, producer: u64, encoding: SeriesKeyEncoding) -> IngestWriter {
        self.shared.writer_for(producer, encoding)
    }

    /// Appends the writer's rows as the producer's next batch.
    pub fn append(&self, producer: &Producer, writer: IngestWriter) -> Result<PendingAck> {
        self.shared.append(producer, writer)
    }

    /// Appends the writer's rows as a batch with the sender's identity; `name` is the producer's
    /// name, `jump_max` the maximum jump of its sequence.
    pub fn append_with_identity(
        &self,
        identity: BatchIdentity,
        jump_max: u64,
        name: &str,
        writer: IngestWriter,
    ) -> Result<PendingAck> {
        self.shared.check_sequence(identity, jump_max)?;
        self.shared.absence.record(identity.producer, self.now());
        let pending_ack = self.shared.append_written(identity, writer)?;
        self.shared.record_sequence(identity);
        self.shared.ledger_reader.set_name(identity.producer, name);
        Ok(pending_ack)
    }

    /// A pending acknowledgement, if the batch was accepted under an identity: the one that its
    /// sender had in an earlier version, or before a failure whose outcome is unknown.
    pub fn find_duplicate(&self, identity: BatchIdentity) -> Result<Option<PendingAck>> {
        match self.shared.target.has_taken(identity)? {
            true => Ok(Some(self.shared.repeated())),
            false => Ok(None),
        }
    }

    /// The last accepted sequence of a producer epoch, and a pending acknowledgement of everything
    /// up to it.
    pub fn find_last_sequence(
        &self,
        producer: u64,
        epoch: u64,
    ) -> Result<Option<(u64, PendingAck)>> {
        let last = self.shared.target.last_sequence(producer, epoch)?;
        Ok(last.map(|last| (last, self.shared.receipt_of_all())))
    }

    /// Appends an encoded batch with an identity of its own; `name` is the producer's name, empty
    /// if unknown.
    pub fn append_encoded(
        &self,
        identity: BatchIdentity,
        name: &str,
        batch: &Batch,
    ) -> Result<PendingAck> {
        self.shared.check_sequence(identity, JOURNAL_SEQUENCE_JUMP_MAX)?;
        self.shared.absence.record(identity.producer, self.now());
        let pending_ack = self.shared.append_encoded(identity, name, batch)?;
        self.shared.record_sequence(identity);
        Ok(pending_ack)
    }

    /// Whether the owner of a key may send as a producer (trust on first use): the first key shown
    /// is bound; until then no key is required. The caller has verified that the sender owns the
    /// key. `legacy_producer` is the producer's id of version 0.1.0.
    pub fn check_key(
        &self,
        producer: u64,
        legacy_producer: u64,
        name: &str,
        key: Option<&ProducerKey>,
    ) -> Result<()> {
        self.shared.check_key(producer, legacy_producer, name, key)
    }

    /// The canonical key of a series by its id in the store. `None` without a store.
    pub fn canonical_key(&self, id: SeriesId) -> Option<Vec<u8>> {
        self.shared.target.store()?.key(&id)
    }

    /// What the previous process may have lost, if it was killed while sources buffered data in
    /// memory: the time since its last checkpoint. Acknowledged data is complete.
    pub fn unclean_stop(&self) -> Option<&Gap> {
        self.shared.ledger_reader.unclean_stop()
    }

    /// Declares that sources start whose buffered data is lost if the process is killed. The next
    /// start after a kill then writes a gap for each of their producers. Until
    /// [`Intake::finish_volatile_start`], the gap concerns any series. Durable on return.
    pub fn begin_volatile_start(&self) -> Result<()> {
        self.shared.ledger_reader.begin_volatile_start()
    }

    /// Declares that these sources have started and have their producers.
    pub fn finish_volatile_start(&self) {
        // The own metrics of an interval are in memory too.
        let own = self.producer(SELF_PRODUCER);
        self.shared.ledger_reader.finish_volatile_start(own.id());
    }

    /// The producer of a source whose buffered data is lost if the process is killed.
    pub fn volatile_producer(&self, name: &str) -> Producer {
        let producer = self.producer(name);
        self.shared.ledger_reader.add_volatile_producer(producer.id());
        producer
    }

    /// Declares that the source of a volatile producer has stopped and has appended all of its
    /// data.
    pub fn end_volatile_producer(&self, producer: &Producer) {
        let end = self.shared.target.journal().watermarks().end;
        self.shared.ledger_reader.remove_volatile_producer(producer.id(), end);
    }

    /// Declares that data accepted without acknowledgement could not be passed on before the
    /// shutdown. The ledger stays open, so that the next start writes a gap as after a kill.
    pub fn mark_unclean_shutdown(&self) {
        self.shared.is_unclean.store(true, Ordering::Relaxed);
    }

    /// Ledger file of a downstream stage, in the journal's directory.
    pub fn ledger_file(&self, stage: &str) -> Result<LedgerFile> {
        let home = &self.shared.target;
        LedgerFile::new(home.journal().disk().clone(), &ledger_reader::ledger_dir(home), stage)
    }

    /// Adds a stage to the audit; replaces a stage of the same name.
    pub fn add_stage(&self, name: impl Into<String>, stage: Arc<dyn DownstreamStage>) {
        let name = name.into();
        let mut stages = lock(&self.shared.stages);
        stages.retain(|(known, _)| *known != name);
        stages.push((name, stage));
    }

    /// Removes a stage from the audit.
    pub fn remove_stage(&self, name: &str) {
        lock(&self.shared.stages).retain(|(known, _)| known != name);
    }

    /// Flushes the journal and reconciles every stage's counts of each producer.
    pub fn audit(&self) -> Result<Audit> {
        self.shared.audit()
    }

    /// Counts durable records and writes the ledger, as the housekeeping thread does periodically.
    pub fn checkpoint_ledger(&self) -> Result<()> {
        self.shared.checkpoint_ledger(false)
    }

    /// Acknowledges reported damage of the journal and skipped records: all of it, or one location.
    /// It stays listed as acknowledged. Returns the new acknowledgements, durably stored.
    pub fn acknowledge_damage(
        &self,
        location: Option<&str>,
        note: &str,
    ) -> Result<Vec<DamageAcknowledgement>> {
        self.shared.acknowledged_damage.acknowledge(self.supervisor(), location, note)
    }

    /// Why new data finds no space on the disk or below a limit, if so: senders are asked to retry.
    pub fn space_problem(&self) -> Option<String> {
        self.shared.space_problem()
    }

    /// The sources of batches since the start of this process, and whether they still send.
    pub fn sources(&self) -> Vec<SourceActivity> {
        let name_of =
            |id| self.shared.ledger_reader.known_name(id).unwrap_or_else(|| format!("{id:016x}"));
        self.shared.absence.sources(self.now(), &name_of)
    }

    /// Name of a producer, if it is known.
    pub fn producer_name(&self, id: u64) -> Option<String> {
        self.shared.ledger_reader.known_name(id)
    }

    /// Counts input of a sender that a decoder rejected, and keeps its text for the audit. The
    /// first one of a source is logged.
    pub fn reject_input(&self, producer: &Producer, input: RejectedInput, text: &str) {
        let now = (self.now(), self.meter());
        if let Some((level, line)) = self.shared.rejected_inputs.add(producer, input, text, now) {
            (self.shared.settings.log)(level, &line);
        }
    }

    /// Counts a new histogram in another unit than those of its metric, and logs the first one of a
    /// metric.
    pub fn report_unit_conflict(&self, producer: &Producer, conflict: &UnitConflict) {
        let labels = [("source", producer.name())];
        self.meter().counter(UNIT_CONFLICTS, UNIT_CONFLICTS_HELP, &labels).add(1);
        let text = format!("{:?}: {conflict}; {}", producer.name(), conflict.remedy());
        let mut logged = lock(&self.shared.logged_unit_conflicts);
        if logged.len() < UNIT_CONFLICTS_LOGGED && logged.insert(text.clone()) {
            (self.shared.settings.log)(LogLevel::Warn, &text);
        }
    }

    /// Forgets a source that was removed on purpose: it is not absent.
    pub fn retire_source(&self, producer: &Producer) {
        self.shared.absence.retire(producer.id());
    }

    /// Bounds a stop: `patience` from now, batches that find no space fail instead of waiting for
    /// it. Before [`Intake::stop`], and before the sources stop.
    pub fn begin_stop(&self, patience: Duration) {
        self.shared.space.begin_stop(patience);
    }

    /// Waits for accepted batches, closes the ledger, and ends the threads. Call it when all
    /// sources have ended: later batches reach the journal, but are not acknowledged.
    pub fn stop(&self) {
        *lock(&self.shared.stop.0) = true;
        self.shared.stop.1.notify_all();
        let thread = lock(&self.thread).take();
        let is_first = thread.is_some() || !self.shared.settings.background;
        if let Some(thread) = thread {
            // The supervisor reports a panic.
            let _ = thread.join();
        }
        self.shared.group_commit.stop();
        if is_first && let Err(error) = self.shared.checkpoint_ledger(true) {
            self.shared.add_audit_warning(format!("cannot close the ledger: {error}"));
        }
    }
}

/// Starts the thread that updates the ledger and the own metrics, and that of the clock.
fn start_housekeeping(shared: &Arc<IntakeState>) -> Result<JoinHandle<()>> {
    let clock = ClockThread(shared.target.supervisor().thread("clock"));
    clock::observe_calibrator(Arc::new(clock));
    let shared = Arc::clone(shared);
    let supervised = shared.target.supervisor().thread("ledger");
    let work = move || {
        let is_stopping = || *lock(&shared.stop.0);
        let _ = supervised.run(is_stopping, || housekeeping::run_housekeeping(&shared));
    };
    std::thread::Builder::new().name("ledger".to_owned()).spawn(work).map_err(no_thread)
}

fn no_thread(error: std::io::Error) -> Error {
    Error::JournalFailed(format!("cannot start a thread: {error}"))
}

impl Drop for Intake {
    fn drop(&mut self) {
        // Without background threads, the drop is a test's simulated kill.
        if self.shared.settings.background {
            self.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use decode::SeriesSink;
    use model::{Sample, SampleValue, Series, SeriesKind};
    use sim::SimDisk;
    use store::Store;

    use super::*;

    /// The cache has a series that the store does not have.
    #[test]
    fn deleted_series_is_registered_again() {
        let disk: Arc<dyn disk::Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/store");
        Store::create(&disk, dir, &journal::Settings::default()).unwrap();
        let journal =
            journal::Options { has_background_thread: false, ..journal::Options::default() };
        let options =
            store::Options { has_background_thread: false, journal, ..store::Options::default() };
        let store = Arc::new(Store::open(disk, dir, &options).unwrap());
        let settings = Settings { background: false, ..Settings::default() };
        let intake = Intake::new(WriteTarget::Store(Arc::clone(&store)), settings).unwrap();
        let producer = intake.producer("p");
        let series = |name: &str| Series::new(name, SeriesKind::Gauge).validate().unwrap();
        let generic = intake.shared.series_cache.encoding_id(SeriesKeyEncoding::GENERIC);
        let key = |name: &str| [&[generic], name.as_bytes()].concat();
        let forgotten = series("forgotten").canonical_key();
        intake.shared.series_cache.insert(&key("forgotten"), forgotten).set_registered();
        for rows in 1..3 {
            let mut writer = intake.writer(SeriesKeyEncoding::GENERIC);
            for name in ["forgotten", "new"] {
                writer.series(name.as_bytes(), &mut || Ok(series(name))).unwrap();
                writer
                    .sample(&Sample { start: 0, end: 1, value: SampleValue::Number(1.0) })
                    .unwrap();
            }
            intake.append(&producer, writer).unwrap().wait_durable().unwrap();
            let stat = store.stat().unwrap();
            assert_eq!((stat.series, stat.head_rows), (2, rows * 2));
        }
        assert!(
            intake
                .shared
                .series_cache
                .get(&key("forgotten"))
                .is_some_and(|known| known.is_registered())
        );
    }

    /// A rejected batch has no effect on the ledger, and its series are not marked as registered.
    #[test]
    fn rejected_batch_registers_nothing() {
        let disk: Arc<dyn disk::Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/store");
        let small = journal::Settings { segment_bytes: 64 << 10, ..journal::Settings::default() };
        Store::create(&disk, dir, &small).unwrap();
        let journal =
            journal::Options { has_background_thread: false, ..journal::Options::default() };
        let options =
            store::Options { has_background_thread: false, journal, ..store::Options::default() };
        let store = Arc::new(Store::open(disk, dir, &options).unwrap());
        let settings = Settings { background: false, ..Settings::default() };
        let intake = Intake::new(WriteTarget::Store(Arc::clone(&store)), settings).unwrap();
        let producer = intake.producer("p");
        let take = |names: &[&str], samples: i64| {
            let mut writer = intake.writer(SeriesKeyEncoding::GENERIC);
            for name in names {
                let series = || Series::new(*name, SeriesKind::Gauge).validate();
                writer.series(name.as_bytes(), &mut { series }).unwrap();
                for end in 1..=samples {
                    writer
                        .sample(&Sample { start: 0, end, value: SampleValue::Number(1.0) })
                        .unwrap();
                }
            }
            intake.append(&producer, writer).and_then(|pending_ack| pending_ack.wait_durable())
        };
        take(&["a"], 1).unwrap();
        assert!(matches!(take(&["b", "a"], 10_000), Err(Error::TooLarge { .. })));
        let cache = &intake.shared.series_cache;
        let generic = cache.encoding_id(SeriesKeyEncoding::GENERIC);
        assert!(!cache.get(&[generic, b'b']).unwrap().is_registered());
        assert_eq!(intake.in_flight_bytes(), 0);
        take(&["a"], 1).unwrap();
        let audit = intake.audit().unwrap();
        assert_eq!(audit.producers[0].stages[1].stored.samples, 2);
        assert!(audit.producers[0].is_reconciled());
    }
}
