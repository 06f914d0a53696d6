//! The books are what the journal has, whatever happens: the process is killed, or the power goes, in the middle of
//! every operation that changes anything, and again while they are opened.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use disk::{Disk, SimDisk};
use intake::{Counts, Home, Intake};
use journal::{Identity, Item, Journal, Level, Start};
use model::{Batch, Value};

use crate::dying::{Died, Dying};
use crate::world::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next batch of a source.
    Take(&'static str, u64),
    /// A batch with an identity of its own: producer, sequence.
    Send(u64, u64),
    Keep,
    Reopen,
    Stop,
}

fn script() -> Vec<Step> {
    use Step::*;
    vec![
        Take("a", 3),
        Send(1, 1),
        Take("b", 2),
        Keep,
        Send(2, 1),
        Send(1, 1),
        Take("a", 1),
        Reopen,
        Send(1, 2),
        Send(2, 1),
        Keep,
        Keep,
        Take("b", 5),
        Stop,
        Send(1, 2),
        Reopen,
        Send(2, 2),
        Take("a", 4),
        Stop,
    ]
}

/// A machine, and what was acknowledged.
struct Life {
    disk: SimDisk,
    now: Arc<AtomicI64>,
    process: Option<(Dying, Option<Intake>)>,
    /// Batches that were acknowledged, and batches that came, by name.
    acknowledged: BTreeMap<String, BTreeSet<u64>>,
}

impl Life {
    fn new(seed: u64) -> Life {
        let disk = SimDisk::new(seed);
        let dying: Arc<dyn Disk> = Arc::new(disk.process());
        create_journal(&dying).unwrap();
        Life { disk, now: Arc::default(), process: None, acknowledged: BTreeMap::new() }
    }

    fn fork(&self, seed: u64) -> Life {
        Life {
            disk: self.disk.fork(seed),
            now: Arc::new(AtomicI64::new(self.now.load(Ordering::Relaxed))),
            process: None,
            acknowledged: self.acknowledged.clone(),
        }
    }

    fn end_process(&mut self) {
        if let Some((dying, intake)) = self.process.take() {
            dying.quiet.store(true, Ordering::SeqCst);
            drop(intake);
        }
    }

