//! The way in.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::{Ack, Clock, Identity, Level, Supervisor};
use model::{Batch, SeriesId, SeriesRef};

use crate::audit::{Audit, Facts, Hop, Source};
use crate::book::{Book, PRODUCERS_MAX};
use crate::book_file::BookFile;
use crate::books::{self, Books};
use crate::commit::{Commit, Receipt};
use crate::counts::{self, Counts};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::known_keys::{KEYS_MAX, KeyCheck, KnownKeys, ProducerKey};
use crate::meter::{Counter, Meter, Timer};
use crate::own;
use crate::producer::Producer;
use crate::rejections::{Rejection, Rejections};
use crate::restart::ClockThread;
use crate::series::Cache;
use crate::upkeep;
use crate::way::Way;
use crate::writer::{Admission, Writer};

/// The producer of topdeck's own measurements.
const OWN: &str = "topdeck";
/// After how long a sender is asked to try again when the store's memory is full.
const AFTER_CROWD: Duration = Duration::from_secs(1);
/// How long a batch waits behind others of its producer that wait for room in the journal.
const TURN_MAX: Duration = Duration::from_secs(2);
/// How long it is waited at once for the batch that says that the process before was killed.
const TELLING_MAX: Duration = Duration::from_secs(1);

/// How many sequences a sender with numbers of its own may leave out. A sender cannot lose more:
/// beyond, the number is a mistake or a forgery, and would make all that the sender sends next a
/// repeat.
pub const SEQUENCE_JUMP_MAX: u64 = 1 << 20;
/// The same of a sender without a secret, in whose name others can send: one forged request makes
/// repeats of no more. Who has to leave out more takes a new boot number.
pub const OPEN_SEQUENCE_JUMP_MAX: u64 = 1 << 12;
/// The same of a journal, whose sequences are positions: as many records as it may drop at once.
pub const PARCEL_JUMP_MAX: u64 = 1 << 32;
/// Producers' boots whose last sequence is remembered beside the books, which lag a little.
const SEQUENCES_MAX: usize = 1 << 16;

/// Producers of which it is counted one by one what this process has taken; beyond, those that have
/// no line in the book are put together.
const TAKEN_MAX: usize = 4 * PRODUCERS_MAX;

/// How batches are taken.
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
    pub clock: Clock,
    /// Takes what whoever runs topdeck should read at once, a line at a time: nobody by default.
    pub log: Log,
}

/// Takes lines for the log.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            level: Level::Disk,
            interval: Duration::from_secs(10),
            in_flight_bytes_max: 256 << 20,
            background: true,
            publish: false,
            clock: Arc::new(arrival),
            log: Arc::new(|_| {}),
        }
    }
}

/// The time now, in nanoseconds since the Unix epoch. Exact, unlike the journal's clock, which moves every 1 to 10 ms:
/// what has no time of its own gets this one, and of two readings that come in turn the second is the later.
fn arrival() -> i64 {
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
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the threads see of it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) home: Home,
    pub(crate) settings: Settings,
    boot: u64,
    pub(crate) booted: i64,
    producers: Mutex<HashMap<String, Producer>>,
    /// What was taken since the process began, by producer.
    taken: Mutex<BTreeMap<Option<u64>, Counts>>,
    /// The last sequence that was taken of each producer's boot.
    sequences: Mutex<LastSequences>,
    known_keys: KnownKeys,
    impostors: Impostors,
    cache: Arc<Cache>,
    rejections: Arc<Rejections>,
    pub(crate) meter: Arc<Meter>,
    commit: Commit,
    pub(crate) books: Books,
    hops: Mutex<Vec<(String, Arc<dyn Hop>)>>,
    notes: Mutex<Vec<String>>,
    outcomes: Outcomes,
    appending: Timer,
    /// The batch that says that the process before this one was killed, until it is durable.
    telling: Mutex<Option<Receipt>>,
    /// Something was given up at the end, and only the next start can say so.
    is_left_open: AtomicBool,
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
    fn remember(&mut self, identity: Identity) {
        self.batches = self.batches.saturating_add(1);
        let (last, heard) = self.table.entry((identity.producer, identity.boot)).or_default();
        (*last, *heard) = (identity.sequence.max(*last), self.batches);
        journal::evict(&mut self.table, SEQUENCES_MAX, |(_, heard)| *heard);
    }

    fn of(&self, producer: u64, boot: u64) -> Option<u64> {
        self.table.get(&(producer, boot)).map(|(last, _)| *last)
    }
}

