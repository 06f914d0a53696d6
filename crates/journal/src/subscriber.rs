//! A reader with a name and a place that survives everything.

use std::ops::{Deref, DerefMut};

use crate::checkpoint::{Checkpoint, Held};
use crate::error::{Error, Result};
use crate::level::Level;
use crate::reader::Reader;

/// A reader whose checkpoint it moves. Nobody else can move it while this exists.
#[derive(Debug)]
pub struct Subscriber {
    reader: Reader,
    held: Held,
}

impl Subscriber {
    pub(crate) fn new(reader: Reader, held: Held) -> Subscriber {
        Subscriber { reader, held }
    }

    /// Its checkpoint.
    pub fn checkpoint(&self) -> Checkpoint {
        self.held.get()
    }

    /// Says that everything below a position is dealt with: after a restart, reading goes on there. With
    /// level `disk` that is durable on return; with less, a power cut may bring some records again.
    pub fn commit(&mut self, position: u64, level: Level) -> Result<()> {
        let read_to = self.reader.position();
        if position > read_to {
            return Err(Error::NotRead { found: position, read_to });
        }
        let inner = self.reader.inner();
        self.held.set(position, inner.store.now(), level == Level::Disk)?;
        inner.passed(position);
        Ok(())
    }
}

impl Deref for Subscriber {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl DerefMut for Subscriber {
    fn deref_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }
}
