//! The ledger equals the journal in every case: the process is killed or loses power during every
//! operation that changes state, and again during recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use disk::Disk;
use intake::{Intake, ProducerCounts, WriteTarget};
use journal::{BatchIdentity, Journal, Level, ReadItem, StartPosition};
use model::{Batch, SampleValue};
use sim::SimDisk;

use crate::dying::{DyingDisk, ProcessDeath};
use crate::fixture::*;

#[derive(Clone, Copy, Debug)]
enum LedgerStep {
    /// The next batch of a source.
    Append(&'static str, u64),
    /// A batch with the sender's identity: producer, sequence.
    AppendAs(u64, u64),
    Checkpoint,
    Reopen,
    Stop,
}

fn script() -> Vec<LedgerStep> {
    use LedgerStep::*;
    vec![
        Append("a", 3),
        AppendAs(1, 1),
        Append("b", 2),
        Checkpoint,
        AppendAs(2, 1),
        AppendAs(1, 1),
        Append("a", 1),
        Reopen,
        AppendAs(1, 2),
        AppendAs(2, 1),
        Checkpoint,
        Checkpoint,
        Append("b", 5),
        Stop,
        AppendAs(1, 2),
        Reopen,
        AppendAs(2, 2),
        Append("a", 4),
        Stop,
    ]
}

/// A simulated machine, with the acknowledged batches.
struct CrashHarness {
    disk: SimDisk,
    now: Arc<AtomicI64>,
    process: Option<(DyingDisk, Option<Intake>)>,
    /// Acknowledged batches and sent batches, by name.
    acknowledged: BTreeMap<String, BTreeSet<u64>>,
}

impl CrashHarness {
    fn new(seed: u64) -> CrashHarness {
        let disk = SimDisk::new(seed);
        let dying: Arc<dyn Disk> = Arc::new(disk.process());
        create_journal(&dying).unwrap();
        CrashHarness { disk, now: Arc::default(), process: None, acknowledged: BTreeMap::new() }
    }

    fn fork(&self, seed: u64) -> CrashHarness {
        CrashHarness {
            disk: self.disk.fork(seed),
            now: Arc::new(AtomicI64::new(self.now.load(Ordering::Relaxed))),
            process: None,
            acknowledged: self.acknowledged.clone(),
        }
    }

    fn end_process(&mut self) {
        if let Some((dying, intake)) = self.process.take() {
            dying.is_cleanup.store(true, Ordering::SeqCst);
            drop(intake);
        }
    }

    /// `None` if the simulated machine died.
    fn run_until_killed<T>(act: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(done) => Some(done),
            Err(payload) if payload.is::<ProcessDeath>() => None,
            Err(payload) => resume_unwind(payload),
        }
    }

    fn open(&mut self, kill_after: Option<u64>) -> bool {
        self.end_process();
        let dying = DyingDisk::new(&self.disk);
        if let Some(count) = kill_after {
            dying.process.kill_after(count);
        }
        let disk: Arc<dyn Disk> = Arc::new(dying.clone());
        let opened = CrashHarness::run_until_killed(|| {
            let home = WriteTarget::Journal(open_journal(&disk, &self.now).unwrap());
            Intake::new(home, settings(&self.now)).unwrap()
        });
        let is_open = opened.is_some();
        self.process = Some((dying, opened));
        is_open
    }

    fn intake(&self) -> &Intake {
        self.process.as_ref().and_then(|(_, intake)| intake.as_ref()).expect("it is open")
    }

    fn step(&mut self, step: LedgerStep) -> bool {
        let done = match step {
            LedgerStep::Reopen => return self.open(None),
            LedgerStep::Append(name, values) => CrashHarness::run_until_killed(|| {
                let intake = self.intake();
                let mut writer = intake.writer(KEY_ENCODING);
                write(&mut writer, name, values);
                intake.append(&intake.producer(name), writer).unwrap().wait_durable().unwrap();
                Some((name.to_owned(), values))
            }),
            LedgerStep::AppendAs(producer, sequence) => CrashHarness::run_until_killed(|| {
                let name = format!("agent {producer}");
                let identity = BatchIdentity { producer, epoch: 1, sequence };
                let batch = batch(&name, producer + sequence);
                self.intake()
                    .append_encoded(identity, &name, &batch)
                    .unwrap()
                    .wait_durable()
                    .unwrap();
                Some((name, sequence))
            }),
            LedgerStep::Checkpoint => CrashHarness::run_until_killed(|| {
                self.intake().checkpoint_ledger().unwrap();
                None
            }),
            LedgerStep::Stop => CrashHarness::run_until_killed(|| {
                self.intake().stop();
                None
            }),
        };
        if let Some(Some((name, number))) = &done {
            self.acknowledged.entry(name.clone()).or_default().insert(*number);
        }
        done.is_some()
    }