/// What was refused because its sender is not who it says.
#[derive(Debug)]
struct Impostors {
    keys: Counter,
    sequences: Counter,
}

/// Batches, by what became of them.
#[derive(Debug)]
struct Outcomes {
    taken: Counter,
    repeated: Counter,
    refused: Counter,
    put_off: Counter,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Intake {
    /// Opens the way into a store or a journal, and its books. Of a process before this one that was killed, a gap
    /// says what may be lost.
    pub fn new(home: Home, settings: Settings) -> Result<Intake> {
        let no_thread = |error| Error::Broken(format!("cannot start a thread: {error}"));
        let meter = if settings.publish { Meter::published() } else { Meter::default() };
        let meter = Arc::new(meter);
        let books = Books::open(&home, Arc::clone(&settings.clock))?;
        let syncing = meter.timer(
            "topdeck_journal_sync",
            "how long it takes to make the journal durable, once for all who wait",
            &[],
        );
        let commit =
            Commit::start(home.clone(), syncing, settings.background).map_err(no_thread)?;
        own::add(&meter, home.clone());
        let batches = |outcome| {
            let about = "batches that came, by what became of them";
            meter.counter("topdeck_batches_total", about, &[("outcome", outcome)])
        };
        let mut notes = Vec::new();
        let (disk, dir) = (home.journal().disk().clone(), home.journal().dir().to_owned());
        let known_keys = KnownKeys::open(disk, &dir, &mut notes)?;
        let impostors = |reason| {
            let about = "requests refused because another sender has the producer's number";
            meter.counter("topdeck_intake_forgeries_refused_total", about, &[("reason", reason)])
        };
        let shared = Arc::new(Shared {
            sequences: Mutex::default(),
            known_keys,
            impostors: Impostors { keys: impostors("key"), sequences: impostors("sequence") },
            boot: journal::random_id() as u64,
            booted: (settings.clock)(),
            producers: Mutex::default(),
            taken: Mutex::default(),
            cache: Arc::default(),
            rejections: Arc::new(Rejections::new(&meter)),
            outcomes: Outcomes {
                taken: batches("taken"),
                repeated: batches("repeated"),
                refused: batches("refused"),
                put_off: batches("put off"),
            },
            appending: meter.timer(
                "topdeck_journal_append",
                "how long it takes to append a batch to the journal",
                &[],
            ),
            telling: Mutex::default(),
            is_left_open: AtomicBool::new(false),
            batch_bytes_max: batch_bytes_max(&home),
            commit,
            books,
            hops: Mutex::default(),
            notes: Mutex::new(notes),
            meter,
            home,
            settings,
            stop: (Mutex::new(false), Condvar::new()),
        });
        shared.tell_killed();
        let thread = match shared.settings.background {
            true => {
                let clock = ClockThread(shared.home.supervisor().thread("clock"));
                clock::observe_keeper(Arc::new(clock));
                let shared = Arc::clone(&shared);
                let supervised = shared.home.supervisor().thread("books");
                let work = move || {
                    let is_stopping = || *locked(&shared.stop.0);
                    let _ = supervised.run(is_stopping, || upkeep::run(&shared));
                };
                let thread = std::thread::Builder::new().name("books".to_owned());
                Some(thread.spawn(work).map_err(no_thread)?)
            }
            false => None,
        };
        Ok(Intake { shared, thread: Mutex::new(thread) })
    }

    /// What batches end in.
    pub fn home(&self) -> &Home {
        &self.shared.home
    }

    /// What runs threads again that panic; one for all roles.
    pub fn supervisor(&self) -> &Supervisor {
        self.shared.home.supervisor()
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
        self.shared.commit.in_flight()
    }

    /// The producer of a name: a source of this process, or all clients of one kind. The same for all who ask.
    pub fn producer(&self, name: &str) -> Producer {
        self.shared.producer(name)
    }

    /// Something to write rows to whose series are held to no limit, for what is topdeck's own. `way` is how the
    /// source makes keys: those of different ways are never mixed up.
    pub fn writer(&self, way: Way) -> Writer {
        self.shared.writer(way)
    }

    /// Something to write rows to of a producer, by its number. A new series beyond a limit of the store is rejected:
    /// its samples are refused one by one, and all others are taken.
    pub fn writer_of(&self, producer: u64, way: Way) -> Writer {
        self.shared.writer_of(producer, way)
    }

    /// Takes what was written, as the producer's next batch.
    pub fn take(&self, producer: &Producer, writer: Writer) -> Result<Receipt> {
        self.shared.take(producer, writer)
    }

    /// Takes what was written, as a batch of the identity that its sender gave; `name` is what its
    /// producer is called, and `jump_max` how many sequences it may leave out.
    pub fn take_as(
        &self,
        identity: Identity,
        jump_max: u64,
        name: &str,
        writer: Writer,
    ) -> Result<Receipt> {
        self.shared.check_sequence(identity, jump_max)?;
        let receipt = self.shared.take_written(identity, writer)?;
        self.shared.remember_sequence(identity);
        self.shared.books.name(identity.producer, name);
        Ok(receipt)
    }

    /// A receipt, if a batch was taken under an identity that its sender had in an earlier version.
    pub fn repeat_of(&self, earlier: Identity) -> Result<Option<Receipt>> {
        match self.shared.home.has_taken(earlier)? {
            true => Ok(Some(self.shared.repeated())),
            false => Ok(None),
        }
    }

    /// Takes a batch that has an identity of its own; `name` is what its producer calls itself, empty if it does not.
    pub fn take_batch(&self, identity: Identity, name: &str, batch: &Batch) -> Result<Receipt> {
        self.shared.check_sequence(identity, PARCEL_JUMP_MAX)?;
        let receipt = self.shared.take_batch(identity, name, batch)?;
        self.shared.remember_sequence(identity);
        Ok(receipt)
    }

    /// Whether who shows a key may send in the name of a producer: the first key that was shown
    /// counts, and until one was, nobody needs one. The caller has seen that the key is the
    /// sender's.
    pub fn check_key(&self, producer: u64, name: &str, key: Option<&ProducerKey>) -> Result<()> {
        self.shared.check_key(producer, name, key)
    }

    /// The canonical form of a series that the store knows by its number. A journal alone has no numbers.
    pub fn form(&self, id: SeriesId) -> Option<Vec<u8>> {
        self.shared.home.store()?.form(&id)
    }

    /// A source runs that loses what it holds when the process is killed. Should that happen, the next start writes
    /// a gap. Durable on return.
    pub fn mark_lossy(&self) -> Result<()> {
        self.shared.books.mark_lossy()
    }

    /// Something that was taken in without an acknowledgement could not be handed on before the end. The books stay
    /// open, so that the next start writes a gap as if this process had been killed.
    pub fn leave_open(&self) {
        self.shared.is_left_open.store(true, Ordering::Relaxed);
    }

    /// The file of a book of a hop behind the journal, in the journal's folder.
    pub fn book_file(&self, hop: &str) -> Result<BookFile> {
        let home = &self.shared.home;
        BookFile::new(home.journal().disk().clone(), &books::folder(home), hop)
    }

    /// Adds a hop to the audit, in the place of one of the same name.
    pub fn add_hop(&self, name: impl Into<String>, hop: Arc<dyn Hop>) {
        let name = name.into();
        let mut hops = locked(&self.shared.hops);
        hops.retain(|(known, _)| *known != name);
        hops.push((name, hop));
    }

    /// Takes a hop out of the audit.
    pub fn remove_hop(&self, name: &str) {
        locked(&self.shared.hops).retain(|(known, _)| known != name);
    }

    /// Makes durable what there is, and says for each producer what every hop has of it.
    pub fn audit(&self) -> Result<Audit> {
        self.shared.audit()
    }

    /// Counts what has become durable and writes the books, as the thread does now and then.
    pub fn keep_books(&self) -> Result<()> {
        self.shared.keep_books(false)
    }

    /// Waits for what was taken, closes the books, and ends the threads. To be called when all sources have ended:
    /// what is taken afterwards is in the journal, and nobody is told so.
    pub fn stop(&self) {
        *locked(&self.shared.stop.0) = true;
        self.shared.stop.1.notify_all();
        let thread = locked(&self.thread).take();
        let is_first = thread.is_some() || !self.shared.settings.background;
        if let Some(thread) = thread {
            // A panic is told by the supervisor.
            let _ = thread.join();
        }
        self.shared.commit.stop();
        if is_first && let Err(error) = self.shared.keep_books(true) {
            self.shared.note(format!("the books were not closed: {error}"));
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
fn turn(sequence: &Mutex<u64>) -> Result<MutexGuard<'_, u64>> {
    let until = Instant::now() + TURN_MAX;
    loop {
        match sequence.try_lock() {
            Ok(sequence) => return Ok(sequence),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_micros(50));
            }
            Err(TryLockError::WouldBlock) => {
                let why = "others of the same sender wait for room in the journal".to_owned();
                return Err(Error::Full { why, after: Duration::from_secs(1) });
            }
        }
    }
}

/// What a batch may have: a quarter of a segment of the journal.
fn batch_bytes_max(home: &Home) -> usize {
    let segment = home.journal().stat().map_or(u64::MAX, |stat| stat.settings.segment_bytes);
    usize::try_from(segment / 4).unwrap_or(usize::MAX)
}

impl Shared {
    fn producer(&self, name: &str) -> Producer {
        let mut producers = locked(&self.producers);
        if let Some(producer) = producers.get(name) {
            return producer.clone();
        }
        // Its own beside those of other journals, whose batches may come here too.
        let mut bytes = self.home.journal().id().to_le_bytes().to_vec();
        bytes.extend_from_slice(name.as_bytes());
        let hash = SeriesId::of_form(&bytes);
        let id = u64::from_le_bytes(*hash.0.first_chunk().expect("BUG: a hash has 16 bytes"));
        let producer = Producer::new(name, id);
        self.books.name(id, name);
        producers.insert(name.to_owned(), producer.clone());
        producer
    }

