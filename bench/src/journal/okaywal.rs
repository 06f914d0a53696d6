//! okaywal: a write-ahead log in segments, with a checksum and an fsync for every entry.
//!
//! An entry of many chunks is committed by one fsync. Segments are never checkpointed here, since that would
//! delete what a journal is to keep.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use okaywal::{
    Configuration, Entry, EntryId, LogManager, LogVoid, ReadChunkResult, SegmentReader,
    WriteAheadLog,
};

use super::cost::Cost;
use super::durable::{Acknowledged, run_producers};
use super::messages::{Messages, SIZE};
use super::read::Touched;
use super::{Acknowledge, Append, Label, Read};

const PROMISES: &str = "checksum, kill, power";
const BATCH: usize = 1000;
/// Far beyond what is written, so that no segment is full.
const NEVER_BYTES: u64 = 1 << 40;

pub(crate) fn appending() -> Vec<Box<dyn Append>> {
    vec![Box::new(Appender)]
}

fn open(folder: &Path, manager: impl LogManager) -> Result<WriteAheadLog> {
    Ok(Configuration::default_for(folder).checkpoint_after_bytes(NEVER_BYTES).open(manager)?)
}

fn append(log: &WriteAheadLog, messages: &[u8]) -> Result<()> {
    for batch in messages.chunks(BATCH * SIZE) {
        let mut entry = log.begin_entry()?;
        for message in batch.chunks_exact(SIZE) {
            entry.write_chunk(message)?;
        }
        entry.commit()?;
    }
    Ok(())
}

struct Appender;

impl Append for Appender {
    fn label(&self) -> Label {
        Label::new("okaywal, 1000 each, fsync", PROMISES)
    }

    fn append(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let log = open(folder, LogVoid)?;
        let cost = Cost::of(folder, messages.len() / SIZE, || append(&log, messages))?;
        log.shutdown()?;
        Ok(cost)
    }
}

pub(crate) struct Durable;

impl Acknowledge for Durable {
    fn label(&self) -> Label {
        Label::new("okaywal", PROMISES)
    }

    fn acknowledge(
        &self,
        folder: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<Acknowledged> {
        let log = open(folder, LogVoid)?;
        let result = run_producers(folder, producers, time, messages, |_| {
            let log = &log;
            Ok(Box::new(move |message| {
                let mut entry = log.begin_entry()?;
                entry.write_chunk(message)?;
                entry.commit()?;
                Ok(())
            }))
        });
        log.shutdown()?;
        result
    }
}

pub(crate) struct Reader;

impl Read for Reader {
    fn label(&self) -> Label {
        Label::new("okaywal, recovery", PROMISES)
    }

    fn prepare(&self, folder: &Path, messages: &[u8]) -> Result<()> {
        let log = open(folder, LogVoid)?;
        append(&log, messages)?;
        Ok(log.shutdown()?)
    }

    fn read(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let touched = Arc::new(Mutex::new(Touched::default()));
        let recovering = Recovering { touched: touched.clone() };
        let mut log = None;
        let cost = Cost::of(folder, messages.len() / SIZE, || {
            log = Some(open(folder, recovering)?);
            Ok(())
        })?;
        log.map(WriteAheadLog::shutdown).transpose()?;
        touched.lock().expect("no panic").check(messages)?;
        Ok(cost)
    }
}

#[derive(Debug)]
struct Recovering {
    touched: Arc<Mutex<Touched>>,
}

impl LogManager for Recovering {
    fn recover(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        let mut touched = self.touched.lock().expect("no panic");
        let mut message = [0; SIZE];
        while let ReadChunkResult::Chunk(mut chunk) = entry.read_chunk()? {
            chunk.read_exact(&mut message)?;
            if !chunk.check_crc()? {
                return Err(io::ErrorKind::InvalidData.into());
            }
            touched.take(&message);
        }
        Ok(())
    }

    fn checkpoint_to(
        &mut self,
        _: EntryId,
        _: &mut SegmentReader,
        _: &WriteAheadLog,
    ) -> io::Result<()> {
        Ok(())
    }
}
