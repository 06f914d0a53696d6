//! SQLite in WAL mode, used as a journal: one table, the row number is the message's.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use rusqlite::Connection;

use super::cost::Cost;
use super::durable::{Acknowledged, run_producers};
use super::messages::{Messages, SIZE};
use super::read::Touched;
use super::{Acknowledge, Append, Label, Read};

/// The checksums are those of the WAL; pages of the database have none.
const PROMISES: &str = "checksum (WAL), visible, kill";
const PROMISES_FULL: &str = "checksum (WAL), visible, kill, power";
const BATCH: usize = 1000;
const INSERT: &str = "INSERT INTO messages (message) VALUES (?1)";

pub(crate) fn appending() -> Vec<Box<dyn Append>> {
    vec![Box::new(Appender { batch: BATCH }), Box::new(Appender { batch: 1 })]
}

fn open(folder: &Path, synchronous: &str) -> Result<Connection> {
    let connection = Connection::open(folder.join("messages.db"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS messages (number INTEGER PRIMARY KEY, message BLOB NOT NULL)",
    )?;
    Ok(connection)
}

fn append(connection: &mut Connection, batch: usize, messages: &[u8]) -> Result<()> {
    if batch == 1 {
        let mut insert = connection.prepare_cached(INSERT)?;
        for message in messages.chunks_exact(SIZE) {
            insert.execute([message])?;
        }
        return Ok(());
    }
    for messages in messages.chunks(batch * SIZE) {
        let transaction = connection.transaction()?;
        let mut insert = transaction.prepare_cached(INSERT)?;
        for message in messages.chunks_exact(SIZE) {
            insert.execute([message])?;
        }
        drop(insert);
        transaction.commit()?;
    }
    Ok(())
}

struct Appender {
    batch: usize,
}

impl Append for Appender {
    fn label(&self) -> Label {
        let batch = if self.batch == 1 { String::new() } else { format!(", {} each", self.batch) };
        Label::new(format!("SQLite, WAL NORMAL{batch}"), PROMISES)
    }

    fn messages(&self) -> usize {
        if self.batch == 1 { 100_000 } else { super::MILLION }
    }

    fn append(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let mut connection = open(folder, "NORMAL")?;
        Cost::of(folder, messages.len() / SIZE, || append(&mut connection, self.batch, messages))
    }
}

pub(crate) struct Durable;

impl Acknowledge for Durable {
    fn label(&self) -> Label {
        Label::new("SQLite, WAL FULL", PROMISES_FULL)
    }

    fn acknowledge(
        &self,
        folder: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<Acknowledged> {
        let connection = Mutex::new(open(folder, "FULL")?);
        run_producers(folder, producers, time, messages, |_| {
            let connection = &connection;
            Ok(Box::new(move |message| {
                let connection = connection.lock().expect("no panic");
                connection.prepare_cached(INSERT)?.execute([message])?;
                Ok(())
            }))
        })
    }
}

pub(crate) struct Reader;

impl Read for Reader {
    fn label(&self) -> Label {
        Label::new("SQLite", "visible")
    }

    fn prepare(&self, folder: &Path, messages: &[u8]) -> Result<()> {
        append(&mut open(folder, "NORMAL")?, BATCH, messages)
    }

    fn read(&self, folder: &Path, messages: &[u8]) -> Result<Cost> {
        let connection = open(folder, "NORMAL")?;
        let mut touched = Touched::default();
        let cost = Cost::of(folder, messages.len() / SIZE, || {
            let mut select = connection.prepare("SELECT message FROM messages ORDER BY number")?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                touched.take(row.get_ref(0)?.as_blob()?);
            }
            Ok(())
        })?;
        touched.check(messages)?;
        Ok(cost)
    }
}
