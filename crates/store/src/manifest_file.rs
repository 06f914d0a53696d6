//! Directory of a store: its lock, and its manifest in two copies.
//!
//! ```text
//! DIR/manifest, DIR/manifest.copy   the manifest, twice; the higher generation wins
//! DIR/lock                          empty; locked while the store is open
//! DIR/journal/                      the journal that feeds the store
//! ```
//!
//! Both copies are replaced by rename, one after the other; parts that the new manifest does not
//! name are removed after that.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, File, FileError, IoContext, OpenMode};

use crate::error::{Error, Result};

/// Manifest of a store whose lock is held.
pub(crate) struct ManifestFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Keeps the lock.
    _lock: Box<dyn File>,
}

impl fmt::Debug for ManifestFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManifestFile").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl ManifestFile {
    /// Locks the directory, creating it if it is missing; fails if another process holds the lock.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<ManifestFile> {
        let parts = dir.join("parts");
        disk.create_dir(&parts).io_context("create", &parts)?;
        // A new directory needs an fsync of its parent, also if a killed process created it. A
        // parent that this process cannot read is skipped: this process cannot have created
        // directories in it.
        for above in parts.ancestors().skip(1) {
            // The parent of a relative path of one name is the empty path.
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match disk.sync_dir(above) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                synced => synced.io_context("fsync", above)?,
            }
        }
        let path = dir.join("lock");
        let lock = disk.open(&path, OpenMode::Create).io_context("open", &path)?;
        if !lock.try_lock().io_context("lock", &path)? {
            return Err(Error::InUse { dir: dir.to_owned() });
        }
        Ok(ManifestFile { disk, dir: dir.to_owned(), _lock: lock })
    }

    /// Whether the directory holds a store.
    pub(crate) fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool> {
        for name in ["manifest", "manifest.copy"] {
            let path = dir.join(name);
            match disk.open(&path, OpenMode::Read) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                // An unreadable manifest must not be treated as missing: a new store would replace
                // it.
                Err(error) => return Err(FileError::new("open", &path, error).into()),
            }
        }
        Ok(false)
    }

    /// The manifest, and whether its copies are equal; `None` in a new store.
    pub(crate) fn read(&self) -> Result<Option<(Vec<u8>, bool)>> {
        let read = |copy| disk::read_file(&*self.disk, &self.path(copy), u64::MAX);
        let copies = [read(false)?, read(true)?];
        let are_alike = copies[0] == copies[1];
        // A manifest of a newer version is not replaced by an older copy.
        let is_other = |bytes: &&Vec<u8>| crate::manifest::other_version(bytes).is_some();
        if let Some(other) = copies.iter().flatten().find(is_other) {
            return Ok(Some((other.clone(), are_alike)));
        }
        let sound = copies
            .iter()
            .flatten()
            .filter_map(|bytes| crate::manifest::generation(bytes).map(|found| (found, bytes)));
        let best = sound.max_by_key(|&(generation, _)| generation).map(|(_, bytes)| bytes.clone());
        // If no copy is intact, the caller reports what is wrong.
        let found = best.or_else(|| copies.into_iter().flatten().next());
        Ok(found.map(|bytes| (bytes, are_alike)))
    }

    /// Replaces the manifest durably and atomically.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<()> {
        // Both copies are written before the first rename: a full disk fails before anything has
        // changed.
        let paths = [false, true].map(|copy| self.path(copy));
        let mut new = Vec::new();
        for path in &paths {
            new.push(disk::write_replacement(&*self.disk, path, bytes)?);
        }
        for (path, new) in paths.iter().zip(&new) {
            let replaced = self.disk.rename(new, path).and_then(|()| self.disk.sync_dir(&self.dir));
            if let Err(error) = replaced {
                // It is unknown which manifest the next start will read.
                let reason = format!("cannot replace {}: {error}", path.display());
                return Err(Error::FailStop { reason });
            }
        }
        Ok(())
    }

    fn path(&self, copy: bool) -> PathBuf {
        self.dir.join(if copy { "manifest.copy" } else { "manifest" })
    }
}