    fn writer(&self, way: Way) -> Writer {
        let by_id = self.home.store().is_some();
        Writer::new(Arc::clone(&self.cache), way, by_id, self.batch_bytes_max)
    }

    fn writer_of(&self, producer: u64, way: Way) -> Writer {
        let writer = self.writer(way);
        match self.home.store() {
            // An agent has no limits: what it hands on is held to those of the site.
            None => writer,
            Some(store) => {
                let (store, rejections) = (Arc::clone(store), Arc::clone(&self.rejections));
                writer.held_to(Admission::new(store, producer, rejections))
            }
        }
    }

    pub(crate) fn take(&self, producer: &Producer, writer: Writer) -> Result<Receipt> {
        let mut sequence = turn(&producer.0.sequence)?;
        // A number is never used twice, also where it is not known what became of its batch: otherwise the next
        // batch might be taken for a repeat, and be lost.
        *sequence += 1;
        let identity = Identity { producer: producer.id(), boot: self.boot, sequence: *sequence };
        self.take_written(identity, writer)
    }

    fn take_written(&self, identity: Identity, writer: Writer) -> Result<Receipt> {
        let Writer { told, named, batch, values, is_too_large, .. } = writer;
        if is_too_large {
            self.outcomes.refused.add(1);
            let (found, max) = (batch.bytes() as u64, self.batch_bytes_max as u64);
            return Err(Error::TooLarge { found, max });
        }
        let batch = batch.finish();
        let counts = Counts { batches: 1, samples: batch.samples(), values, ..Counts::default() };
        let append = || match self.home.append(identity, &batch) {
            // The store has forgotten a series, or it never came so far: the forms are sent.
            Err(store::Error::UnknownSeries { .. }) => {
                self.cache.clear();
                let forms: HashMap<SeriesId, Vec<u8>> =
                    named.iter().map(|known| (known.id, known.series.form())).collect();
                let whole = batch.with_forms(&mut |id| forms.get(&id).cloned())?;
                self.home.append(identity, &whole)
            }
            done => done,
        };
        let receipt = self.append(batch.bytes().len(), identity.producer, &counts, append)?;
        // A repeat is not in the journal, and the forms in it need not be either.
        if !receipt.is_repeated() {
            told.iter().for_each(|known| known.set_told());
        }
        Ok(receipt)
    }

