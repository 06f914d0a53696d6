//! raft-engine: the log of a Raft store, in segments, with checksums and an in-memory index of all
//! entries.
//!
//! It accepts entries as protobuf messages that contain their index: `LogEntry` is such a message
//! with two fields, like a Raft entry.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, ensure};
use protobuf::reflect::MessageDescriptor;
use protobuf::rt;
use protobuf::{
    CachedSize, Clear, CodedInputStream, CodedOutputStream, Message, ProtobufResult, UnknownFields,
};
use raft_engine::{Config, Engine, LogBatch, MessageExt};

use super::cost::JournalCost;
use super::durable::{AckStats, run_producers};
use super::messages::{Messages, SIZE};
use super::read::ReadChecksum;
use super::{AckContender, AppendContender, ContenderLabel, ReadContender};

const PROMISES: &str = "checksum, kill";
const PROMISES_SYNC: &str = "checksum, kill, power";
const BATCH: usize = 1000;
/// The only log of this engine; a Raft store has thousands.
const REGION: u64 = 1;

pub(crate) fn append_contenders() -> Vec<Box<dyn AppendContender>> {
    vec![Box::new(RaftEngineAppender { batch: BATCH }), Box::new(RaftEngineAppender { batch: 1 })]
}

fn open(directory: &Path) -> Result<Engine> {
    let dir = directory.to_str().expect("cargo's target directory is valid UTF-8").to_owned();
    Ok(Engine::open(Config { dir, ..Config::default() })?)
}

fn append(engine: &Engine, batch: usize, messages: &[u8]) -> Result<()> {
    let mut entries: Vec<LogEntry> = vec![LogEntry::default(); batch];
    let mut writes = LogBatch::with_capacity(batch);
    let mut index = 0;
    for messages in messages.chunks(batch * SIZE) {
        let count = messages.len() / SIZE;
        for (entry, message) in entries.iter_mut().zip(messages.chunks_exact(SIZE)) {
            index += 1;
            entry.set(index, message);
        }
        writes.add_entries::<LogEntry>(REGION, &entries[..count])?;
        engine.write(&mut writes, false)?;
    }
    Ok(())
}

struct RaftEngineAppender {
    batch: usize,
}

impl AppendContender for RaftEngineAppender {
    fn label(&self) -> ContenderLabel {
        let batch = match self.batch {
            1 => String::new(),
            batch => format!(", {batch} each (LZ4)"),
        };
        ContenderLabel::new(format!("raft-engine{batch}"), PROMISES)
    }

    fn messages(&self) -> usize {
        if self.batch == 1 { 250_000 } else { super::MILLION }
    }

    fn append(&self, directory: &Path, messages: &[u8]) -> Result<JournalCost> {
        let engine = open(directory)?;
        JournalCost::measure(directory, messages.len() / SIZE, || {
            append(&engine, self.batch, messages)
        })
    }
}

pub(crate) struct RaftEngineDurable;

impl AckContender for RaftEngineDurable {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new("raft-engine, sync", PROMISES_SYNC)
    }

    fn acknowledge(
        &self,
        directory: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<AckStats> {
        let engine = open(directory)?;
        run_producers(directory, producers, time, messages, |at| {
            // Entries of a region are consecutive, so each producer has its own region.
            let (engine, region) = (&engine, REGION + at as u64);
            let mut writes = LogBatch::default();
            let mut entry = [LogEntry::default()];
            Ok(Box::new(move |message| {
                let index = entry[0].index + 1;
                entry[0].set(index, message);
                writes.add_entries::<LogEntry>(region, &entry)?;
                engine.write(&mut writes, true)?;
                Ok(())
            }))
        })
    }
}

pub(crate) struct RaftEngineReader;

impl ReadContender for RaftEngineReader {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new("raft-engine (LZ4)", PROMISES)
    }

    fn prepare(&self, directory: &Path, messages: &[u8]) -> Result<()> {
        append(&open(directory)?, BATCH, messages)
    }

    fn read(&self, directory: &Path, messages: &[u8]) -> Result<JournalCost> {
        let mut touched = ReadChecksum::default();
        let count = messages.len() / SIZE;
        let engine = open(directory)?;
        let cost = JournalCost::measure(directory, count, || {
            let mut entries = Vec::new();
            let (mut next, end) = (1, count as u64 + 1);
            while next < end {
                entries.clear();
                let until = end.min(next + BATCH as u64);
                engine.fetch_entries_to::<LogEntry>(REGION, next, until, None, &mut entries)?;
                ensure!(!entries.is_empty(), "nothing to read at entry {next}");
                entries.iter().for_each(|entry| touched.add(&entry.data));
                next += entries.len() as u64;
            }
            Ok(())
        })?;
        touched.check(messages)?;
        Ok(cost)
    }
}

/// A protobuf message with two fields: `uint64 index = 1; bytes data = 2;`.
#[derive(Clone, Debug, Default, PartialEq)]
struct LogEntry {
    index: u64,
    data: Vec<u8>,
    unknown: UnknownFields,
    size: CachedSize,
}

impl LogEntry {
    fn set(&mut self, index: u64, message: &[u8]) {
        self.index = index;
        self.data.clear();
        self.data.extend_from_slice(message);
    }
}

impl MessageExt for LogEntry {
    type Entry = LogEntry;

    fn index(entry: &LogEntry) -> u64 {
        entry.index
    }
}

impl Clear for LogEntry {
    fn clear(&mut self) {
        self.index = 0;
        self.data.clear();
    }
}

impl Message for LogEntry {
    fn descriptor(&self) -> &'static MessageDescriptor {
        unreachable!("used by reflection only")
    }

    fn is_initialized(&self) -> bool {
        true
    }

    fn merge_from(&mut self, stream: &mut CodedInputStream) -> ProtobufResult<()> {
        while !stream.eof()? {
            match stream.read_tag_unpack()? {
                (1, _) => self.index = stream.read_uint64()?,
                (2, _) => self.data = stream.read_bytes()?,
                (number, kind) => {
                    rt::read_unknown_or_skip_group(number, kind, stream, self.mut_unknown_fields())?
                }
            }
        }
        Ok(())
    }

    fn write_to_with_cached_sizes(&self, stream: &mut CodedOutputStream) -> ProtobufResult<()> {
        stream.write_uint64(1, self.index)?;
        stream.write_bytes(2, &self.data)
    }

    fn compute_size(&self) -> u32 {
        use protobuf::wire_format::WireTypeVarint;
        let size = rt::value_size(1, self.index, WireTypeVarint) + rt::bytes_size(2, &self.data);
        self.size.set(size);
        size
    }

    fn get_cached_size(&self) -> u32 {
        self.size.get()
    }

    fn get_unknown_fields(&self) -> &UnknownFields {
        &self.unknown
    }

    fn mut_unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn new() -> LogEntry {
        LogEntry::default()
    }

    fn default_instance() -> &'static LogEntry {
        static INSTANCE: OnceLock<LogEntry> = OnceLock::new();
        INSTANCE.get_or_init(LogEntry::default)
    }
}
