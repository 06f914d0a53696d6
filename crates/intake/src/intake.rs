//! Intake: the entry point of the write path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use journal::{BatchIdentity, Supervisor};
use model::{Batch, SeriesId};

use crate::audit::{Audit, DownstreamHop};
use crate::error::{Error, Result};
use crate::group_commit::{GroupCommit, Receipt};
use crate::housekeeping;
use crate::ingest_writer::IngestWriter;
use crate::intake_state::{BatchOutcomes, IdentityRejections, IntakeState, batch_bytes_max, lock};
use crate::key_encoding::SeriesKeyEncoding;
use crate::known_keys::{KnownKeys, ProducerKey};
use crate::ledger_file::LedgerFile;
use crate::ledger_reader::{self, LedgerReader};
use crate::meter::Meter;
use crate::producer::Producer;
use crate::rejections::Rejections;
use crate::restartable::ClockThread;
use crate::self_metrics;
use crate::settings::Settings;
use crate::write_target::WriteTarget;

/// How many sequences a sender with numbers of its own may leave out. A sender cannot lose more:
/// beyond, the number is a mistake or a forgery, and would make all that the sender sends next a
/// repeat.
pub const SEQUENCE_JUMP_MAX: u64 = 1 << 20;
/// The same of a sender without a secret, in whose name others can send: one forged request makes
/// repeats of no more. Who has to leave out more takes a new boot number.
pub const OPEN_SEQUENCE_JUMP_MAX: u64 = 1 << 12;
/// The same of a journal, whose sequences are positions: as many records as it may drop at once.
pub const REQUEST_JUMP_MAX: u64 = 1 << 32;

/// The way in. All methods may be called from any thread.
#[derive(Debug)]
pub struct Intake {
    shared: Arc<IntakeState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Intake {
    /// Opens the way into a store or a journal, and its books. Of a process before this one that
    /// was killed, a gap says what may be lost.
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
                clock::observe_calibrator(Arc::new(clock));
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

    /// The producer of a name: a source of this process, or all clients of one kind. The same for
    /// all who ask.
    pub fn producer(&self, name: &str) -> Producer {
        self.shared.producer(name)
    }

    /// Something to write rows to whose series are held to no limit, for what is topdeck's own.
    /// `encoding` names the decoder that makes the keys.
    pub fn writer(&self, encoding: SeriesKeyEncoding) -> IngestWriter {
        self.shared.writer(encoding)
    }

    /// Something to write rows to of a producer, by its number. A new series beyond a limit of the
    /// store is rejected: its samples are refused one by one, and all others are taken.
    pub fn writer_for(&self, producer: u64, encoding: SeriesKeyEncoding) -> IngestWriter {
        self.shared.writer_for(producer, encoding)
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

    /// Takes a batch that has an identity of its own; `name` is what its producer calls itself,
    /// empty if it does not.
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
    /// sender's. `earlier` is the number of the same producer up to version 0.1.0.
    pub fn check_key(
        &self,
        producer: u64,
        earlier: u64,
        name: &str,
        key: Option<&ProducerKey>,
    ) -> Result<()> {
        self.shared.check_key(producer, earlier, name, key)
    }

    /// The canonical form of a series that the store knows by its number. A journal alone has no
    /// numbers.
    pub fn canonical_key(&self, id: SeriesId) -> Option<Vec<u8>> {
        self.shared.target.store()?.key(&id)
    }

    /// A source runs that loses what it holds when the process is killed. Should that happen, the
    /// next start writes a gap. Durable on return.
    pub fn declare_volatile_source(&self) -> Result<()> {
        self.shared.ledger_reader.declare_volatile()
    }

    /// Something that was taken in without an acknowledgement could not be handed on before the
    /// end. The books stay open, so that the next start writes a gap as if this process had been
    /// killed.
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

    /// Waits for what was taken, closes the books, and ends the threads. To be called when all
    /// sources have ended: what is taken afterwards is in the journal, and nobody is told so.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use collect::RowSink;
    use model::{Sample, SampleValue, Series, SeriesKind};
    use sim::SimDisk;
    use store::Store;

    use super::*;

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
        let generic = intake.shared.series_cache.encoding_id(SeriesKeyEncoding::GENERIC);
        let key = |name: &str| [&[generic], name.as_bytes()].concat();
        intake.shared.series_cache.insert(&key("forgotten"), series("forgotten")).set_registered();
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
            intake.append(&producer, writer).and_then(|receipt| receipt.wait_durable())
        };
        take(&["a"], 1).unwrap();
        assert!(matches!(take(&["b", "a"], 10_000), Err(Error::TooLarge { .. })));
        let cache = &intake.shared.series_cache;
        let generic = cache.encoding_id(SeriesKeyEncoding::GENERIC);
        assert!(!cache.get(&[generic, b'b']).unwrap().is_registered());
        assert_eq!(intake.in_flight_bytes(), 0);
        take(&["a"], 1).unwrap();
        let audit = intake.audit().unwrap();
        assert_eq!(audit.producers[0].hops[1].stored.samples, 2);
        assert!(audit.producers[0].is_reconciled());
    }
}