    fn take_batch(&self, identity: Identity, name: &str, batch: &Batch) -> Result<Receipt> {
        if self.home.store().is_none()
            && let Some(id) = first_by_number(batch)
        {
            self.outcomes.refused.add(1);
            return Err(model::Error::UnknownSeries { id }.into());
        }
        let within = self.within_limits(identity.producer, batch)?;
        let batch = within.as_ref().unwrap_or(batch);
        let (counts, _) = counts::count(batch.bytes())?;
        let append = || self.home.append(identity, batch);
        let receipt = self.append(batch.bytes().len(), identity.producer, &counts, append)?;
        if !name.is_empty() {
            self.books.name(identity.producer, name);
        }
        Ok(receipt)
    }

    fn repeated(&self) -> Receipt {
        self.outcomes.repeated.add(1);
        self.commit.receipt(self.home.journal().marks().end, 0, self.settings.level, true)
    }

    /// An error if a sequence is too far ahead of the last one of its producer's boot.
    fn check_sequence(&self, identity: Identity, max: u64) -> Result<()> {
        let Identity { producer, boot, sequence: found } = identity;
        let taken = locked(&self.sequences).of(producer, boot);
        let Some(last) = taken.max(self.books.last_sequence(producer, boot)) else { return Ok(()) };
        if found.saturating_sub(last) <= max {
            return Ok(());
        }
        self.impostors.sequences.add(1);
        let error = Error::SequenceJump { producer, last, found, max };
        self.note(error.to_string());
        Err(error)
    }

