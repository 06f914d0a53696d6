//! Subscriber: a reader with a persistent checkpoint.

use std::ops::{Deref, DerefMut};

use crate::checkpoint::{Checkpoint, LockedCheckpoint};
use crate::error::{Error, Result};
use crate::level::Level;
use crate::reader::JournalReader;

/// Reader with a persistent checkpoint. No other process can move the checkpoint while this exists.
#[derive(Debug)]
pub struct Subscriber {
    reader: JournalReader,
    checkpoint: LockedCheckpoint,
}

impl Subscriber {
    pub(crate) fn new(reader: JournalReader, checkpoint: LockedCheckpoint) -> Subscriber {
        Subscriber { reader, checkpoint }
    }

    /// Its checkpoint.
    pub fn checkpoint(&self) -> Checkpoint {
        self.checkpoint.get()
    }

    /// Commits that everything below a position is processed: after a restart, reading continues
    /// there. With level `disk` the commit is durable on return; with less, a power loss may repeat
    /// some records.
    pub fn commit(&mut self, position: u64, level: Level) -> Result<()> {
        let read_to = self.reader.position();
        if position > read_to {
            return Err(Error::CommitBeyondRead { found: position, read_to });
        }
        let inner = self.reader.inner();
        self.checkpoint.set(position, inner.mapped.now(), level == Level::Disk)?;
        inner.release_up_to(position);
        Ok(())
    }
}

impl Deref for Subscriber {
    type Target = JournalReader;

    fn deref(&self) -> &JournalReader {
        &self.reader
    }
}

impl DerefMut for Subscriber {
    fn deref_mut(&mut self) -> &mut JournalReader {
        &mut self.reader
    }
}
