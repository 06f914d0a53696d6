//! Intake: the entry point of the write path.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::{Ack, BatchIdentity, Level, Supervisor, WallClock};
use model::{Batch, SeriesId, SeriesRef};

use crate::audit::{Audit, AuditInputs, DownstreamHop, SourceCounts};
use crate::counts::{self, ProducerCounts};
use crate::error::{Error, Result};
use crate::group_commit::{GroupCommit, Receipt};
use crate::housekeeping;
use crate::ingest_writer::{IngestWriter, SeriesAdmission};
use crate::key_encoding::SeriesKeyEncoding;
use crate::known_keys::{KEYS_MAX, KeyCheck, KnownKeys, ProducerKey};
use crate::ledger::{Ledger, PRODUCERS_MAX};
use crate::ledger_file::LedgerFile;
use crate::ledger_reader::{self, LedgerReader};
use crate::meter::{Counter, LatencyHistogram, Meter};
use crate::producer::Producer;
use crate::rejections::{Rejection, Rejections};
use crate::restartable::ClockThread;
use crate::self_metrics;
use crate::series_cache::SeriesCache;
use crate::write_target::WriteTarget;

/// The producer of topdeck's own measurements.
const SELF_PRODUCER: &str = "topdeck";
/// After how long a sender is asked to try again when the store's memory is full.
const RETRY_AFTER_BACKLOG: Duration = Duration::from_secs(1);
/// How long a batch waits behind others of its producer that wait for room in the journal.
const APPEND_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it is waited at once for the batch that says that the process before was killed.
const GAP_DURABLE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many sequences a sender with numbers of its own may leave out. A sender cannot lose more:
/// beyond, the number is a mistake or a forgery, and would make all that the sender sends next a
/// repeat.
pub const SEQUENCE_JUMP_MAX: u64 = 1 << 20;
/// The same of a sender without a secret, in whose name others can send: one forged request makes
/// repeats of no more. Who has to leave out more takes a new boot number.
pub const OPEN_SEQUENCE_JUMP_MAX: u64 = 1 << 12;
/// The same of a journal, whose sequences are positions: as many records as it may drop at once.
pub const REQUEST_JUMP_MAX: u64 = 1 << 32;
/// Producers' boots whose last sequence is remembered beside the books, which lag a little.
const SEQUENCES_MAX: usize = 1 << 16;

/// Producers of which it is counted one by one what this process has taken; beyond, those that have
/// no line in the book are put together.
const TAKEN_MAX: usize = 4 * PRODUCERS_MAX;

/// Intake settings.
#[derive(Clone)]
pub struct Settings {
    /// When a sender is told: [`Level::Disk`] by default.
    pub level: Level,
    /// How often sources write what they have put together, and what the boundaries of their
    /// intervals are multiples of: 10 s by default. With [`Duration::MAX`] there is no boundary
    /// before the year 2262.
    pub interval: Duration,
    /// Bytes of batches that may be on their way to the disk at once: 256 MiB by default. Beyond, senders are asked
    /// to wait.
    pub in_flight_bytes_max: u64,
    /// Threads of its own make the journal durable, keep the books and write topdeck's own measurements: `true` by
    /// default. Otherwise whoever waits for a receipt does the first, and [`Intake::keep_books`] the second.
    pub background: bool,
    /// Own counters and timers are in shared memory too, for `topdeck top` and whoever looks: `false` by default. For a process
    /// that has one intake.
    pub publish: bool,
    /// Where times come from.
    pub clock: WallClock,
    /// Takes what whoever runs topdeck should read at once, a line at a time: nobody by default.
    pub log: LogFn,
}

/// Log line sink.
pub type LogFn = Arc<dyn Fn(&str) + Send + Sync>;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            level: Level::Disk,
            interval: Duration::from_secs(10),
            in_flight_bytes_max: 256 << 20,
            background: true,
            publish: false,
            clock: Arc::new(arrival_time_ns),
            log: Arc::new(|_| {}),
        }
    }
}

/// The time now, in nanoseconds since the Unix epoch. Exact, unlike the journal's clock, which moves every 1 to 10 ms:
/// what has no time of its own gets this one, and of two readings that come in turn the second is the later.
fn arrival_time_ns() -> i64 {
    clock::wall().unix_ns
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("level", &self.level)
            .field("interval", &self.interval)
            .field("in_flight_bytes_max", &self.in_flight_bytes_max)
            .finish_non_exhaustive()
    }
}

