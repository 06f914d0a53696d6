//! topdeck's journal: its rows of JLog's own table, acknowledgements on disk, and reading from segments.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use disk::OsDisk;
use journal::{AtLimit, Codec, Item, Journal, Level, Limits, Options, Settings, Start};

use super::cost::{Cost, stored_bytes};
use super::durable::{Acknowledged, run_producers};
use super::messages::{Messages, SIZE};
use super::read::Touched;
use super::{Acknowledge, Append, Label, Read};

const PROMISES: &str = "checksum, visible, kill";
const PROMISES_DISK: &str = "checksum, visible, kill, power";

/// A way of appending and the row of JLog that it is compared with.
struct Way {
    name: &'static str,
    codec: Codec,
    buffer_bytes: u64,
    alone: bool,
    /// Messages per call.
    batch: usize,
}

const MIB: u64 = 1 << 20;

const WAYS: [Way; 8] = [
    way("topdeck, any process (default buffer)", Codec::None, MIB, false, 1),
    way("topdeck, any process, LZ4 (default)", Codec::Lz4, MIB, false, 1),
    way("topdeck, one process", Codec::None, MIB, true, 1),
    way("topdeck, one process, LZ4", Codec::Lz4, MIB, true, 1),
    way("topdeck, one process, 128 KiB buffer", Codec::None, MIB / 8, true, 1),
    way("topdeck, one process, 128 KiB buffer, LZ4", Codec::Lz4, MIB / 8, true, 1),
    way("topdeck, any process, zstd", Codec::Zstd, MIB, false, 1),
    way("topdeck, any process, 1000 each", Codec::None, MIB, false, 1000),
];

const fn way(
    name: &'static str,
    codec: Codec,
    buffer_bytes: u64,
    alone: bool,
    batch: usize,
) -> Way {
    Way { name, codec, buffer_bytes, alone, batch }
}

/// Names of the rows that stand beside JLog's, in the order of its modes, and how many times as fast they are to
/// be by the clock.
pub(crate) const BESIDE_JLOG: [(&str, f64); 6] = [
    (WAYS[0].name, 25.0),
    (WAYS[1].name, 8.0),
    (WAYS[2].name, 15.0),
    (WAYS[3].name, 6.0),
    (WAYS[4].name, 3.0),
    (WAYS[5].name, 2.0),
];
/// Rows whose stored bytes have a target.
pub(crate) const STORED: [(&str, f64); 3] =
    [(WAYS[0].name, 1.05), (WAYS[1].name, 0.34), (WAYS[6].name, 0.17)];

pub(crate) fn appending() -> Vec<Box<dyn Append>> {
    WAYS.iter().map(|way| Box::new(way) as Box<dyn Append>).collect()
}

fn open(folder: &Path, codec: Codec, buffer_bytes: u64, alone: bool) -> Result<Journal> {
    let limits = Limits { bytes_max: None, age_max: None, at_limit: AtLimit::Refuse };
    let settings = Settings { codec, buffer_bytes, limits, ..Settings::default() };
    Journal::create(&OsDisk, folder, journal::random_id(), 0, &settings)?;
    // Nobody in this table is asked for fsync, so topdeck does not do its one per second either.
    let options = Options { alone, sync_every: None, ..Options::default() };
    Ok(Journal::open(Arc::new(OsDisk), folder, &options)?)
}

fn append(journal: &Journal, messages: &[u8], batch: usize) -> Result<()> {
    if batch == 1 {
        for message in messages.chunks_exact(SIZE) {
            let ack = journal.append(message, Level::Process)?;
            ensure!(ack.level >= Level::Process, "reached {} only", ack.level);
        }
    } else {
        for batch in messages.chunks(batch * SIZE) {
            let batch: Vec<&[u8]> = batch.chunks_exact(SIZE).collect();
            let ack = journal.append_batch(None, &batch, Level::Process)?;
            ensure!(ack.level >= Level::Process, "reached {} only", ack.level);
        }
    }
    journal.flush(Level::Process)?;
    Ok(())
}

