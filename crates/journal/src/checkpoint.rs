//! Checkpoints: named persistent positions. That of a subscriber is committed by its reader; a
//! plain checkpoint is moved only by commands.

use disk::{Disk, FileError, IoContext, OpenMode};

use crate::error::{Error, Result};
use crate::layout::{CHECKPOINT, CHECKPOINT_MAGIC, FieldTable};
use crate::paths::{self, Paths};
use crate::superblock::{PAYLOAD_BYTES, Superblock};

/// Kind of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    /// Committed by the reader of a subscriber.
    Subscriber,
    /// Without a reader: moved only by commands.
    Plain,
}

/// Named position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name.
    pub name: String,
    /// Next record to read.
    pub position: u64,
    /// Time of the last commit, in nanoseconds since the Unix epoch.
    pub committed_at: i64,
    /// Kind.
    pub kind: CheckpointKind,
    /// Whether a journal with policy `reject` rejects appends at its limit rather than drop records
    /// after this position. Otherwise the reader gets a gap.
    pub pins_records: bool,
    /// One of its two copies is corrupt; the other is shown.
    pub is_degraded: bool,
}

impl Checkpoint {
    fn payload(&self) -> [u8; PAYLOAD_BYTES] {
        let mut payload = [0; PAYLOAD_BYTES];
        let mut fields = FieldTable::into(&CHECKPOINT, &mut payload[..]);
        fields.put("position", &self.position.to_le_bytes());
        fields.put("committed_at", &self.committed_at.to_le_bytes());
        fields.put(
            "kind",
            &[match self.kind {
                CheckpointKind::Subscriber => 0,
                CheckpointKind::Plain => 1,
            }],
        );
        fields.put("pins_records", &[u8::from(self.pins_records)]);
        payload
    }

    fn from_payload(name: &str, payload: &[u8; PAYLOAD_BYTES], damaged: bool) -> Checkpoint {
        let fields = FieldTable::read_only(&CHECKPOINT, payload);
        Checkpoint {
            name: name.to_owned(),
            position: fields.u64("position"),
            committed_at: fields.i64("committed_at"),
            kind: if fields.u8("kind") == 0 {
                CheckpointKind::Subscriber
            } else {
                CheckpointKind::Plain
            },
            pins_records: fields.u8("pins_records") != 0,
            is_degraded: damaged,
        }
    }
}

