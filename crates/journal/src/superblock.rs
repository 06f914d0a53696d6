//! Superblock: double-buffered small file with generation and checksum. The newest intact copy is
//! valid, so a torn write or a bad sector leaves the previous one.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::path::{Path, PathBuf};

use disk::{Disk, File, IoContext, OpenMode};

use crate::error::{Error, Result};
use crate::layout::{
    FieldTable, SUPERBLOCK, SUPERBLOCK_BYTES, SUPERBLOCK_MIRROR_OFFSET, VERSION, checksum, field,
};

/// Payload of a copy.
pub(crate) const PAYLOAD_BYTES: usize = SUPERBLOCK[4].2;
type Payload = [u8; PAYLOAD_BYTES];

/// Double-buffered file: two copies with generation and checksum.
pub(crate) struct Superblock {
    path: PathBuf,
    file: Box<dyn File>,
    magic: [u8; 8],
    generation: u64,
    payload: Payload,
    /// A copy was corrupt or missing when the file was read.
    is_degraded: bool,
}

impl Superblock {
    /// Creates the file, durable under its name, replacing an existing one.
    #[expect(clippy::expect_used, reason = "a file of the journal lies in its directory")]
    pub(crate) fn create(
        disk: &dyn Disk,
        path: &Path,
        magic: [u8; 8],
        payload: &Payload,
    ) -> Result<Superblock> {
        let fresh = path.with_added_extension("new");
        let file = disk.open(&fresh, OpenMode::Create).io_context("create", &fresh)?;
        file.set_len(0).io_context("truncate", &fresh)?;
        let mut superblock = Superblock {
            path: path.to_owned(),
            file,
            magic,
            generation: 0,
            payload: *payload,
            is_degraded: false,
        };
        superblock.write(payload)?;
        superblock.write(payload)?;
        superblock.sync()?;
        disk.rename(&fresh, path).io_context("rename", path)?;
        let dir = path.parent().expect("BUG: a file of the journal without its directory");
        disk.sync_dir(dir).io_context("fsync directory", dir)?;
        Ok(superblock)
    }

    /// Opens the file; `None` if both copies are corrupt.
    pub(crate) fn open(disk: &dyn Disk, path: &Path, magic: [u8; 8]) -> Result<Option<Superblock>> {
        let file = disk.open(path, OpenMode::Write).io_context("open", path)?;
        Ok(read(&*file, path, magic)?.map(|(generation, payload, is_degraded)| Superblock {
            path: path.to_owned(),
            file,
            magic,
            generation,
            payload,
            is_degraded,
        }))
    }

    /// Reads the file only: the payload and whether a copy is corrupt; `None` if both copies are
    /// corrupt.
    pub(crate) fn read_only(
        disk: &dyn Disk,
        path: &Path,
        magic: [u8; 8],
    ) -> Result<Option<(Payload, bool)>> {
        let file = disk.open(path, OpenMode::Read).io_context("open", path)?;
        Ok(read(&*file, path, magic)?.map(|(_, payload, is_degraded)| (payload, is_degraded)))
    }

    pub(crate) fn payload(&self) -> &Payload {
        &self.payload
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Rereads the file, which another process may have written.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        match read(&*self.file, &self.path, self.magic)? {
            Some((generation, payload, is_degraded)) => {
                (self.generation, self.payload, self.is_degraded) =
                    (generation, payload, is_degraded);
                Ok(())
            }
            None => Err(Error::CheckpointCorrupt { path: self.path.clone() }),
        }
    }

    /// Overwrites the older copy. A corrupt copy counts as the older.
    pub(crate) fn write(&mut self, payload: &Payload) -> Result<()> {
        let generation = self.generation.wrapping_add(1);
        let mut copy = [0; SUPERBLOCK_BYTES];
        let mut fields = FieldTable::into(&SUPERBLOCK, &mut copy);
        fields.put("magic", &self.magic);
        fields.put("version", &VERSION.to_le_bytes());
        fields.put("generation", &generation.to_le_bytes());
        fields.put("payload", payload);
        let crc = checksum(&copy);
        copy[field(&SUPERBLOCK, "crc")].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&copy, slot_offset(generation)).io_context("write", &self.path)?;
        (self.generation, self.payload) = (generation, *payload);
        Ok(())
    }

    /// Fsyncs the file.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.file.sync().io_context("fsync", &self.path)?)
    }
}

impl fmt::Debug for Superblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Twice")
            .field("path", &self.path)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

fn slot_offset(generation: u64) -> u64 {
    if generation.is_multiple_of(2) { 0 } else { SUPERBLOCK_MIRROR_OFFSET }
}

/// Generation and payload of the newest intact copy, and whether the other is corrupt.
fn read(file: &dyn File, path: &Path, magic: [u8; 8]) -> Result<Option<(u64, Payload, bool)>> {
    let mut before = None;
    loop {
        let mut copies = [[0; SUPERBLOCK_BYTES]; 2];
        for (parity, copy) in (0..).zip(&mut copies) {
            file.read_full_at(copy, slot_offset(parity)).io_context("read", path)?;
        }
        let found = newest(&copies, path, magic)?;
        // Another process may be writing at this time. Real corruption does not change between
        // reads.
        if found.is_some_and(|(.., is_degraded)| !is_degraded) || before == Some(copies) {
            return Ok(found);
        }
        before = Some(copies);
    }
}

/// The two copies; missing bytes are zeros.
#[expect(clippy::expect_used, reason = "the layout says how long a payload is")]
fn newest(
    copies: &[[u8; SUPERBLOCK_BYTES]; 2],
    path: &Path,
    magic: [u8; 8],
) -> Result<Option<(u64, Payload, bool)>> {
    let mut best: Option<(u64, Payload)> = None;
    let mut valid_copies = 0u32;
    for (parity, copy) in (0..).zip(copies) {
        let fields = FieldTable::read_only(&SUPERBLOCK, copy);
        let generation = fields.u64("generation");
        let is_valid = fields.bytes("magic") == magic
            && fields.u32("crc") == checksum(copy)
            && generation % 2 == parity;
        if !is_valid {
            continue;
        }
        if fields.u32("version") > VERSION {
            return Err(Error::Version {
                path: path.to_owned(),
                found: fields.u32("version"),
                supported: VERSION,
            });
        }
        valid_copies = valid_copies.saturating_add(1);
        if best.is_none_or(|(newest, _)| generation > newest) {
            best = Some((
                generation,
                fields.bytes("payload").try_into().expect("BUG: the payload's size"),
            ));
        }
    }
    Ok(best.map(|(generation, payload)| (generation, payload, valid_copies < 2)))
}
