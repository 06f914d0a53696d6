//! Process table writer.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, fallocate, fchmod, flock, fstatfs, open,
    openat, renameat, unlinkat,
};
use rustix::io::Errno;

use super::layout::{
    AFTER, BUFFER_HEAD_BYTES, GENERATION, MIDDLE, PROCESSES_MAX, ROW_BYTES, TableBufferHeader,
    TableHeader, put_row,
};
use super::{CollectionInfo, Error, ProcessRow, Result};
use crate::metrics_dir::TMPFS;

/// Name of the file in its directory.
pub const FILE_NAME: &str = "processes.tdp";
/// Lock file that ensures a single writer.
pub const LOCK_NAME: &str = "processes.lock";
/// Name of the file while it is created.
const NEW_NAME: &str = "processes.tdp.new";

/// Minimum capacity in rows.
const ROWS_MIN: usize = 512;
/// Rows per write.
const ROWS_AT_ONCE: usize = 256;
/// Sizes are multiples of a page.
const PAGE: usize = 4_096;

/// Publisher of the process table. Drop removes the file; after a kill the last table stays, with
/// its time.
#[derive(Debug)]
pub struct TableWriter {
    path: PathBuf,
    dir: OwnedFd,
    /// Lock, held while the writer exists.
    _lock: OwnedFd,
    file: Option<(File, TableHeader)>,
    generation: u64,
    /// The file is visible to readers.
    is_published: bool,
    rows: Vec<u8>,
}

impl TableWriter {
    /// Becomes the publisher of [`FILE_NAME`] in a directory, which must be on tmpfs. The first
    /// table creates the file.
    pub fn new(dir: &Path) -> Result<TableWriter> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |error: Errno| Error::Io { action, path, source: error.into() }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let at = open(dir, flags, Mode::empty()).map_err(failed("open", dir))?;
        let kind = fstatfs(&at).map_err(failed("stat the file system of", dir))?.f_type;
        if kind as i64 != TMPFS {
            return Err(Error::NotTmpfs { path: dir.to_owned() });
        }
        // Only the owner may open it: other users could lock it otherwise.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock_path = dir.join(LOCK_NAME);
        let lock = openat(&at, LOCK_NAME, flags, Mode::RUSR | Mode::WUSR);
        let lock = lock.map_err(failed("open", &lock_path))?;
        let path = dir.join(FILE_NAME);
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => Error::WriterExists { path: path.clone() },
            error => failed("lock", &lock_path)(error),
        })?;
        let (file, generation, is_published, rows) = (None, 0, false, Vec::new());
        Ok(TableWriter { path, dir: at, _lock: lock, file, generation, is_published, rows })
    }

    /// Path of the published file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Publishes a table; processes must be sorted by PID.
    pub fn publish(&mut self, collection: &CollectionInfo, processes: &[ProcessRow]) -> Result<()> {
        let too_many = || Error::TooMany { found: processes.len() };
        let count = u32::try_from(processes.len()).map_err(|_| too_many())?;
        if processes.len() > PROCESSES_MAX {
            return Err(too_many());
        }
        let need = (BUFFER_HEAD_BYTES + processes.len() * ROW_BYTES) as u64;
        let fits = |header: &TableHeader| {
            header.capacity >= need && header.ticks_per_second == collection.ticks_per_second
        };
        let (file, header) = match self.file.take().filter(|(_, header)| fits(header)) {
            Some(file) => file,
            None => {
                self.generation = 0;
                self.create(processes.len(), collection.ticks_per_second)?
            }
        };
        let generation = self.generation + 1;
        let head = TableBufferHeader::new(generation, collection, count);
        let written = store_table(&header, &head, processes, &mut self.rows, &mut |bytes, at| {
            file.write_all_at(bytes, at)
        });
        self.file = Some((file, header));
        written.map_err(|source| Error::Io { action: "write", path: self.path.clone(), source })?;
        if generation == 1 {
            // Renamed after the first table is complete.
            renameat(&self.dir, NEW_NAME, &self.dir, FILE_NAME)
                .map_err(|error| self.io_error("rename", NEW_NAME, error))?;
        }
        (self.generation, self.is_published) = (generation, true);
        Ok(())
    }

    /// Creates a file with capacity for that many processes and some more. All memory is reserved,
    /// so that later writes cannot fail for lack of space.
    fn create(&self, processes: usize, ticks_per_second: u32) -> Result<(File, TableHeader)> {
        let rows = (processes + processes / 4).clamp(ROWS_MIN, PROCESSES_MAX.max(processes));
        let capacity = (BUFFER_HEAD_BYTES + rows * ROW_BYTES).next_multiple_of(PAGE) as u64;
        let header = TableHeader { capacity, ticks_per_second };
        // Left by a killed process; this process holds the lock.
        let _ = unlinkat(&self.dir, NEW_NAME, AtFlags::empty());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.dir, NEW_NAME, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| self.io_error("create", NEW_NAME, error))?;
        let reserved = fallocate(&file, FallocateFlags::empty(), 0, header.file_bytes());
        let reserved =
            reserved.map_err(|error| self.io_error("reserve memory for", NEW_NAME, error));
        let file = File::from(file);
        reserved
            .and_then(|()| {
                // Independent of the umask: all users may read the table.
                fchmod(&file, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)
                    .map_err(|error| self.io_error("make readable for all", NEW_NAME, error))?;
                file.write_all_at(&header.encode(), 0).map_err(|source| {
                    let path = self.path.with_file_name(NEW_NAME);
                    Error::Io { action: "write", path, source }
                })
            })
            .inspect_err(|_| {
                let _ = unlinkat(&self.dir, NEW_NAME, AtFlags::empty());
            })?;
        Ok((file, header))
    }

    fn io_error(&self, action: &'static str, name: &str, error: Errno) -> Error {
        Error::Io { action, path: self.path.with_file_name(name), source: error.into() }
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.is_published {
            let _ = unlinkat(&self.dir, FILE_NAME, AtFlags::empty());
        }
    }
}

/// Stores a table in the order that readers rely on.
pub(super) fn store_table(
    header: &TableHeader,
    head: &TableBufferHeader,
    processes: &[ProcessRow],
    rows: &mut Vec<u8>,
    put: &mut dyn FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let generation = head.before.to_le_bytes();
    let base = header.buffer(head.before);
    put(&generation, base)?;
    rows.clear();
    rows.extend_from_slice(&head.encode()[MIDDLE as usize..]);
    let mut at = base + MIDDLE;
    let mut chunks = processes.chunks(ROWS_AT_ONCE);
    loop {
        chunks.next().unwrap_or_default().iter().for_each(|process| put_row(process, rows));
        put(rows, at)?;
        at += rows.len() as u64;
        rows.clear();
        if chunks.len() == 0 {
            break;
        }
    }
    put(&generation, base + AFTER)?;
    put(&generation, GENERATION)
}