    /// `false`: it died.
    fn attempt<T>(act: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(done) => Some(done),
            Err(payload) if payload.is::<Died>() => None,
            Err(payload) => resume_unwind(payload),
        }
    }

    fn open(&mut self, kill_after: Option<u64>) -> bool {
        self.end_process();
        let dying = Dying::new(&self.disk);
        if let Some(count) = kill_after {
            dying.process.kill_after(count);
        }
        let disk: Arc<dyn Disk> = Arc::new(dying.clone());
        let opened = Life::attempt(|| {
            let home = Home::Journal(open_journal(&disk, &self.now).unwrap());
            Intake::new(home, settings(&self.now)).unwrap()
        });
        let is_open = opened.is_some();
        self.process = Some((dying, opened));
        is_open
    }

    fn intake(&self) -> &Intake {
        self.process.as_ref().and_then(|(_, intake)| intake.as_ref()).expect("it is open")
    }

    fn step(&mut self, step: Step) -> bool {
        let done = match step {
            Step::Reopen => return self.open(None),
            Step::Take(name, values) => Life::attempt(|| {
                let intake = self.intake();
                let mut writer = intake.writer(WAY);
                write(&mut writer, name, values);
                intake.take(&intake.producer(name), writer).unwrap().wait().unwrap();
                Some((name.to_owned(), values))
            }),
            Step::Send(producer, sequence) => Life::attempt(|| {
                let name = format!("agent {producer}");
                let identity = Identity { producer, boot: 1, sequence };
                let batch = batch(&name, producer + sequence);
                self.intake().take_batch(identity, &name, &batch).unwrap().wait().unwrap();
                Some((name, sequence))
            }),
            Step::Keep => Life::attempt(|| {
                self.intake().keep_books().unwrap();
                None
            }),
            Step::Stop => Life::attempt(|| {
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

    /// Opens it, and compares the book with the journal.
    #[track_caller]
    fn check(&mut self, what: &str) {
        assert!(self.open(None), "{what}");
        let intake = self.intake();
        intake.keep_books().unwrap();
        let book = book(intake);
        let recount = recount(intake.home().journal());
        let found: BTreeMap<_, _> =
            book.entries().iter().map(|(&id, entry)| (id, entry.counts)).collect();
        let found: BTreeMap<_, _> =
            found.into_iter().filter(|(_, counts)| counts.records() > 0).collect();
        assert_eq!(found, recount, "{what}");
        assert_eq!(book.total().records(), book.position() - book.first(), "{what}");
        for (name, numbers) in &self.acknowledged {
            let id = match name.strip_prefix("agent ") {
                Some(id) => id.parse().unwrap(),
                None => intake.producer(name).id(),
            };
            let batches = book.entries()[&id].counts.batches;
            assert!(batches >= numbers.len() as u64, "{what}: {name}");
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.end_process();
    }
}

/// What the journal has, counted in the plainest way.
fn recount(journal: &Journal) -> BTreeMap<u64, Counts> {
    let mut counts: BTreeMap<u64, Counts> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut reader = journal.reader(Start::Begin).unwrap();
    reader.set_level(Level::Disk);
    while let Some(item) = reader.next().unwrap() {
        let Item::Batch(batch) = item else { continue };
        for record in batch.records() {
            let identity = record.identity.unwrap();
            let line = counts.entry(identity.producer).or_default();
            if !seen.insert(identity) {
                line.repeated += 1;
                continue;
            }
            let batch = Batch::check(record.bytes.to_owned()).unwrap();
            line.batches += 1;
            for entry in batch.read() {
                line.samples += 1;
                let Value::Histogram(histogram) = entry.unwrap().decode().unwrap() else {
                    panic!("only histograms were sent");
                };
                line.values += histogram.count();
            }
        }
    }
    counts
}

fn crash_everywhere(is_power: bool) -> u32 {
    let steps = script();
    let mut crashes = 0;
    let mut life = Life::new(3);
    for at in 0..steps.len() {
        for first in 0.. {
            let mut life = life.fork(first);
            let what = format!("{:?} and {first} operations, power {is_power}", steps[at]);
            let arm = |life: &Life, count| is_power.then(|| life.disk.cut_after(count));
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
            // Again, while it is opened.
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
fn after_a_power_cut_anywhere_the_books_are_what_the_journal_has() {
    let crashes = crash_everywhere(true);
    println!("{crashes} power cuts");
    assert!(crashes > 200, "only {crashes}");
}

#[test]
fn after_a_kill_anywhere_the_books_are_what_the_journal_has() {
    let crashes = crash_everywhere(false);
    println!("{crashes} kills");
    assert!(crashes > 200, "only {crashes}");
}

/// Losses that the books have of topdeck itself, by reason.
fn own_losses(intake: &Intake) -> Vec<String> {
    intake.keep_books().unwrap();
    let book = book(intake);
    let own = book.entries().values().find(|entry| entry.name == "topdeck");
    own.map(|own| own.losses.iter().map(|loss| loss.reason.clone()).collect()).unwrap_or_default()
}

#[test]
fn a_kill_while_something_could_be_lost_is_a_gap() {
    let mut life = Life::new(1);
    assert!(life.open(None));
    life.intake().mark_lossy().unwrap();
    // It ends in order.
    assert!(life.step(Step::Stop) && life.open(None));
    assert_eq!(own_losses(life.intake()), Vec::<String>::new());
    // Nothing could be lost.
    assert!(life.open(None));
    assert_eq!(own_losses(life.intake()), Vec::<String>::new());
    life.intake().mark_lossy().unwrap();
    assert!(life.open(None));
    let losses = own_losses(life.intake());
    assert!(losses.len() == 1 && losses[0].starts_with("topdeck was killed"), "{losses:?}");
    // It is told once.
    assert!(life.open(None));
    let book = book(life.intake());
    let own = book.entries().values().find(|entry| entry.name == "topdeck").unwrap();
    assert_eq!((own.losses[0].gaps, own.losses[0].unknown), (1, 1));
    assert!(own.losses[0].start < own.losses[0].end);
}

#[test]
fn damaged_books_are_begun_anew_and_it_is_said() {
    let mut life = Life::new(1);
    assert!(life.open(None) && life.step(Step::Take("a", 3)) && life.step(Step::Stop));
    life.end_process();
    life.disk.flip_bit(format!("{DIR}/books/books"), 40, 1);
    assert!(life.open(None));
    let audit = life.intake().audit().unwrap();
    assert!(audit.notes.iter().any(|note| note.contains("checksum")), "{:?}", audit.notes);
    assert!(audit.producers.iter().all(|account| account.is_explained()));
    assert!(life.step(Step::Take("a", 2)));
    let book_before = book(life.intake());
    assert_eq!(book_before.first(), 1);
}

#[test]
fn producers_beyond_the_most_share_a_line() {
    let mut book = intake::Book::new(7, 0, 0);
    let bytes = batch("a", 2);
    let producers = intake::PRODUCERS_MAX as u64 + 10;
    for producer in 0..producers {
        let identity = Identity { producer, boot: 1, sequence: 1 };
        book.name(producer, "p");
        book.add(producer, Some(identity), bytes.bytes());
    }
    // All are of one origin: an eighth of what it has is left for others.
    let (lines, others) = (3_641, producers - 3_641);
    assert_eq!(book.entries().len() as u64, lines);
    let counts = book.others().counts;
    assert_eq!((counts.batches, counts.values), (others, 2 * others));
    assert_eq!(book.total().values, producers * 2);
    assert_eq!(intake::Book::read(&book.write()), Ok(book));
}

#[test]
fn after_a_flood_of_one_client_anothers_retry_counts_once_in_the_books() {
    let mut book = intake::Book::new(7, 0, 0);
    let bytes = batch("a", 2);
    let mut position = 0;
    let mut add = |book: &mut intake::Book, origin, producer| {
        let producer = journal::with_origin(origin, producer);
        let identity = Identity { producer, boot: 1, sequence: 1 };
        book.add(position, Some(identity), bytes.bytes());
        position += 1;
        producer
    };
    for producer in 0..2 * intake::PRODUCERS_MAX as u64 {
        add(&mut book, 1, producer);
    }
    // Neither this one's line nor that of a third is taken.
    for origin in [2, 3] {
        let producer = add(&mut book, origin, 7);
        add(&mut book, origin, 7);
        let counts = book.entries()[&producer].counts;
        assert_eq!((counts.batches, counts.values, counts.repeated), (1, 2, 1));
    }
}
