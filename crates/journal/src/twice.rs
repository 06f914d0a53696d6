//! Small files that are replaced often and must never be lost: two copies, written in turn, each with a
//! generation and a checksum. The newest copy that is whole counts, so a write that was cut short, or a
//! damaged sector, leaves the one before.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::path::{Path, PathBuf};

use disk::{Disk, File, Mode};

use crate::error::{Doing, Error, Result};
use crate::layout::{COPY, COPY_BYTES, COPY_SECOND, Fields, VERSION, checksum, field};

/// What a copy can carry.
pub(crate) const PAYLOAD_BYTES: usize = COPY[4].2;
type Payload = [u8; PAYLOAD_BYTES];

/// A file with two copies of a payload.
pub(crate) struct Twice {
    path: PathBuf,
    file: Box<dyn File>,
    magic: [u8; 8],
    generation: u64,
    payload: Payload,
    /// A copy was damaged or missing when the file was read.
    wounded: bool,
}

impl Twice {
    /// Makes the file, durable under its name. One that is there is replaced.
    #[expect(clippy::expect_used, reason = "a file of the journal lies in its folder")]
    pub(crate) fn create(
        disk: &dyn Disk,
        path: &Path,
        magic: [u8; 8],
        payload: &Payload,
    ) -> Result<Twice> {
        let fresh = path.with_added_extension("new");
        let file = disk.open(&fresh, Mode::Create).doing("create it", &fresh)?;
        file.set_len(0).doing("empty it", &fresh)?;
        let mut twice = Twice {
            path: path.to_owned(),
            file,
            magic,
            generation: 0,
            payload: *payload,
            wounded: false,
        };
        twice.write(payload)?;
        twice.write(payload)?;
        twice.sync()?;
        disk.rename(&fresh, path).doing("give it its name", path)?;
        let dir = path.parent().expect("BUG: a file of the journal without its folder");
        disk.sync_dir(dir).doing("make a new name in it durable", dir)?;
        Ok(twice)
    }

    /// Opens the file; `None` when both copies are damaged.
    pub(crate) fn open(disk: &dyn Disk, path: &Path, magic: [u8; 8]) -> Result<Option<Twice>> {
        let file = disk.open(path, Mode::Write).doing("open it", path)?;
        Ok(read(&*file, path, magic)?.map(|(generation, payload, wounded)| Twice {
            path: path.to_owned(),
            file,
            magic,
            generation,
            payload,
            wounded,
        }))
    }

    /// Only reads the file: the payload, and whether a copy is damaged, or `None` when both copies are damaged.
    pub(crate) fn peek(
        disk: &dyn Disk,
        path: &Path,
        magic: [u8; 8],
    ) -> Result<Option<(Payload, bool)>> {
        let file = disk.open(path, Mode::Read).doing("open it", path)?;
        Ok(read(&*file, path, magic)?.map(|(_, payload, wounded)| (payload, wounded)))
    }

    pub(crate) fn payload(&self) -> &Payload {
        &self.payload
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Reads again what another process may have written.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        match read(&*self.file, &self.path, self.magic)? {
            Some((generation, payload, wounded)) => {
                (self.generation, self.payload, self.wounded) = (generation, payload, wounded);
                Ok(())
            }
            None => Err(Error::Checkpoint { path: self.path.clone() }),
        }
    }

    /// Writes the older copy. A damaged one is the older.
    pub(crate) fn write(&mut self, payload: &Payload) -> Result<()> {
        let generation = self.generation.wrapping_add(1);
        let mut copy = [0; COPY_BYTES];
        let mut fields = Fields::into(&COPY, &mut copy);
        fields.put("magic", &self.magic);
        fields.put("version", &VERSION.to_le_bytes());
        fields.put("generation", &generation.to_le_bytes());
        fields.put("payload", payload);
        let crc = checksum(&copy);
        copy[field(&COPY, "crc")].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&copy, place(generation)).doing("write it", &self.path)?;
        (self.generation, self.payload) = (generation, *payload);
        Ok(())
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync().doing("make it durable", &self.path)
    }
}

impl fmt::Debug for Twice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Twice")
            .field("path", &self.path)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

fn place(generation: u64) -> u64 {
    if generation.is_multiple_of(2) { 0 } else { COPY_SECOND }
}

/// Generation and payload of the newest copy that is whole, and whether the other one is damaged.
fn read(file: &dyn File, path: &Path, magic: [u8; 8]) -> Result<Option<(u64, Payload, bool)>> {
    let mut before = None;
    loop {
        let mut copies = [[0; COPY_BYTES]; 2];
        for (parity, copy) in (0..).zip(&mut copies) {
            file.read_full_at(copy, place(parity)).doing("read it", path)?;
        }
        let found = newest(&copies, path, magic)?;
        // Another process may be writing just now. What is damaged stays as it is.
        if found.is_some_and(|(.., wounded)| !wounded) || before == Some(copies) {
            return Ok(found);
        }
        before = Some(copies);
    }
}

/// The same of two copies; what is missing of one is zeros.
#[expect(clippy::expect_used, reason = "the layout says how long a payload is")]
fn newest(
    copies: &[[u8; COPY_BYTES]; 2],
    path: &Path,
    magic: [u8; 8],
) -> Result<Option<(u64, Payload, bool)>> {
    let mut best: Option<(u64, Payload)> = None;
    let mut whole = 0u32;
    for (parity, copy) in (0..).zip(copies) {
        let fields = Fields::of(&COPY, copy);
        let generation = fields.u64("generation");
        let sound = fields.bytes("magic") == magic
            && fields.u32("crc") == checksum(copy)
            && generation % 2 == parity;
        if !sound {
            continue;
        }
        if fields.u32("version") > VERSION {
            return Err(Error::Version {
                path: path.to_owned(),
                found: fields.u32("version"),
                known: VERSION,
            });
        }
        whole = whole.saturating_add(1);
        if best.is_none_or(|(newest, _)| generation > newest) {
            best = Some((
                generation,
                fields.bytes("payload").try_into().expect("BUG: the payload's size"),
            ));
        }
    }
    Ok(best.map(|(generation, payload)| (generation, payload, whole < 2)))
}