    fn remember_sequence(&self, identity: Identity) {
        locked(&self.sequences).remember(identity);
    }

    fn check_key(&self, producer: u64, name: &str, key: Option<&ProducerKey>) -> Result<()> {
        let now = (self.settings.clock)();
        match self.known_keys.check(producer, name, key, now) {
            Ok(KeyCheck::Same | KeyCheck::New) => Ok(()),
            Ok(KeyCheck::NoRoom) => {
                let why =
                    format!("keys of {KEYS_MAX} producers are remembered, which is as many as may");
                self.note(format!(
                    "producer {producer:016x} ({name}) is not bound to its key: {why}"
                ));
                Ok(())
            }
            Err(error) => {
                if let Error::Forbidden(why) = &error {
                    self.impostors.keys.add(1);
                    self.note(why.clone());
                }
                Err(error)
            }
        }
    }

    /// A batch without new series beyond a limit, with gaps in their place; `None` if it has none.
    fn within_limits(&self, producer: u64, batch: &Batch) -> Result<Option<Batch>> {
        let Some(store) = self.home.store() else { return Ok(None) };
        let mut new = store::NewSeries::default();
        let mut rejected: HashMap<SeriesId, Rejection> = HashMap::new();
        for entry in batch.read() {
            let entry = entry?;
            let SeriesRef::Form(form) = entry.series else { continue };
            if !entry.begins {
                continue;
            }
            if let Err(store::Error::Cardinality(refused)) = store.admit(form, producer, &mut new) {
                let series = model::Series::from_form(form)?;
                let rejection = Rejection::of(&refused, series.name())
                    .ok_or_else(|| Error::Refused(refused.to_string()))?;
                rejected.insert(series.id(), rejection);
            }
        }
        if rejected.is_empty() {
            return Ok(None);
        }
        let mut gaps: BTreeMap<String, model::Gap> = BTreeMap::new();
        let mut keep = |series: &SeriesRef<'_>| !rejected.contains_key(&series.id());
        let mut left_out = |entry: &model::Entry<'_>| {
            let Some(rejection) = rejected.get(&entry.series.id()) else { return };
            self.rejections.count(rejection, 1);
            let gap = rejection.gap(producer, (entry.start, entry.end), 0);
            let gap = gaps.entry(gap.reason.clone()).or_insert(gap);
            gap.lost = gap.lost.map(|lost| lost.saturating_add(1));
            (gap.start, gap.end) = (gap.start.min(entry.start), gap.end.max(entry.end));
        };
        let left = batch.without(&mut keep, &mut left_out)?;
        Ok(Some(left.with_gaps(gaps.into_values())))
    }