/// The way in. All methods may be called from any thread.
#[derive(Debug)]
pub struct Intake {
    shared: Arc<IntakeState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State shared by the intake's threads.
#[derive(Debug)]
pub(crate) struct IntakeState {
    pub(crate) target: WriteTarget,
    pub(crate) settings: Settings,
    epoch: u64,
    pub(crate) started_at: i64,
    producers: Mutex<HashMap<String, Producer>>,
    /// What was taken since the process began, by producer.
    accepted: Mutex<BTreeMap<Option<u64>, ProducerCounts>>,
    /// The last sequence that was taken of each producer's boot.
    sequences: Mutex<LastSequences>,
    known_keys: KnownKeys,
    identity_rejections: IdentityRejections,
    series_cache: Arc<SeriesCache>,
    rejections: Arc<Rejections>,
    pub(crate) meter: Arc<Meter>,
    group_commit: GroupCommit,
    pub(crate) ledger_reader: LedgerReader,
    hops: Mutex<Vec<(String, Arc<dyn DownstreamHop>)>>,
    warnings: Mutex<Vec<String>>,
    outcomes: BatchOutcomes,
    append_latency: LatencyHistogram,
    /// The batch that says that the process before this one was killed, until it is durable.
    shutdown_gap_receipt: Mutex<Option<Receipt>>,
    /// Something was given up at the end, and only the next start can say so.
    is_unclean: AtomicBool,
    /// What a batch may have, in bytes.
    batch_bytes_max: usize,
    /// Whether to stop, for the thread.
    pub(crate) stop: (Mutex<bool>, Condvar),
}

/// The last sequences that were taken, bounded.
#[derive(Debug, Default)]
struct LastSequences {
    /// By producer and boot: the sequence, and after how many batches it came.
    table: BTreeMap<(u64, u64), (u64, u64)>,
    batches: u64,
}

impl LastSequences {
    fn remember(&mut self, identity: BatchIdentity) {
        self.batches = self.batches.saturating_add(1);
        let (last, heard) = self.table.entry((identity.producer, identity.epoch)).or_default();
        (*last, *heard) = (identity.sequence.max(*last), self.batches);
        journal::evict(&mut self.table, SEQUENCES_MAX, |(_, heard)| *heard);
    }

    fn of(&self, producer: u64, boot: u64) -> Option<u64> {
        self.table.get(&(producer, boot)).map(|(last, _)| *last)
    }
}

/// Requests rejected because of the sender's identity.
#[derive(Debug)]
struct IdentityRejections {
    keys: Counter,
    sequences: Counter,
}

/// Batches by outcome.
#[derive(Debug)]
struct BatchOutcomes {
    taken: Counter,
    duplicate: Counter,
    rejected: Counter,
    deferred: Counter,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Intake {
    /// Opens the way into a store or a journal, and its books. Of a process before this one that was killed, a gap
    /// says what may be lost.
    pub fn new(home: WriteTarget, settings: Settings) -> Result<Intake> {
        let no_thread = |error| Error::JournalFailed(format!("cannot start a thread: {error}"));
        let meter = if settings.publish { Meter::with_shared_memory() } else { Meter::default() };
        let meter = Arc::new(meter);
        let books = LedgerReader::open(&home, Arc::clone(&settings.clock))?;
        let syncing = meter.histogram(
            "topdeck_journal_sync_duration",
            "how long it takes to make the journal durable, once for all who wait",
            &[],
        );
        let commit =
            GroupCommit::start(home.clone(), syncing, settings.background).map_err(no_thread)?;
        let started_at = (settings.clock)();
        self_metrics::register_gauges(&meter, home.clone(), started_at);
        let batches = |outcome| {
            let about = "batches that came, by what became of them";
            meter.counter("topdeck_batches_total", about, &[("outcome", outcome)])
        };
        let mut notes = Vec::new();
        let (disk, dir) = (home.journal().disk().clone(), home.journal().dir().to_owned());
        let known_keys = KnownKeys::open(disk, &dir, &mut notes)?;
        let impostors = |reason| {
            let about = "requests refused because another sender has the producer's number";
            meter.counter("topdeck_intake_identity_rejections_total", about, &[("reason", reason)])
        };
        let shared = Arc::new(IntakeState {
            sequences: Mutex::default(),
            known_keys,
            identity_rejections: IdentityRejections {
                keys: impostors("key"),
                sequences: impostors("sequence"),
            },
            epoch: journal::random_id() as u64,
            started_at,
            producers: Mutex::default(),
            accepted: Mutex::default(),
            series_cache: Arc::default(),
            rejections: Arc::new(Rejections::new(&meter)),
            outcomes: BatchOutcomes {
                taken: batches("accepted"),
                duplicate: batches("duplicate"),
                rejected: batches("rejected"),
                deferred: batches("deferred"),
            },
            append_latency: meter.histogram(
                "topdeck_journal_append_duration",
                "how long it takes to append a batch to the journal",
                &[],
            ),
            shutdown_gap_receipt: Mutex::default(),
            is_unclean: AtomicBool::new(false),
            batch_bytes_max: batch_bytes_max(&home),
            group_commit: commit,
            ledger_reader: books,
            hops: Mutex::default(),
            warnings: Mutex::new(notes),
            meter,
            target: home,
            settings,
            stop: (Mutex::new(false), Condvar::new()),
        });
        shared.report_unclean_shutdown();
        let thread = match shared.settings.background {
            true => {
                let clock = ClockThread(shared.target.supervisor().thread("clock"));
                clock::observe_keeper(Arc::new(clock));
                let shared = Arc::clone(&shared);
                let supervised = shared.target.supervisor().thread("books");
                let work = move || {
                    let is_stopping = || *lock(&shared.stop.0);
                    let _ = supervised.run(is_stopping, || housekeeping::run_housekeeping(&shared));
                };
                let thread = std::thread::Builder::new().name("books".to_owned());
                Some(thread.spawn(work).map_err(no_thread)?)
            }
            false => None,
        };
        Ok(Intake { shared, thread: Mutex::new(thread) })
    }

    /// What batches end in.
    pub fn target(&self) -> &WriteTarget {
        &self.shared.target
    }

    /// What runs threads again that panic; one for all roles.
    pub fn supervisor(&self) -> &Supervisor {
        self.shared.target.supervisor()
    }

    /// How batches are taken.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// What topdeck measures of itself.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.shared.meter
    }

