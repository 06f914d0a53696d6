//! fjall: a log-structured store, used as a journal with the message number as key.
//!
//! Its journal receives the writes first. Memtables are flushed to sorted files in the background,
//! and this work counts if it happens during the measurement.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::cost::JournalCost;
use super::durable::{AckStats, run_producers};
use super::messages::{Messages, SIZE};
use super::read::ReadChecksum;
use super::{AckContender, AppendContender, ContenderLabel, ReadContender};

const PROMISES: &str = "checksum, kill";
const PROMISES_SYNC: &str = "checksum, kill, power";
const BATCH: usize = 1000;

pub(crate) fn append_contenders() -> Vec<Box<dyn AppendContender>> {
    vec![Box::new(FjallAppender { batch: BATCH }), Box::new(FjallAppender { batch: 1 })]
}

fn open(dir: &Path) -> Result<(Database, Keyspace)> {
    let database = Database::builder(dir).open()?;
    let messages = database.keyspace("messages", KeyspaceCreateOptions::default)?;
    Ok((database, messages))
}

fn append(database: &Database, keyspace: &Keyspace, batch: usize, messages: &[u8]) -> Result<()> {
    let mut number = 0u64;
    for messages in messages.chunks(batch * SIZE) {
        if batch == 1 {
            keyspace.insert(number.to_be_bytes(), messages)?;
            number += 1;
            continue;
        }
        let mut writes = database.batch().durability(Some(PersistMode::Buffer));
        for message in messages.chunks_exact(SIZE) {
            writes.insert(keyspace, number.to_be_bytes(), message);
            number += 1;
        }
        writes.commit()?;
    }
    Ok(())
}

struct FjallAppender {
    batch: usize,
}

impl AppendContender for FjallAppender {
    fn label(&self) -> ContenderLabel {
        let batch = if self.batch == 1 { String::new() } else { format!(", {} each", self.batch) };
        ContenderLabel::new(format!("fjall{batch}"), PROMISES)
    }

    fn messages(&self) -> usize {
        if self.batch == 1 { 500_000 } else { super::MILLION }
    }

    fn append(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost> {
        let (database, keyspace) = open(dir)?;
        JournalCost::measure(dir, messages.len() / SIZE, || {
            append(&database, &keyspace, self.batch, messages)
        })
    }
}

pub(crate) struct FjallDurable;

impl AckContender for FjallDurable {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new("fjall, SyncData", PROMISES_SYNC)
    }

    fn acknowledge(
        &self,
        dir: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<AckStats> {
        let (database, keyspace) = open(dir)?;
        let number = AtomicU64::new(0);
        run_producers(dir, producers, time, messages, |_| {
            let (database, keyspace, number) = (&database, &keyspace, &number);
            Ok(Box::new(move |message| {
                let mut write = database.batch().durability(Some(PersistMode::SyncData));
                let number = number.fetch_add(1, Ordering::Relaxed);
                write.insert(keyspace, number.to_be_bytes(), message);
                Ok(write.commit()?)
            }))
        })
    }
}

pub(crate) struct FjallReader;

impl ReadContender for FjallReader {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new("fjall", PROMISES)
    }

    fn prepare(&self, dir: &Path, messages: &[u8]) -> Result<()> {
        let (database, keyspace) = open(dir)?;
        append(&database, &keyspace, BATCH, messages)?;
        // The state after a while: most of a journal is in sorted files.
        keyspace.rotate_memtable_and_wait()?;
        Ok(())
    }

    fn read(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost> {
        let (_database, keyspace) = open(dir)?;
        let mut touched = ReadChecksum::default();
        let cost = JournalCost::measure(dir, messages.len() / SIZE, || {
            for item in keyspace.iter() {
                touched.add(&item.value()?);
            }
            Ok(())
        })?;
        touched.check(messages)?;
        Ok(cost)
    }
}