impl Append for &Way {
    fn label(&self) -> Label {
        Label::new(self.name, PROMISES)
    }

    fn append(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let folder = folder.join("journal");
        let journal = open(&folder, self.codec, self.buffer_bytes, self.alone)?;
        let mut cost =
            Cost::of(&folder, messages.len() / SIZE, || append(&journal, messages, self.batch))?;
        // What is reserved and not used goes back.
        journal.close()?;
        cost.left_bytes = stored_bytes(&folder)?;
        Ok(cost)
    }
}

pub(crate) struct Durable;

/// The row's name.
pub(crate) const DURABLE: &str = "topdeck";

impl Acknowledge for Durable {
    fn label(&self) -> Label {
        Label::new(DURABLE, PROMISES_DISK)
    }

    fn acknowledge(
        &self,
        folder: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<Acknowledged> {
        let folder = folder.join("journal");
        let journal = open(&folder, Codec::default(), MIB, false)?;
        let result = run_producers(&folder, producers, time, messages, |_| {
            let journal = &journal;
            Ok(Box::new(move |message| {
                let ack = journal.append(message, Level::Disk)?;
                ensure!(ack.level == Level::Disk, "reached {} only", ack.level);
                Ok(())
            }))
        });
        journal.close()?;
        result
    }
}

/// So many subscribers at the same time, each reading everything from the segments.
pub(crate) struct Reader {
    pub(crate) subscribers: usize,
    pub(crate) codec: Codec,
}

/// The readers whose rate has a target: messages per second and subscriber.
pub(crate) const READERS: [Reader; 2] =
    [Reader { subscribers: 1, codec: Codec::None }, Reader { subscribers: 4, codec: Codec::None }];

pub(crate) fn reading() -> Vec<Box<dyn Read>> {
    let lz4 = Reader { subscribers: 1, codec: Codec::Lz4 };
    READERS.into_iter().chain([lz4]).map(|reader| Box::new(reader) as Box<dyn Read>).collect()
}

impl Reader {
    pub(crate) fn name(&self) -> String {
        let codec = if self.codec == Codec::Lz4 { ", LZ4" } else { "" };
        match self.subscribers {
            1 => format!("topdeck, one subscriber{codec}"),
            many => format!("topdeck, {many} subscribers at once{codec}"),
        }
    }
}

impl Read for Reader {
    fn label(&self) -> Label {
        Label::new(self.name(), PROMISES)
    }

    fn prepare(&self, folder: &Path, messages: &[u8]) -> Result<()> {
        let journal = open(&folder.join("journal"), self.codec, MIB, false)?;
        for subscriber in 0..self.subscribers {
            journal.add_subscriber(&subscriber.to_string(), Start::Begin, true)?;
        }
        append(&journal, messages, 1000)?;
        journal.close()?;
        Ok(())
    }

    fn read(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let folder = folder.join("journal");
        let journal = Journal::open(Arc::new(OsDisk), &folder, &Options::default())?;
        Cost::of(&folder, self.subscribers * messages.len() / SIZE, || {
            thread::scope(|scope| {
                let readers: Vec<_> = (0..self.subscribers)
                    .map(|subscriber| {
                        let journal = &journal;
                        scope.spawn(move || read(journal, &subscriber.to_string(), messages))
                    })
                    .collect();
                readers.into_iter().try_for_each(|reader| reader.join().expect("no panic"))
            })
        })
    }
}

/// Reads all as a subscriber does that begins anew each round: it does not commit.
fn read(journal: &Journal, name: &str, messages: &[u8]) -> Result<()> {
    let mut subscriber = journal.subscribe(name)?;
    subscriber.set_buffered(false);
    let mut touched = Touched::default();
    while let Some(item) = subscriber.next()? {
        match item {
            Item::Batch(batch) => batch.records().for_each(|record| touched.take(record.bytes)),
            Item::Gap(gap) => anyhow::bail!("{} messages are missing", gap.records()),
        }
    }
    touched.check(messages)
}