    /// Says in the journal and in the log what was rejected.
    fn tell_rejected(&self, all: bool) {
        use collect::Rows as _;
        let gaps = self.rejections.take(Instant::now(), all);
        if gaps.is_empty() {
            return;
        }
        let mut writer = self.writer(Way::Form);
        for gap in &gaps {
            let samples = gap.lost.unwrap_or(0);
            let name =
                gap.producer.map_or_else(|| "several".to_owned(), |id| self.books.name_of(id));
            (self.settings.log)(&format!("producer {name}: {} ({samples} samples)", gap.reason));
            writer.gap(gap.clone());
        }
        if let Err(error) = self.take(&self.producer(OWN), writer) {
            self.rejections.put_back(gaps);
            self.note(format!("what was rejected is not told yet: {error}"));
        }
    }

    fn append(
        &self,
        bytes: usize,
        producer: u64,
        counts: &Counts,
        append: impl FnOnce() -> Result<Ack, store::Error>,
    ) -> Result<Receipt> {
        let level = self.settings.level;
        let bytes = if level == Level::Disk { bytes as u64 } else { 0 };
        let appended = self.check_room(bytes).and_then(|()| {
            let began = Instant::now();
            let appended = append();
            self.appending.record(began.elapsed());
            appended.map_err(|error| {
                self.commit.release(bytes);
                Error::from(error)
            })
        });
        let ack = appended.inspect_err(|error| match error.is_temporary() {
            true => self.outcomes.put_off.add(1),
            false => self.outcomes.refused.add(1),
        })?;
        match ack.repeated {
            true => self.outcomes.repeated.add(1),
            false => {
                self.outcomes.taken.add(1);
                self.count_taken(producer, counts);
            }
        }
        Ok(self.commit.receipt(ack.positions.end, bytes, level, ack.repeated))
    }

    fn check_room(&self, bytes: u64) -> Result<()> {
        if let Some((held, max)) = self.home.is_crowded() {
            let why = format!(
                "the store has {held} bytes of rows in memory, {max} are the most: it cannot bring them to disk"
            );
            return Err(Error::Full { why, after: AFTER_CROWD });
        }
        self.commit.reserve(bytes, self.settings.in_flight_bytes_max)
    }

    /// Those that have no line in the book are counted together, once there are many.
    fn count_taken(&self, producer: u64, counts: &Counts) {
        let mut taken = locked(&self.taken);
        if taken.len() > TAKEN_MAX && !taken.contains_key(&Some(producer)) {
            *taken = as_listed(std::mem::take(&mut *taken), &self.books.book());
        }
        taken.entry(Some(producer)).or_default().add(counts);
    }

    /// Writes what topdeck measures of itself, as of `end`.
    pub(crate) fn write_own(&self, end: i64) -> Result<()> {
        let mut writer = self.writer(Way::Form);
        self.meter.write(self.booted.min(end), end, &mut writer)?;
        // Nobody waits for it.
        self.take(&self.producer(OWN), writer).map(drop)
    }

