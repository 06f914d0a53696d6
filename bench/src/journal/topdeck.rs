//! The journal of topdeck: the modes of JLog's table, durable acknowledgements, and reads from
//! segments.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use disk::OsDisk;
use journal::{
    Compression, Journal, Level, LimitPolicy, Limits, Options, ReadItem, Settings, StartPosition,
};

use super::cost::{JournalCost, stored_bytes};
use super::durable::{AckStats, run_producers};
use super::messages::{Messages, SIZE};
use super::read::ReadChecksum;
use super::{AckContender, AppendContender, ContenderLabel, ReadContender};

const PROMISES: &str = "checksum, visible, kill";
const PROMISES_DISK: &str = "checksum, visible, kill, power";

/// A mode of appending, and the JLog mode to compare with.
struct AppendConfig {
    name: &'static str,
    compression: Compression,
    buffer_bytes: u64,
    exclusive: bool,
    /// Messages per call.
    batch: usize,
}

const MIB: u64 = 1 << 20;

const APPEND_CONFIGS: [AppendConfig; 8] = [
    append_config("topdeck, any process (default buffer)", Compression::None, MIB, false, 1),
    append_config("topdeck, any process, LZ4 (default)", Compression::Lz4, MIB, false, 1),
    append_config("topdeck, one process", Compression::None, MIB, true, 1),
    append_config("topdeck, one process, LZ4", Compression::Lz4, MIB, true, 1),
    append_config("topdeck, one process, 128 KiB buffer", Compression::None, MIB / 8, true, 1),
    append_config("topdeck, one process, 128 KiB buffer, LZ4", Compression::Lz4, MIB / 8, true, 1),
    append_config("topdeck, any process, zstd", Compression::Zstd, MIB, false, 1),
    append_config("topdeck, any process, 1000 each", Compression::None, MIB, false, 1000),
];

const fn append_config(
    name: &'static str,
    compression: Compression,
    buffer_bytes: u64,
    alone: bool,
    batch: usize,
) -> AppendConfig {
    AppendConfig { name, compression, buffer_bytes, exclusive: alone, batch }
}

/// Rows compared with those of JLog, in the order of its modes, and the required speedup by wall
/// time.
pub(crate) const JLOG_CPU_NS: [(&str, f64); 6] = [
    (APPEND_CONFIGS[0].name, 25.0),
    (APPEND_CONFIGS[1].name, 8.0),
    (APPEND_CONFIGS[2].name, 15.0),
    (APPEND_CONFIGS[3].name, 6.0),
    (APPEND_CONFIGS[4].name, 3.0),
    (APPEND_CONFIGS[5].name, 2.0),
];
/// Rows with a target for stored bytes.
pub(crate) const JLOG_STORED: [(&str, f64); 3] = [
    (APPEND_CONFIGS[0].name, 1.05),
    (APPEND_CONFIGS[1].name, 0.34),
    (APPEND_CONFIGS[6].name, 0.17),
];

pub(crate) fn append_contenders() -> Vec<Box<dyn AppendContender>> {
    APPEND_CONFIGS.iter().map(|way| Box::new(way) as Box<dyn AppendContender>).collect()
}

fn open(dir: &Path, compression: Compression, buffer_bytes: u64, alone: bool) -> Result<Journal> {
    let limits = Limits { bytes_max: None, age_max: None, on_full: LimitPolicy::Reject };
    let settings = Settings { compression, buffer_bytes, limits, ..Settings::default() };
    Journal::create(&OsDisk, dir, journal::random_id(), 0, &settings)?;
    // No contender in this table calls fsync, so the fsync of topdeck, one per second, is disabled.
    let options = Options { is_exclusive: alone, sync_interval: None, ..Options::default() };
    Ok(Journal::open(Arc::new(OsDisk), dir, &options)?)
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

impl AppendContender for &AppendConfig {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new(self.name, PROMISES)
    }

    fn append(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost> {
        let dir = dir.join("journal");
        let journal = open(&dir, self.compression, self.buffer_bytes, self.exclusive)?;
        let mut cost = JournalCost::measure(&dir, messages.len() / SIZE, || {
            append(&journal, messages, self.batch)
        })?;
        // Releases unused allocated space.
        journal.close()?;
        cost.stored_bytes = stored_bytes(&dir)?;
        Ok(cost)
    }
}

pub(crate) struct TopdeckDurable;

/// Name of the row.
pub(crate) const DURABLE_NAME: &str = "topdeck";

impl AckContender for TopdeckDurable {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new(DURABLE_NAME, PROMISES_DISK)
    }

    fn acknowledge(
        &self,
        dir: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<AckStats> {
        let dir = dir.join("journal");
        let journal = open(&dir, Compression::default(), MIB, false)?;
        let result = run_producers(&dir, producers, time, messages, |_| {
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

/// Concurrent subscribers, each of which reads everything from the segments.
pub(crate) struct TopdeckReader {
    pub(crate) subscribers: usize,
    pub(crate) compression: Compression,
}

/// Readers with a target: messages per second and subscriber.
pub(crate) const READERS: [TopdeckReader; 2] = [
    TopdeckReader { subscribers: 1, compression: Compression::None },
    TopdeckReader { subscribers: 4, compression: Compression::None },
];

pub(crate) fn read_contenders() -> Vec<Box<dyn ReadContender>> {
    let lz4 = TopdeckReader { subscribers: 1, compression: Compression::Lz4 };
    READERS
        .into_iter()
        .chain([lz4])
        .map(|reader| Box::new(reader) as Box<dyn ReadContender>)
        .collect()
}

impl TopdeckReader {
    pub(crate) fn name(&self) -> String {
        let compression = if self.compression == Compression::Lz4 { ", LZ4" } else { "" };
        match self.subscribers {
            1 => format!("topdeck, one subscriber{compression}"),
            many => format!("topdeck, {many} subscribers at once{compression}"),
        }
    }
}

impl ReadContender for TopdeckReader {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new(self.name(), PROMISES)
    }

    fn prepare(&self, dir: &Path, messages: &[u8]) -> Result<()> {
        let journal = open(&dir.join("journal"), self.compression, MIB, false)?;
        for subscriber in 0..self.subscribers {
            journal.add_subscriber(&subscriber.to_string(), StartPosition::First, true)?;
        }
        append(&journal, messages, 1000)?;
        journal.close()?;
        Ok(())
    }

    fn read(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost> {
        let dir = dir.join("journal");
        let journal = Journal::open(Arc::new(OsDisk), &dir, &Options::default())?;
        JournalCost::measure(&dir, self.subscribers * messages.len() / SIZE, || {
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

/// Reads everything like a subscriber without a committed position, and does not commit.
fn read(journal: &Journal, name: &str, messages: &[u8]) -> Result<()> {
    let mut subscriber = journal.subscribe(name)?;
    subscriber.set_reads_buffer(false);
    let mut touched = ReadChecksum::default();
    while let Some(item) = subscriber.next()? {
        match item {
            ReadItem::Batch(batch) => batch.records().for_each(|record| touched.add(record.bytes)),
            ReadItem::Gap(gap) => anyhow::bail!("{} messages are missing", gap.records()),
        }
    }
    touched.check(messages)
}
