//! The way in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use journal::{Clock, Identity, Level};
use model::Batch;

use crate::commit::{Commit, Receipt};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::meter::{Counter, Meter, Timer};
use crate::producer::{self, Producer};
use crate::series::Cache;
use crate::writer::Writer;

/// How batches are taken.
#[derive(Clone)]
pub struct Settings {
    /// When a sender is told: [`Level::Disk`] by default.
    pub level: Level,
    /// How often sources write what they have put together, and what the boundaries of their intervals are
    /// multiples of: 10 s by default.
    pub interval: Duration,
    /// Where times come from.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            level: Level::Disk,
            interval: Duration::from_secs(10),
            clock: journal::wall_clock(),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("level", &self.level)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// The way in. All methods may be called from any thread.
#[derive(Debug)]
pub struct Intake {
    home: Home,
    settings: Settings,
    boot: u64,
    producers: Mutex<HashMap<String, Producer>>,
    cache: Arc<Cache>,
    meter: Arc<Meter>,
    commit: Commit,
    taken: Counter,
    repeated: Counter,
    refused: Counter,
    appending: Timer,
}

impl Intake {
    /// Opens the way into a store or a journal.
    pub fn new(home: Home, settings: Settings) -> Result<Intake> {
        let meter = Arc::new(Meter::default());
        let syncing = meter.timer(
            "topdeck_journal_sync",
            "how long it takes to make the journal durable, once for all who wait",
            &[],
        );
        let commit = Commit::start(home.clone(), syncing)
            .map_err(|error| Error::Broken(format!("cannot start a thread: {error}")))?;
        let batches = |outcome| {
            meter.counter(
                "topdeck_batches_total",
                "batches that came, by what became of them",
                &[("outcome", outcome)],
            )
        };
        Ok(Intake {
            boot: journal::random_id() as u64,
            producers: Mutex::default(),
            cache: Arc::default(),
            taken: batches("taken"),
            repeated: batches("repeated"),
            refused: batches("refused"),
            appending: meter.timer(
                "topdeck_journal_append",
                "how long it takes to append a batch to the journal",
                &[],
            ),
            commit,
            meter,
            home,
            settings,
        })
    }

    /// What batches end in.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// How batches are taken.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What topdeck measures of itself.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The time now, in nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        (self.settings.clock)()
    }

    /// The producer of a name: a source of this process, or all clients of one kind. The same for all who ask.
    pub fn producer(&self, name: &str) -> Producer {
        let mut producers = self.producers.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            Producer(Arc::new(producer::Inner {
                name: name.to_owned(),
                // Its own beside those of other journals, whose batches may come here too.
                id: id_of(&self.home, name),
                sequence: Mutex::new(0),
            }))
        };
        producers.entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// Something to write rows to. `way` is the number of the source's way to make keys: those of different ways
    /// are never mixed up.
    pub fn writer(&self, way: u8) -> Writer {
        let by_id = self.home.store().is_some();
        Writer::new(Arc::clone(&self.cache), way, by_id)
    }

    /// Takes what was written, as the producer's next batch.
    pub fn take(&self, producer: &Producer, writer: Writer) -> Result<Receipt> {
        let told = writer.told;
        let batch = writer.batch.finish();
        let mut sequence = producer.0.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        let identity =
            Identity { producer: producer.id(), boot: self.boot, sequence: *sequence + 1 };
        let receipt = self.append(identity, &batch)?;
        *sequence += 1;
        told.iter().for_each(|known| known.set_told(true));
        Ok(receipt)
    }

    /// Takes what was written as a batch of an identity that the sender gave.
    pub fn take_as(&self, identity: Identity, writer: Writer) -> Result<Receipt> {
        let told = writer.told;
        let receipt = self.append(identity, &writer.batch.finish())?;
        // A repeat is not in the journal: the forms in it may not be either.
        if !receipt.is_repeated() {
            told.iter().for_each(|known| known.set_told(true));
        }
        Ok(receipt)
    }

    /// Takes a batch that has an identity of its own.
    pub fn take_batch(&self, identity: Identity, batch: &Batch) -> Result<Receipt> {
        self.append(identity, batch)
    }

    fn append(&self, identity: Identity, batch: &Batch) -> Result<Receipt> {
        let began = Instant::now();
        let appended = self.home.append(identity, batch);
        self.appending.record(began.elapsed());
        let ack = match appended {
            Ok(ack) => ack,
            Err(error) => {
                self.refused.add(1);
                return Err(error);
            }
        };
        match ack.repeated {
            true => self.repeated.add(1),
            false => self.taken.add(1),
        }
        Ok(self.commit.receipt(ack.positions.end, self.settings.level, ack.repeated))
    }

    /// Waits for what was taken and ends the thread.
    pub fn stop(&self) {
        self.commit.stop();
    }
}

/// A producer's number, from the journal's and the producer's name.
fn id_of(home: &Home, name: &str) -> u64 {
    let journal = home.journal().stat().map_or(0, |stat| stat.id);
    let mut bytes = journal.to_le_bytes().to_vec();
    bytes.extend_from_slice(name.as_bytes());
    let hash = model::SeriesId::of_form(&bytes);
    u64::from_le_bytes(*hash.0.first_chunk().expect("BUG: a hash has 16 bytes"))
}