    /// Says in the journal that the process before this one was killed; again later, where that is refused.
    fn tell_killed(&self) {
        use collect::Rows as _;
        let Some(gap) = self.books.killed() else { return };
        let mut writer = self.writer(Way::Form);
        writer.gap(gap);
        let mut telling = locked(&self.telling);
        if telling.is_none() {
            match self.take(&self.producer(OWN), writer) {
                Ok(receipt) => *telling = Some(receipt),
                Err(error) => {
                    self.note(format!("that topdeck was killed is not told yet: {error}"))
                }
            }
        }
        // Where there is no room it may take long: others must not wait for it.
        match telling.as_ref().and_then(|receipt| receipt.wait_for(TELLING_MAX)) {
            Some(Ok(())) => self.books.settle_killed(),
            Some(Err(error)) => {
                self.note(format!("that topdeck was killed is not told yet: {error}"));
                *telling = None;
            }
            None => {}
        }
    }

    /// What the journal lost before the store had it. The books keep what was in it.
    fn keep_damaged(&self, fed: &store::Fed) {
        let damaged = fed.missing.iter().filter_map(store::Fed::positions).collect();
        self.books.keep_damaged(damaged);
    }

    pub(crate) fn keep_books(&self, is_closed: bool) -> Result<()> {
        self.books.read_on()?;
        if let Some(store) = self.home.store() {
            match store.fed() {
                Ok(fed) => self.keep_damaged(&fed),
                Err(error) => self.note(format!("what the store lacks is not known now: {error}")),
            }
        }
        self.tell_killed();
        self.tell_rejected(is_closed);
        self.books.save(is_closed && !self.is_left_open.load(Ordering::Relaxed))
    }

    /// Remembers what whoever looks at the audit should know.
    pub(crate) fn note(&self, note: String) {
        const NOTES_MAX: usize = 16;
        let mut notes = locked(&self.notes);
        if !notes.contains(&note) {
            if notes.len() == NOTES_MAX {
                notes.remove(0);
            }
            notes.push(note);
        }
    }

    fn audit(&self) -> Result<Audit> {
        let journal = self.home.journal();
        if let Err(error) = journal.flush(Level::Disk) {
            self.note(format!("what was taken last is not durable: {error}"));
        }
        self.books.read_on()?;
        let book = self.books.book();
        let taken = as_listed(locked(&self.taken).clone(), &book);
        let end = journal.marks().end;
        let source = |producer: &Producer| {
            let (received, dropped) = producer.tally();
            let values = taken.get(&Some(producer.id())).map_or(0, |counts| counts.values);
            // Of sources that do not count what comes, all that came is here.
            let known = dropped.iter().fold(values, |sum, (_, n)| sum.saturating_add(*n));
            let source = Source { received: received.max(known), taken: values, dropped };
            (producer.id(), (producer.name().to_owned(), source))
        };
        let sources = locked(&self.producers).values().map(source).collect();
        let hops = locked(&self.hops).clone();
        let fed = self.home.store().map(|store| store.fed()).transpose()?;
        fed.iter().for_each(|fed| self.keep_damaged(fed));
        let sums = |gap: &model::Gap| self.books.sums(&store::Fed::positions(gap)?);
        let lost = fed.iter().flat_map(|fed| &fed.missing).map(sums).collect();
        let facts = Facts {
            before: self.books.before().clone(),
            store: fed,
            lost,
            hops: hops.into_iter().map(|(name, hop)| (name, hop.book())).collect(),
            notes: self.books.notes().iter().chain(locked(&self.notes).iter()).cloned().collect(),
            booted: self.booted,
            book,
            taken,
            end,
            sources,
        };
        Ok(facts.audit())
    }
}

/// Counts by producer, with one line for all that have none in the book.
fn as_listed(taken: BTreeMap<Option<u64>, Counts>, book: &Book) -> BTreeMap<Option<u64>, Counts> {
    let mut listed: BTreeMap<Option<u64>, Counts> = BTreeMap::new();
    for (producer, counts) in taken {
        let producer = producer.filter(|producer| book.entries().contains_key(producer));
        listed.entry(producer).or_default().add(&counts);
    }
    listed
}