    /// The time now, in nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        (self.shared.settings.clock)()
    }

    /// Bytes of batches that were taken and wait for the disk.
    pub fn in_flight_bytes(&self) -> u64 {
        self.shared.group_commit.in_flight()
    }

    /// The producer of a name: a source of this process, or all clients of one kind. The same for all who ask.
    pub fn producer(&self, name: &str) -> Producer {
        self.shared.producer(name)
    }

    /// Something to write rows to whose series are held to no limit, for what is topdeck's own. `way` is how the
    /// source makes keys: those of different ways are never mixed up.
    pub fn writer(&self, way: SeriesKeyEncoding) -> IngestWriter {
        self.shared.writer(way)
    }

    /// Something to write rows to of a producer, by its number. A new series beyond a limit of the store is rejected:
    /// its samples are refused one by one, and all others are taken.
    pub fn writer_for(&self, producer: u64, way: SeriesKeyEncoding) -> IngestWriter {
        self.shared.writer_for(producer, way)
    }

    /// Takes what was written, as the producer's next batch.
    pub fn append(&self, producer: &Producer, writer: IngestWriter) -> Result<Receipt> {
        self.shared.append(producer, writer)
    }

    /// Takes what was written, as a batch of the identity that its sender gave; `name` is what its
    /// producer is called, and `jump_max` how many sequences it may leave out.
    pub fn append_with_identity(
        &self,
        identity: BatchIdentity,
        jump_max: u64,
        name: &str,
        writer: IngestWriter,
    ) -> Result<Receipt> {
        self.shared.check_sequence(identity, jump_max)?;
        let receipt = self.shared.append_written(identity, writer)?;
        self.shared.record_sequence(identity);
        self.shared.ledger_reader.set_name(identity.producer, name);
        Ok(receipt)
    }

    /// A receipt, if a batch was taken under an identity that its sender had in an earlier version.
    pub fn repeat_of(&self, earlier: BatchIdentity) -> Result<Option<Receipt>> {
        match self.shared.target.has_taken(earlier)? {
            true => Ok(Some(self.shared.repeated())),
            false => Ok(None),
        }
    }

    /// Takes a batch that has an identity of its own; `name` is what its producer calls itself, empty if it does not.
    pub fn append_encoded(
        &self,
        identity: BatchIdentity,
        name: &str,
        batch: &Batch,
    ) -> Result<Receipt> {
        self.shared.check_sequence(identity, REQUEST_JUMP_MAX)?;
        let receipt = self.shared.append_encoded(identity, name, batch)?;
        self.shared.record_sequence(identity);
        Ok(receipt)
    }