/// All checkpoints by name, and the names of those with two corrupt copies.
pub(crate) fn list(disk: &dyn Disk, paths: &Paths) -> Result<(Vec<Checkpoint>, Vec<String>)> {
    let dir = paths.checkpoints();
    let mut names: Vec<String> = disk
        .list(&dir)
        .io_context("list", &dir)?
        .iter()
        .filter_map(|file| paths::decode(file))
        .collect();
    names.sort_unstable();
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    for name in names {
        match read(disk, paths, &name) {
            Ok(checkpoint) => found.push(checkpoint),
            Err(Error::CheckpointCorrupt { .. }) => damaged.push(name),
            // Removed since it was listed.
            Err(Error::NoCheckpoint { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((found, damaged))
}

/// All checkpoints. Those that pin their records block deletion; an unreadable one may be anywhere
/// and blocks all deletion.
pub(crate) struct CheckpointSet {
    pub(crate) checkpoints: Vec<Checkpoint>,
    damaged: Vec<String>,
}

impl CheckpointSet {
    pub(crate) fn read(disk: &dyn Disk, paths: &Paths) -> Result<CheckpointSet> {
        let (checkpoints, damaged) = list(disk, paths)?;
        Ok(CheckpointSet { checkpoints, damaged })
    }

    /// All checkpoints are at or after this position.
    pub(crate) fn oldest_position(&self) -> Option<u64> {
        let unknown = self.damaged.iter().map(|_| 0);
        self.checkpoints.iter().map(|c| c.position).chain(unknown).min()
    }

    /// The checkpoint with pinned records that is furthest behind, with its position.
    pub(crate) fn oldest_pinned(&self) -> Option<(u64, &str)> {
        let unknown = self.damaged.iter().map(|name| (0, name.as_str()));
        let pinning = self.checkpoints.iter().filter(|c| c.pins_records);
        pinning.map(|c| (c.position, c.name.as_str())).chain(unknown).min()
    }
}

/// Reads a checkpoint.
pub(crate) fn read(disk: &dyn Disk, paths: &Paths, name: &str) -> Result<Checkpoint> {
    let path = paths.checkpoint(name)?;
    match Superblock::read_only(disk, &path, CHECKPOINT_MAGIC) {
        Ok(Some((payload, is_degraded))) => {
            Ok(Checkpoint::from_payload(name, &payload, is_degraded))
        }
        Ok(None) => Err(Error::CheckpointCorrupt { path }),
        Err(error) => Err(not_found(error, name)),
    }
}

/// Creates a checkpoint, durably.
pub(crate) fn create(disk: &dyn Disk, paths: &Paths, checkpoint: &Checkpoint) -> Result<()> {
    let path = paths.checkpoint(&checkpoint.name)?;
    Superblock::create(disk, &path, CHECKPOINT_MAGIC, &checkpoint.payload()).map(drop)
}

/// Renames a checkpoint, durably.
pub(crate) fn rename(disk: &dyn Disk, paths: &Paths, name: &str, new_name: &str) -> Result<()> {
    let (from, to) = (paths.checkpoint(name)?, paths.checkpoint(new_name)?);
    disk.rename(&from, &to).io_context("rename", &from)?;
    let dir = paths.checkpoints();
    Ok(disk.sync_dir(&dir).io_context("fsync directory", &dir)?)
}

/// Removes a checkpoint, durably.
pub(crate) fn remove(disk: &dyn Disk, paths: &Paths, name: &str) -> Result<()> {
    let path = paths.checkpoint(name)?;
    disk.remove(&path)
        .io_context("remove", &path)
        .map_err(|error| not_found(error.into(), name))?;
    let dir = paths.checkpoints();
    Ok(disk.sync_dir(&dir).io_context("fsync directory", &dir)?)
}

/// Fsyncs a checkpoint as it is; not an error if it was removed.
pub(crate) fn sync(disk: &dyn Disk, paths: &Paths, name: &str) -> Result<()> {
    let path = paths.checkpoint(name)?;
    match disk.open(&path, OpenMode::Write) {
        Ok(file) => Ok(file.sync().io_context("fsync", &path)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FileError::new("open", &path, error).into()),
    }
}

fn not_found(error: Error, name: &str) -> Error {
    match error {
        Error::Io(error) if error.is_not_found() => Error::NoCheckpoint { name: name.to_owned() },
        other => other,
    }
}

/// Checkpoint locked for moving.
#[derive(Debug)]
pub(crate) struct LockedCheckpoint {
    name: String,
    file: Superblock,
}

impl LockedCheckpoint {
    /// Opens and locks a checkpoint.
    pub(crate) fn open(disk: &dyn Disk, paths: &Paths, name: &str) -> Result<LockedCheckpoint> {
        let path = paths.checkpoint(name)?;
        let file = match Superblock::open(disk, &path, CHECKPOINT_MAGIC) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(Error::CheckpointCorrupt { path }),
            Err(error) => return Err(not_found(error, name)),
        };
        if !file.file().try_lock().io_context("lock", &path)? {
            return Err(Error::CheckpointLocked { name: name.to_owned() });
        }
        // Its creator may have died before the name was durable.
        let dir = paths.checkpoints();
        disk.sync_dir(&dir).io_context("fsync directory", &dir)?;
        let mut locked = LockedCheckpoint { name: name.to_owned(), file };
        // It may have been moved between the read and the lock.
        locked.file.refresh()?;
        Ok(locked)
    }

    pub(crate) fn get(&self) -> Checkpoint {
        Checkpoint::from_payload(&self.name, self.file.payload(), false)
    }

    /// Sets the position; durably, or only visible to other processes.
    pub(crate) fn set(&mut self, position: u64, committed_at: i64, durably: bool) -> Result<()> {
        let checkpoint = Checkpoint { position, committed_at, ..self.get() };
        self.file.write(&checkpoint.payload())?;
        if durably { self.file.sync() } else { Ok(()) }
    }
}