    fn power_cut(&mut self) {
        self.disk.power_cut();
        self.end_process();
    }

    /// Opens the intake, and compares the ledger with the journal.
    #[track_caller]
    fn check(&mut self, what: &str) {
        assert!(self.open(None), "{what}");
        let intake = self.intake();
        intake.checkpoint_ledger().unwrap();
        let ledger = saved_ledger(intake);
        let recount = recount(intake.write_target().journal());
        let found: BTreeMap<_, _> =
            ledger.entries().iter().map(|(&id, entry)| (id, entry.counts)).collect();
        let found: BTreeMap<_, _> =
            found.into_iter().filter(|(_, counts)| counts.records() > 0).collect();
        assert_eq!(found, recount, "{what}");
        assert_eq!(ledger.total().records(), ledger.position() - ledger.first(), "{what}");
        for (name, numbers) in &self.acknowledged {
            let id = match name.strip_prefix("agent ") {
                Some(id) => id.parse().unwrap(),
                None => intake.producer(name).id(),
            };
            let batches = ledger.entries()[&id].counts.batches;
            assert!(batches >= numbers.len() as u64, "{what}: {name}");
        }
    }
}

impl Drop for CrashHarness {
    fn drop(&mut self) {
        self.end_process();
    }
}

/// Oracle: counts of the journal, by a plain loop.
fn recount(journal: &Journal) -> BTreeMap<u64, ProducerCounts> {
    let mut counts: BTreeMap<u64, ProducerCounts> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut reader = journal.reader(StartPosition::First).unwrap();
    reader.set_level(Level::Disk);
    while let Some(item) = reader.next().unwrap() {
        let ReadItem::Batch(batch) = item else { continue };
        for record in batch.records() {
            let identity = record.identity.unwrap();
            let line = counts.entry(identity.producer).or_default();
            if !seen.insert(identity) {
                line.duplicates += 1;
                continue;
            }
            let batch = Batch::decode(record.bytes.to_owned()).unwrap();
            line.batches += 1;
            for entry in batch.read() {
                line.samples += 1;
                let SampleValue::Histogram(histogram) = entry.unwrap().decode().unwrap() else {
                    panic!("only histograms were sent");
                };
                line.values += histogram.count();
            }
        }
    }
    counts
}

fn crash_at_every_write(is_power: bool) -> u32 {
    let steps = script();
    let mut crashes = 0;
    let mut life = CrashHarness::new(3);
    for at in 0..steps.len() {
        for first in 0.. {
            let mut life = life.fork(first);
            let what = format!("{:?} and {first} operations, power {is_power}", steps[at]);
            let arm = |life: &CrashHarness, count| is_power.then(|| life.disk.cut_after(count));
            arm(&life, first);
            let kill_after = (!is_power).then_some(first);
            let is_done = life.open(kill_after) && life.step(steps[at]);
            if is_done {
                break;
            }
            crashes += 1;
            if is_power {
                life.power_cut()
            } else {
                life.end_process()
            }
            // Killed again during recovery.
            let second = first * 7 % 23;
            arm(&life, second);
            if !life.open((!is_power).then_some(second)) {
                crashes += 1;
                if is_power { life.power_cut() } else { life.end_process() }
            }
            life.disk.cut_after(u64::MAX / 2);
            life.check(&what);
            if first % 5 == 0 {
                for &step in &steps[at..] {
                    assert!(life.step(step), "{what}");
                }
                life.check(&what);
            }
        }
        if !life.process.as_ref().is_some_and(|(_, intake)| intake.is_some()) {
            assert!(life.open(None));
        }
        assert!(life.step(steps[at]));
    }
    life.check("without a crash");
    crashes
}

#[test]
fn ledger_matches_the_journal_after_any_power_cut() {
    let crashes = crash_at_every_write(true);
    println!("{crashes} power cuts");
    assert!(crashes > 200, "only {crashes}");
}

#[test]
fn ledger_matches_the_journal_after_any_kill() {
    let crashes = crash_at_every_write(false);
    println!("{crashes} kills");
    assert!(crashes > 200, "only {crashes}");
}