    /// Whether who shows a key may send in the name of a producer: the first key that was shown
    /// counts, and until one was, nobody needs one. The caller has seen that the key is the
    /// sender's.
    pub fn check_key(&self, producer: u64, name: &str, key: Option<&ProducerKey>) -> Result<()> {
        self.shared.check_key(producer, name, key)
    }

    /// The canonical form of a series that the store knows by its number. A journal alone has no numbers.
    pub fn canonical_key(&self, id: SeriesId) -> Option<Vec<u8>> {
        self.shared.target.store()?.key(&id)
    }

    /// A source runs that loses what it holds when the process is killed. Should that happen, the next start writes
    /// a gap. Durable on return.
    pub fn declare_volatile_source(&self) -> Result<()> {
        self.shared.ledger_reader.declare_volatile()
    }

    /// Something that was taken in without an acknowledgement could not be handed on before the end. The books stay
    /// open, so that the next start writes a gap as if this process had been killed.
    pub fn mark_unclean_shutdown(&self) {
        self.shared.is_unclean.store(true, Ordering::Relaxed);
    }

    /// The file of a book of a hop behind the journal, in the journal's folder.
    pub fn ledger_file(&self, hop: &str) -> Result<LedgerFile> {
        let home = &self.shared.target;
        LedgerFile::new(home.journal().disk().clone(), &ledger_reader::ledger_dir(home), hop)
    }

    /// Adds a hop to the audit, in the place of one of the same name.
    pub fn add_hop(&self, name: impl Into<String>, hop: Arc<dyn DownstreamHop>) {
        let name = name.into();
        let mut hops = lock(&self.shared.hops);
        hops.retain(|(known, _)| *known != name);
        hops.push((name, hop));
    }

    /// Takes a hop out of the audit.
    pub fn remove_hop(&self, name: &str) {
        lock(&self.shared.hops).retain(|(known, _)| known != name);
    }

    /// Makes durable what there is, and says for each producer what every hop has of it.
    pub fn audit(&self) -> Result<Audit> {
        self.shared.audit()
    }

    /// Counts what has become durable and writes the books, as the thread does now and then.
    pub fn checkpoint_ledger(&self) -> Result<()> {
        self.shared.checkpoint_ledger(false)
    }

    /// Waits for what was taken, closes the books, and ends the threads. To be called when all sources have ended:
    /// what is taken afterwards is in the journal, and nobody is told so.
    pub fn stop(&self) {
        *lock(&self.shared.stop.0) = true;
        self.shared.stop.1.notify_all();
        let thread = lock(&self.thread).take();
        let is_first = thread.is_some() || !self.shared.settings.background;
        if let Some(thread) = thread {
            // A panic is told by the supervisor.
            let _ = thread.join();
        }
        self.shared.group_commit.stop();
        if is_first && let Err(error) = self.shared.checkpoint_ledger(true) {
            self.shared.add_audit_warning(format!("the books were not closed: {error}"));
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        // Without a thread, whoever drops it is a test that has killed it.
        if self.shared.settings.background {
            self.stop();
        }
    }
}

/// A producer's turn to append. Where others of it wait for room, nobody waits behind them for long.
fn lock_sequence(sequence: &Mutex<u64>) -> Result<MutexGuard<'_, u64>> {
    let until = Instant::now() + APPEND_LOCK_TIMEOUT;
    loop {
        match sequence.try_lock() {
            Ok(sequence) => return Ok(sequence),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_micros(50));
            }
            Err(TryLockError::WouldBlock) => {
                let why = "others of the same sender wait for room in the journal".to_owned();
                return Err(Error::Full { reason: why, retry_after: Duration::from_secs(1) });
            }
        }
    }
}

/// What a batch may have: a quarter of a segment of the journal.
fn batch_bytes_max(home: &WriteTarget) -> usize {
    let segment = home.journal().stat().map_or(u64::MAX, |stat| stat.settings.segment_bytes);
    usize::try_from(segment / 4).unwrap_or(usize::MAX)
}

impl IntakeState {
    fn producer(&self, name: &str) -> Producer {
        let mut producers = lock(&self.producers);
        if let Some(producer) = producers.get(name) {
            return producer.clone();
        }
        // Its own beside those of other journals, whose batches may come here too.
        let mut bytes = self.target.journal().id().to_le_bytes().to_vec();
        bytes.extend_from_slice(name.as_bytes());
        let hash = SeriesId::from_canonical_key(&bytes);
        let id = u64::from_le_bytes(*hash.0.first_chunk().expect("BUG: a hash has 16 bytes"));
        let producer = Producer::new(name, id);
        self.ledger_reader.set_name(id, name);
        producers.insert(name.to_owned(), producer.clone());
        producer
    }