/// The first series that a batch names by its number only.
fn first_by_number(batch: &Batch) -> Option<SeriesId> {
    let mut entries = batch.read().map(|entry| entry.expect("BUG: the batch was checked"));
    entries.find_map(|entry| match entry.series {
        SeriesRef::Id(id) => Some(id),
        SeriesRef::Form(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use collect::Rows;
    use disk::SimDisk;
    use model::{Kind, Sample, Series, Value};
    use store::Store;

    use super::*;

    /// A clock of milliseconds would make one instant of two requests that follow one another.
    #[test]
    fn what_arrives_in_turn_has_times_in_turn() {
        let times: Vec<i64> = (0..1_000).map(|_| arrival()).collect();
        let distinct: std::collections::HashSet<i64> = times.iter().copied().collect();
        assert!(distinct.len() > 100, "{} times in 1,000 readings of the clock", distinct.len());
    }

    /// The cache has a series of which the store knows nothing.
    #[test]
    fn a_series_that_the_store_has_forgotten_is_told_again() {
        let disk: Arc<dyn disk::Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/store");
        Store::create(&disk, dir, &journal::Settings::default()).unwrap();
        let journal = journal::Options { background: false, ..journal::Options::default() };
        let options = store::Options { background: false, journal, ..store::Options::default() };
        let store = Arc::new(Store::open(disk, dir, &options).unwrap());
        let settings = Settings { background: false, ..Settings::default() };
        let intake = Intake::new(Home::Store(Arc::clone(&store)), settings).unwrap();
        let producer = intake.producer("p");
        let series = |name: &str| Series::new(name, Kind::Gauge).checked().unwrap();
        let key = |name: &str| [&[Way::Placed as u8], name.as_bytes()].concat();
        intake.shared.cache.insert(&key("forgotten"), series("forgotten")).set_told();
        for rows in 1..3 {
            let mut writer = intake.writer(Way::Placed);
            for name in ["forgotten", "new"] {
                writer.series(name.as_bytes(), &mut || Ok(series(name))).unwrap();
                writer.sample(&Sample { start: 0, end: 1, value: Value::Number(1.0) }).unwrap();
            }
            intake.take(&producer, writer).unwrap().wait().unwrap();
            let stat = store.stat().unwrap();
            assert_eq!((stat.series, stat.head_rows), (2, rows * 2));
        }
        assert!(intake.shared.cache.get(&key("forgotten")).is_some_and(|known| known.is_told()));
    }

    /// What is refused leaves no trace: neither in the books, nor are its series taken for told.
    #[test]
    fn a_batch_that_is_refused_has_told_nothing() {
        let disk: Arc<dyn disk::Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/store");
        let small = journal::Settings { segment_bytes: 64 << 10, ..journal::Settings::default() };
        Store::create(&disk, dir, &small).unwrap();
        let journal = journal::Options { background: false, ..journal::Options::default() };
        let options = store::Options { background: false, journal, ..store::Options::default() };
        let store = Arc::new(Store::open(disk, dir, &options).unwrap());
        let settings = Settings { background: false, ..Settings::default() };
        let intake = Intake::new(Home::Store(Arc::clone(&store)), settings).unwrap();
        let producer = intake.producer("p");
        let take = |names: &[&str], samples: i64| {
            let mut writer = intake.writer(Way::Placed);
            for name in names {
                let series = || Series::new(*name, Kind::Gauge).checked();
                writer.series(name.as_bytes(), &mut { series }).unwrap();
                for end in 1..=samples {
                    writer.sample(&Sample { start: 0, end, value: Value::Number(1.0) }).unwrap();
                }
            }
            intake.take(&producer, writer).and_then(|receipt| receipt.wait())
        };
        take(&["a"], 1).unwrap();
        assert!(matches!(take(&["b", "a"], 10_000), Err(Error::TooLarge { .. })));
        assert!(!intake.shared.cache.get(&[Way::Placed as u8, b'b']).unwrap().is_told());
        assert_eq!(intake.in_flight_bytes(), 0);
        take(&["a"], 1).unwrap();
        let audit = intake.audit().unwrap();
        assert_eq!(audit.producers[0].lines[1].stored.samples, 2);
        assert!(audit.producers[0].is_explained());
    }
}
