//! commitlog: an append-only log in segments, with a checksum per message and a mapped index of all messages.

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use commitlog::message::{MessageBuf, MessageSet};
use commitlog::{CommitLog, LogOptions, ReadLimit};

use super::cost::Cost;
use super::messages::SIZE;
use super::read::Touched;
use super::{Append, Label, Read};

const PROMISES: &str = "checksum, kill";
const BATCH: usize = 1000;
const READ_BYTES: usize = 1 << 20;

pub(crate) fn appending() -> Vec<Box<dyn Append>> {
    vec![Box::new(Appender { batch: BATCH }), Box::new(Appender { batch: 1 })]
}

fn open(folder: &Path) -> Result<CommitLog> {
    Ok(CommitLog::new(LogOptions::new(folder))?)
}

fn append(log: &mut CommitLog, batch: usize, messages: &[u8]) -> Result<()> {
    if batch == 1 {
        for message in messages.chunks_exact(SIZE) {
            log.append_msg(message)?;
        }
        return Ok(());
    }
    let mut buffer = MessageBuf::default();
    for batch in messages.chunks(batch * SIZE) {
        buffer.clear();
        for message in batch.chunks_exact(SIZE) {
            buffer.push(message).map_err(|error| anyhow!("{error:?}"))?;
        }
        log.append(&mut buffer)?;
    }
    Ok(())
}

struct Appender {
    batch: usize,
}

impl Append for Appender {
    fn label(&self) -> Label {
        let batch = if self.batch == 1 { String::new() } else { format!(", {} each", self.batch) };
        Label::new(format!("commitlog{batch}"), PROMISES)
    }

    fn append(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let mut log = open(folder)?;
        Cost::of(folder, messages.len() / SIZE, || append(&mut log, self.batch, messages))
    }
}

pub(crate) struct Reader;

impl Read for Reader {
    fn label(&self) -> Label {
        Label::new("commitlog", PROMISES)
    }

    fn prepare(&self, folder: &Path, messages: &[u8]) -> Result<()> {
        let mut log = open(folder)?;
        append(&mut log, BATCH, messages)?;
        Ok(log.flush()?)
    }

    fn read(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let mut touched = Touched::default();
        let count = messages.len() / SIZE;
        let log = open(folder)?;
        let cost = Cost::of(folder, count, || {
            let mut next = 0;
            while next < count as u64 {
                let read = log.read(next, ReadLimit::max_bytes(READ_BYTES))?;
                ensure!(!read.is_empty(), "nothing to read at message {next}");
                read.iter().for_each(|message| touched.take(message.payload()));
                next += read.len() as u64;
            }
            Ok(())
        })?;
        touched.check(messages)?;
        Ok(cost)
    }
}