    fn writer(&self, way: SeriesKeyEncoding) -> IngestWriter {
        let by_id = self.target.store().is_some();
        IngestWriter::new(Arc::clone(&self.series_cache), way, by_id, self.batch_bytes_max)
    }

    fn writer_for(&self, producer: u64, way: SeriesKeyEncoding) -> IngestWriter {
        let writer = self.writer(way);
        match self.target.store() {
            // An agent has no limits: what it hands on is held to those of the site.
            None => writer,
            Some(store) => {
                let (store, rejections) = (Arc::clone(store), Arc::clone(&self.rejections));
                writer.with_admission(SeriesAdmission::new(store, producer, rejections))
            }
        }
    }

    pub(crate) fn append(&self, producer: &Producer, writer: IngestWriter) -> Result<Receipt> {
        let mut sequence = lock_sequence(&producer.0.sequence)?;
        // A number is never used twice, also where it is not known what became of its batch: otherwise the next
        // batch might be taken for a repeat, and be lost.
        *sequence += 1;
        let identity =
            BatchIdentity { producer: producer.id(), epoch: self.epoch, sequence: *sequence };
        self.append_written(identity, writer)
    }

    fn append_written(&self, identity: BatchIdentity, writer: IngestWriter) -> Result<Receipt> {
        let IngestWriter {
            new_series: told,
            referenced_series: named,
            batch,
            values,
            is_too_large,
            ..
        } = writer;
        if is_too_large {
            self.outcomes.rejected.add(1);
            let (found, max) = (batch.bytes() as u64, self.batch_bytes_max as u64);
            return Err(Error::TooLarge { size: found, max });
        }
        let batch = batch.finish();
        let counts = ProducerCounts {
            batches: 1,
            samples: batch.samples(),
            values,
            ..ProducerCounts::default()
        };
        let append = || match self.target.append(identity, &batch) {
            // The store has forgotten a series, or it never came so far: the forms are sent.
            Err(store::Error::UnknownSeries { .. }) => {
                self.series_cache.clear();
                let forms: HashMap<SeriesId, Vec<u8>> =
                    named.iter().map(|known| (known.id, known.series.canonical_key())).collect();
                let whole = batch.with_canonical_keys(&mut |id| forms.get(&id).cloned())?;
                self.target.append(identity, &whole)
            }
            done => done,
        };
        let receipt =
            self.append_counted(batch.bytes().len(), identity.producer, &counts, append)?;
        // A repeat is not in the journal, and the forms in it need not be either.
        if !receipt.is_duplicate() {
            told.iter().for_each(|known| known.set_registered());
        }
        Ok(receipt)
    }

    fn append_encoded(
        &self,
        identity: BatchIdentity,
        name: &str,
        batch: &Batch,
    ) -> Result<Receipt> {
        if self.target.store().is_none()
            && let Some(id) = first_by_id(batch)
        {
            self.outcomes.rejected.add(1);
            return Err(model::Error::UnknownSeries { id }.into());
        }
        let within = self.enforce_series_limits(identity.producer, batch)?;
        let batch = within.as_ref().unwrap_or(batch);
        let (counts, _) = counts::count_batch(batch.bytes())?;
        let append = || self.target.append(identity, batch);
        let receipt =
            self.append_counted(batch.bytes().len(), identity.producer, &counts, append)?;
        if !name.is_empty() {
            self.ledger_reader.set_name(identity.producer, name);
        }
        Ok(receipt)
    }

    fn repeated(&self) -> Receipt {
        self.outcomes.duplicate.add(1);
        self.group_commit.receipt(
            self.target.journal().watermarks().end,
            0,
            self.settings.level,
            true,
        )
    }

    /// An error if a sequence is too far ahead of the last one of its producer's boot.
    fn check_sequence(&self, identity: BatchIdentity, max: u64) -> Result<()> {
        let BatchIdentity { producer, epoch: boot, sequence: found } = identity;
        let taken = lock(&self.sequences).of(producer, boot);
        let Some(last) = taken.max(self.ledger_reader.last_sequence(producer, boot)) else {
            return Ok(());
        };
        if found.saturating_sub(last) <= max {
            return Ok(());
        }
        self.identity_rejections.sequences.add(1);
        let error = Error::SequenceJump { producer, last, sequence: found, max };
        self.add_audit_warning(error.to_string());
        Err(error)
    }

