//! Subscriber: a reader with a persistent checkpoint.

use std::ops::{Deref, DerefMut};

use crate::checkpoint::{Checkpoint, LockedCheckpoint};
use crate::error::{Error, Result};
use crate::level::Level;
use crate::reader::JournalReader;

/// Reader with a persistent checkpoint. Nobody else can move it while this exists.
#[derive(Debug)]
pub struct Subscriber {
    reader: JournalReader,
    checkpoint: LockedCheckpoint,
}

impl Subscriber {
    pub(crate) fn new(reader: JournalReader, held: LockedCheckpoint) -> Subscriber {
        Subscriber { reader, checkpoint: held }
    }

    /// Its checkpoint.
    pub fn checkpoint(&self) -> Checkpoint {
        self.checkpoint.get()
    }

    /// Says that everything below a position is dealt with: after a restart, reading goes on there.
    /// With level `disk` that is durable on return; with less, a power cut may bring some records
    /// again.
    pub fn commit(&mut self, position: u64, level: Level) -> Result<()> {
        let read_to = self.reader.position();
        if position > read_to {
            return Err(Error::CommitBeyondRead { found: position, read_to });
        }
        let inner = self.reader.inner();
        self.checkpoint.set(position, inner.shared.now(), level == Level::Disk)?;
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