/// Losses of topdeck itself in the ledger, by reason.
fn self_losses(intake: &Intake) -> Vec<String> {
    intake.checkpoint_ledger().unwrap();
    let ledger = saved_ledger(intake);
    let own = ledger.entries().values().find(|entry| entry.name == "topdeck");
    own.map(|own| own.losses.iter().map(|loss| loss.reason.clone()).collect()).unwrap_or_default()
}

#[test]
fn kill_of_a_volatile_source_is_a_gap() {
    let mut life = CrashHarness::new(1);
    assert!(life.open(None));
    life.intake().begin_volatile_start().unwrap();
    // Clean shutdown.
    assert!(life.step(LedgerStep::Stop) && life.open(None));
    assert_eq!(self_losses(life.intake()), Vec::<String>::new());
    assert_eq!(life.intake().unclean_stop(), None);
    // No volatile source: nothing could be lost.
    assert!(life.open(None));
    assert_eq!(self_losses(life.intake()), Vec::<String>::new());
    life.intake().begin_volatile_start().unwrap();
    assert!(life.open(None));
    let losses = self_losses(life.intake());
    assert!(losses.len() == 1 && losses[0].starts_with("topdeck was killed"), "{losses:?}");
    // The log of this start says so; nothing told that the last stop was not clean.
    assert!(life.intake().unclean_stop().is_some_and(|gap| gap.start < gap.end));
    // Reported once.
    assert!(life.open(None));
    let ledger = saved_ledger(life.intake());
    let own = ledger.entries().values().find(|entry| entry.name == "topdeck").unwrap();
    assert_eq!((own.losses[0].gaps, own.losses[0].gaps_of_unknown_size), (1, 1));
    assert!(own.losses[0].start < own.losses[0].end);
}

/// Hosts of which a series has the gap of the kill.
fn hosts_with_gaps(store: &store::Store) -> Vec<String> {
    let view = store.view().unwrap();
    let mut found = view.select(&model::Selector::parse("latency").unwrap());
    let all = i64::MIN..i64::MAX;
    found.retain(|series| !view.gaps_of(&[series], &all).is_empty());
    let mut hosts: Vec<String> =
        found.iter().map(|found| found.series.labels()[0].1.clone()).collect();
    hosts.sort();
    hosts
}

/// A user sent over HTTP only, and each kill of the server marked all series as incomplete.
#[test]
fn kill_is_a_gap_only_in_series_of_volatile_producers() {
    let (disk, now) = (SimDisk::new(1), Arc::new(AtomicI64::new(0)));
    let (intake, store) = new_store_intake(&disk, &now, |_| {});
    let send = |intake: &Intake, name: &str, hosts: &[&str]| {
        let mut writer = intake.writer(KEY_ENCODING);
        hosts.iter().for_each(|host| write(&mut writer, host, 1));
        intake.append(&intake.producer(name), writer).unwrap().wait_durable().unwrap();
    };
    intake.begin_volatile_start().unwrap();
    intake.volatile_producer("statsd");
    intake.finish_volatile_start();
    send(&intake, "http", &["http", "both"]);
    send(&intake, "statsd", &["statsd", "both"]);
    intake.checkpoint_ledger().unwrap();
    assert_eq!(hosts_with_gaps(&store), [""; 0]);
    drop((intake, store));
    let (intake, store) = reopen_store_intake(&disk, &now, |_| {});
    assert_eq!(hosts_with_gaps(&store), ["both", "statsd"]);
    let losses = |name: &str| {
        let ledger = saved_ledger(&intake);
        let entry = ledger.entries().values().find(|entry| entry.name == name).cloned();
        entry.map_or(0, |entry| entry.losses.len())
    };
    intake.checkpoint_ledger().unwrap();
    assert_eq!((losses("statsd"), losses("http")), (1, 0), "the audit names the source");
    drop((intake, store));
    // Nothing was volatile in the last process.
    let (_intake, store) = reopen_store_intake(&disk, &now, |_| {});
    assert_eq!(hosts_with_gaps(&store), ["both", "statsd"]);
    let gaps = store.view().unwrap().gaps(&(i64::MIN..i64::MAX));
    assert_eq!(gaps.len(), 2, "one of statsd, one of topdeck's own metrics: {gaps:?}");
}