    fn record_sequence(&self, identity: BatchIdentity) {
        lock(&self.sequences).remember(identity);
    }

    fn check_key(&self, producer: u64, name: &str, key: Option<&ProducerKey>) -> Result<()> {
        let now = (self.settings.clock)();
        match self.known_keys.check(producer, name, key, now) {
            Ok(KeyCheck::Match | KeyCheck::New) => Ok(()),
            Ok(KeyCheck::TableFull) => {
                let why =
                    format!("keys of {KEYS_MAX} producers are remembered, which is as many as may");
                self.add_audit_warning(format!(
                    "producer {producer:016x} ({name}) is not bound to its key: {why}"
                ));
                Ok(())
            }
            Err(error) => {
                if let Error::Forbidden(why) = &error {
                    self.identity_rejections.keys.add(1);
                    self.add_audit_warning(why.clone());
                }
                Err(error)
            }
        }
    }

    /// A batch without new series beyond a limit, with gaps in their place; `None` if it has none.
    fn enforce_series_limits(&self, producer: u64, batch: &Batch) -> Result<Option<Batch>> {
        let Some(store) = self.target.store() else { return Ok(None) };
        let mut new = store::NewSeries::default();
        let mut rejected: HashMap<SeriesId, Rejection> = HashMap::new();
        for entry in batch.read() {
            let entry = entry?;
            let SeriesRef::Key(form) = entry.series else { continue };
            if !entry.starts_group {
                continue;
            }
            if let Err(store::Error::Cardinality(refused)) =
                store.check_batch(form, producer, &mut new)
            {
                let series = model::Series::from_canonical_key(form)?;
                let rejection = Rejection::from_index_error(&refused, series.name())
                    .ok_or_else(|| Error::Rejected(refused.to_string()))?;
                rejected.insert(series.id(), rejection);
            }
        }
        if rejected.is_empty() {
            return Ok(None);
        }
        let mut gaps: BTreeMap<String, model::Gap> = BTreeMap::new();
        let mut keep = |series: &SeriesRef<'_>| !rejected.contains_key(&series.id());
        let mut left_out = |entry: &model::BatchEntry<'_>| {
            let Some(rejection) = rejected.get(&entry.series.id()) else { return };
            self.rejections.count(rejection, 1);
            let gap = rejection.gap(producer, (entry.start, entry.end), 0);
            let gap = gaps.entry(gap.reason.clone()).or_insert(gap);
            gap.lost = gap.lost.map(|lost| lost.saturating_add(1));
            (gap.start, gap.end) = (gap.start.min(entry.start), gap.end.max(entry.end));
        };
        let left = batch.filter_series(&mut keep, &mut left_out)?;
        Ok(Some(left.with_gaps(gaps.into_values())))
    }

    /// Says in the journal and in the log what was rejected.
    fn report_rejected(&self, all: bool) {
        use collect::RowSink as _;
        let gaps = self.rejections.take_due_gaps(Instant::now(), all);
        if gaps.is_empty() {
            return;
        }
        let mut writer = self.writer(SeriesKeyEncoding::Canonical);
        for gap in &gaps {
            let samples = gap.lost.unwrap_or(0);
            let name = gap
                .producer
                .map_or_else(|| "several".to_owned(), |id| self.ledger_reader.producer_name(id));
            (self.settings.log)(&format!("producer {name}: {} ({samples} samples)", gap.reason));
            writer.gap(gap.clone());
        }
        if let Err(error) = self.append(&self.producer(SELF_PRODUCER), writer) {
            self.rejections.requeue_gaps(gaps);
            self.add_audit_warning(format!("what was rejected is not told yet: {error}"));
        }
    }

    fn append_counted(
        &self,
        bytes: usize,
        producer: u64,
        counts: &ProducerCounts,
        append: impl FnOnce() -> Result<Ack, store::Error>,
    ) -> Result<Receipt> {
        let level = self.settings.level;
        let bytes = if level == Level::Disk { bytes as u64 } else { 0 };
        let appended = self.check_backlog(bytes).and_then(|()| {
            let began = Instant::now();
            let appended = append();
            self.append_latency.record(began.elapsed());
            appended.map_err(|error| {
                self.group_commit.release(bytes);
                Error::from(error)
            })
        });
        let ack = appended.inspect_err(|error| match error.is_retryable() {
            true => self.outcomes.deferred.add(1),
            false => self.outcomes.rejected.add(1),
        })?;
        match ack.is_duplicate {
            true => self.outcomes.duplicate.add(1),
            false => {
                self.outcomes.taken.add(1);
                self.count_accepted(producer, counts);
            }
        }
        Ok(self.group_commit.receipt(ack.positions.end, bytes, level, ack.is_duplicate))
    }

    fn check_backlog(&self, bytes: u64) -> Result<()> {
        if let Some((held, max)) = self.target.head_over_limit() {
            let why = format!(
                "the store has {held} bytes of rows in memory, {max} are the most: it cannot bring them to disk"
            );
            return Err(Error::Full { reason: why, retry_after: RETRY_AFTER_BACKLOG });
        }
        self.group_commit.reserve(bytes, self.settings.in_flight_bytes_max)
    }

    /// Those that have no line in the book are counted together, once there are many.
    fn count_accepted(&self, producer: u64, counts: &ProducerCounts) {
        let mut taken = lock(&self.accepted);
        if taken.len() > TAKEN_MAX && !taken.contains_key(&Some(producer)) {
            *taken = as_listed(std::mem::take(&mut *taken), &self.ledger_reader.ledger());
        }
        taken.entry(Some(producer)).or_default().add(counts);
    }

    /// Writes what topdeck measures of itself, as of `end`.
    pub(crate) fn write_self_metrics(&self, end: i64) -> Result<()> {
        let mut writer = self.writer(SeriesKeyEncoding::Canonical);
        self.meter.write_rows(self.started_at.min(end), end, &mut writer)?;
        // Nobody waits for it.
        self.append(&self.producer(SELF_PRODUCER), writer).map(drop)
    }

    /// Says in the journal that the process before this one was killed; again later, where that is refused.
    fn report_unclean_shutdown(&self) {
        use collect::RowSink as _;
        let Some(gap) = self.ledger_reader.unclean_shutdown_gap() else { return };
        let mut writer = self.writer(SeriesKeyEncoding::Canonical);
        writer.gap(gap);
        let mut telling = lock(&self.shutdown_gap_receipt);
        if telling.is_none() {
            match self.append(&self.producer(SELF_PRODUCER), writer) {
                Ok(receipt) => *telling = Some(receipt),
                Err(error) => self
                    .add_audit_warning(format!("that topdeck was killed is not told yet: {error}")),
            }
        }
        // Where there is no room it may take long: others must not wait for it.
        match telling.as_ref().and_then(|receipt| receipt.wait_durable_timeout(GAP_DURABLE_TIMEOUT))
        {
            Some(Ok(())) => self.ledger_reader.clear_unclean_shutdown(),
            Some(Err(error)) => {
                self.add_audit_warning(format!("that topdeck was killed is not told yet: {error}"));
                *telling = None;
            }
            None => {}
        }
    }

    /// What the journal lost before the store had it. The books keep what was in it.
    fn keep_damaged(&self, fed: &store::IngestProgress) {
        let damaged = fed.missing.iter().filter_map(store::IngestProgress::positions).collect();
        self.ledger_reader.keep_damaged(damaged);
    }

    pub(crate) fn checkpoint_ledger(&self, is_closed: bool) -> Result<()> {
        self.ledger_reader.read_new()?;
        if let Some(store) = self.target.store() {
            match store.ingest_progress() {
                Ok(fed) => self.keep_damaged(&fed),
                Err(error) => self
                    .add_audit_warning(format!("what the store lacks is not known now: {error}")),
            }
        }
        self.report_unclean_shutdown();
        self.report_rejected(is_closed);
        self.ledger_reader.save(is_closed && !self.is_unclean.load(Ordering::Relaxed))
    }

    /// Remembers what whoever looks at the audit should know.
    pub(crate) fn add_audit_warning(&self, note: String) {
        const WARNINGS_MAX: usize = 16;
        let mut notes = lock(&self.warnings);
        if !notes.contains(&note) {
            if notes.len() == WARNINGS_MAX {
                notes.remove(0);
            }
            notes.push(note);
        }
    }

    fn audit(&self) -> Result<Audit> {
        let journal = self.target.journal();
        if let Err(error) = journal.flush(Level::Disk) {
            self.add_audit_warning(format!("what was taken last is not durable: {error}"));
        }
        self.ledger_reader.read_new()?;
        let book = self.ledger_reader.ledger();
        let taken = as_listed(lock(&self.accepted).clone(), &book);
        let end = journal.watermarks().end;
        let source = |producer: &Producer| {
            let (received, dropped) = producer.counts();
            let values = taken.get(&Some(producer.id())).map_or(0, |counts| counts.values);
            // Of sources that do not count what comes, all that came is here.
            let known = dropped.iter().fold(values, |sum, (_, n)| sum.saturating_add(*n));
            let source = SourceCounts { received: received.max(known), accepted: values, dropped };
            (producer.id(), (producer.name().to_owned(), source))
        };
        let sources = lock(&self.producers).values().map(source).collect();
        let hops = lock(&self.hops).clone();
        let fed = self.target.store().map(|store| store.ingest_progress()).transpose()?;
        fed.iter().for_each(|fed| self.keep_damaged(fed));
        let sums =
            |gap: &model::Gap| self.ledger_reader.sums(&store::IngestProgress::positions(gap)?);
        let lost = fed.iter().flat_map(|fed| &fed.missing).map(sums).collect();
        let facts = AuditInputs {
            previous: self.ledger_reader.previous().clone(),
            store: fed,
            lost,
            hops: hops.into_iter().map(|(name, hop)| (name, hop.ledger())).collect(),
            warnings: self
                .ledger_reader
                .warnings()
                .iter()
                .chain(lock(&self.warnings).iter())
                .cloned()
                .collect(),
            process_started_at: self.started_at,
            ledger: book,
            accepted: taken,
            end,
            sources,
        };
        Ok(facts.reconcile())
    }
}