/// Which sources run is not known before all have started.
#[test]
fn kill_during_the_start_is_a_gap_in_all_series() {
    let (disk, now) = (SimDisk::new(1), Arc::new(AtomicI64::new(0)));
    let (intake, store) = new_store_intake(&disk, &now, |_| {});
    let mut writer = intake.writer(KEY_ENCODING);
    write(&mut writer, "http", 1);
    intake.append(&intake.producer("http"), writer).unwrap().wait_durable().unwrap();
    intake.begin_volatile_start().unwrap();
    intake.volatile_producer("statsd");
    intake.checkpoint_ledger().unwrap();
    drop((intake, store));
    let (_intake, store) = reopen_store_intake(&disk, &now, |_| {});
    assert_eq!(hosts_with_gaps(&store), ["http"]);
}

#[test]
fn damaged_ledger_is_restarted_with_a_warning() {
    let mut life = CrashHarness::new(1);
    assert!(
        life.open(None) && life.step(LedgerStep::Append("a", 3)) && life.step(LedgerStep::Stop)
    );
    life.end_process();
    life.disk.flip_bit(format!("{DIR}/ledgers/ledger"), 40, 1);
    assert!(life.open(None));
    let audit = life.intake().audit().unwrap();
    assert!(audit.warnings.iter().any(|note| note.contains("checksum")), "{:?}", audit.warnings);
    assert!(audit.producers.iter().all(|account| account.is_reconciled()));
    assert!(life.step(LedgerStep::Append("a", 2)));
    let ledger_before = saved_ledger(life.intake());
    assert_eq!(ledger_before.first(), 1);
}

#[test]
fn ledger_with_the_names_of_an_earlier_version_is_continued() {
    let mut life = CrashHarness::new(1);
    assert!(
        life.open(None) && life.step(LedgerStep::Append("a", 3)) && life.step(LedgerStep::Stop)
    );
    let saved = life.disk.process();
    life.end_process();
    for (name, old_name) in
        [("ledgers/ledger", "ledgers/books"), ("checkpoints/ledger", "checkpoints/books")]
    {
        let path = |name| std::path::Path::new(DIR).join(name);
        saved.rename(&path(name), &path(old_name)).unwrap();
    }
    drop(saved);
    assert!(life.open(None));
    let ledger = saved_ledger(life.intake());
    assert_eq!(ledger.first(), 0);
    assert!(ledger.entries().values().any(|entry| entry.counts.batches == 1));
    let audit = life.intake().audit().unwrap();
    assert!(audit.warnings.is_empty(), "{:?}", audit.warnings);
    assert!(audit.producers.iter().all(|account| account.is_reconciled()));
    let old = life.intake().write_target().journal().checkpoint("books");
    assert!(matches!(old, Err(journal::Error::NoCheckpoint { .. })), "{old:?}");
}

#[test]
fn producers_beyond_the_limit_share_an_entry() {
    let mut ledger = intake::Ledger::new(7, 0, 0);
    let bytes = batch("a", 2);
    let producers = intake::PRODUCERS_MAX as u64 + 10;
    for producer in 0..producers {
        let identity = BatchIdentity { producer, epoch: 1, sequence: 1 };
        ledger.set_name(producer, "p");
        ledger.add(producer, Some(identity), bytes.bytes());
    }
    // All are of one origin: an eighth of its share is left for others.
    let (lines, others) = (3_641, producers - 3_641);
    assert_eq!(ledger.entries().len() as u64, lines);
    let counts = ledger.unattributed().counts;
    assert_eq!((counts.batches, counts.values), (others, 2 * others));
    assert_eq!(ledger.total().values, producers * 2);
    assert_eq!(intake::Ledger::decode(&ledger.encode()), Ok(ledger));
}

#[test]
fn retry_counts_once_after_a_flood_of_another_client() {
    let mut ledger = intake::Ledger::new(7, 0, 0);
    let bytes = batch("a", 2);
    let mut position = 0;
    let mut add = |ledger: &mut intake::Ledger, origin, producer| {
        let producer = journal::with_origin(origin, producer);
        let identity = BatchIdentity { producer, epoch: 1, sequence: 1 };
        ledger.add(position, Some(identity), bytes.bytes());
        position += 1;
        producer
    };
    for producer in 0..2 * intake::PRODUCERS_MAX as u64 {
        add(&mut ledger, 1, producer);
    }
    // Neither this origin's entry nor a third one's is taken.
    for origin in [2, 3] {
        let producer = add(&mut ledger, origin, 7);
        add(&mut ledger, origin, 7);
        let counts = ledger.entries()[&producer].counts;
        assert_eq!((counts.batches, counts.values, counts.duplicates), (1, 2, 1));
    }
}