/// Counts by producer, with one line for all that have none in the book.
fn as_listed(
    taken: BTreeMap<Option<u64>, ProducerCounts>,
    book: &Ledger,
) -> BTreeMap<Option<u64>, ProducerCounts> {
    let mut listed: BTreeMap<Option<u64>, ProducerCounts> = BTreeMap::new();
    for (producer, counts) in taken {
        let producer = producer.filter(|producer| book.entries().contains_key(producer));
        listed.entry(producer).or_default().add(&counts);
    }
    listed
}

/// The first series that a batch names by its number only.
fn first_by_id(batch: &Batch) -> Option<SeriesId> {
    let mut entries = batch.read().map(|entry| entry.expect("BUG: the batch was checked"));
    entries.find_map(|entry| match entry.series {
        SeriesRef::Id(id) => Some(id),
        SeriesRef::Key(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use collect::RowSink;
    use disk::SimDisk;
    use model::{Sample, SampleValue, Series, SeriesKind};
    use store::Store;

    use super::*;

    /// A clock of milliseconds would make one instant of two requests that follow one another.
    #[test]
    fn arrival_times_are_strictly_ordered() {
        let times: Vec<i64> = (0..1_000).map(|_| arrival_time_ns()).collect();
        let distinct: std::collections::HashSet<i64> = times.iter().copied().collect();
        assert!(distinct.len() > 100, "{} times in 1,000 readings of the clock", distinct.len());
    }

    /// The cache has a series of which the store knows nothing.
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
        let key = |name: &str| [&[SeriesKeyEncoding::Generic as u8], name.as_bytes()].concat();
        intake.shared.series_cache.insert(&key("forgotten"), series("forgotten")).set_registered();
        for rows in 1..3 {
            let mut writer = intake.writer(SeriesKeyEncoding::Generic);
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

    /// What is refused leaves no trace: neither in the books, nor are its series taken for told.
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
            let mut writer = intake.writer(SeriesKeyEncoding::Generic);
            for name in names {
                let series = || Series::new(*name, SeriesKind::Gauge).validate();
                writer.series(name.as_bytes(), &mut { series }).unwrap();
                for end in 1..=samples {
                    writer
                        .sample(&Sample { start: 0, end, value: SampleValue::Number(1.0) })
                        .unwrap();
                }
            }
            intake.append(&producer, writer).and_then(|receipt| receipt.wait_durable())
        };
        take(&["a"], 1).unwrap();
        assert!(matches!(take(&["b", "a"], 10_000), Err(Error::TooLarge { .. })));
        assert!(
            !intake
                .shared
                .series_cache
                .get(&[SeriesKeyEncoding::Generic as u8, b'b'])
                .unwrap()
                .is_registered()
        );
        assert_eq!(intake.in_flight_bytes(), 0);
        take(&["a"], 1).unwrap();
        let audit = intake.audit().unwrap();
        assert_eq!(audit.producers[0].hops[1].stored.samples, 2);
        assert!(audit.producers[0].is_reconciled());
    }
}
