//! Local backend: parts as files of a folder.
//!
//! ```text
//! DIR/manifest, DIR/manifest.copy   the manifest, twice; the one of the higher generation counts
//! DIR/series                        forms of series and what became of them, appended: `series.rs`
//! DIR/parts/NUMBER.part             parts; the name is the number in 16 hexadecimal digits
//! DIR/lock                          empty: its lock says that the store is open
//! DIR/journal/                      the journal that feeds the store
//! ```
//! Both copies of the manifest are written by renaming, one after the other; only then are parts removed that
//! it no longer names.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use disk::{Disk, File, OpenMode};

use model::SeriesId;

use crate::backend::{Backend, Part, PartWriter, SeriesRecord};
use crate::error::{Error, IoContext, Result};
use crate::part::{FilePart, FilePartWriter};
use crate::series_file::{self, SeriesWriter};
use crate::store::lock;

/// What is known of the file of series.
#[derive(Debug, Default)]
struct SeriesFileState {
    /// What is appended next to it.
    writer: SeriesWriter,
    /// Something was appended that a power cut may take back.
    is_unsynced: bool,
    /// Its name is durable.
    is_name_durable: bool,
    /// It was read: `writer` is right, and only appends change it.
    is_loaded: bool,
}

/// A store's folder.
pub(crate) struct LocalBackend {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Held for its lock.
    _lock: Box<dyn File>,
    series: Mutex<SeriesFileState>,
}

impl fmt::Debug for LocalBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl LocalBackend {
    /// Takes the folder, which is made if it is missing; refused while somebody else has it.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<LocalBackend> {
        let parts = dir.join("parts");
        disk.create_dir(&parts).io_context("create", &parts)?;
        // A folder that was missing needs a sync of the one above it, also when it was made by somebody who was
        // killed before that. What one may not read, one cannot have made folders in.
        for above in parts.ancestors().skip(1) {
            // A relative path of one name has the empty path above it.
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match disk.sync_dir(above) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                synced => synced.io_context("synchronise", above)?,
            }
        }
        let path = dir.join("lock");
        let lock = disk.open(&path, OpenMode::Create).io_context("open", &path)?;
        if !lock.try_lock().io_context("lock", &path)? {
            return Err(Error::InUse { dir: dir.to_owned() });
        }
        Ok(LocalBackend { disk, dir: dir.to_owned(), _lock: lock, series: Mutex::default() })
    }

    /// Whether there is a store in the folder.
    pub(crate) fn is_store(disk: &dyn Disk, dir: &Path) -> Result<bool> {
        for name in ["manifest", "manifest.copy"] {
            let path = dir.join(name);
            match disk.open(&path, OpenMode::Read) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                // Whoever took it for missing would make a new one over it.
                Err(error) => return Err(error).io_context("open", &path),
            }
        }
        Ok(false)
    }

    /// The name of a part in the folder of a store.
    pub(crate) fn part_name(number: u64) -> PathBuf {
        Path::new("parts").join(format!("{number:016x}.part"))
    }

    fn part_path(&self, number: u64) -> PathBuf {
        self.dir.join(LocalBackend::part_name(number))
    }

    fn manifest_path(&self, copy: bool) -> PathBuf {
        self.dir.join(if copy { "manifest.copy" } else { "manifest" })
    }

    fn read_file(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let file = match self.disk.open(path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).io_context("open", path),
        };
        let len = file.len().io_context("measure", path)?;
        let mut bytes = zeroed_bytes(len).io_context("read", path)?;
        let have = file.read_full_at(&mut bytes, 0).io_context("read", path)?;
        bytes.truncate(have);
        Ok(Some(bytes))
    }

    fn series_path(&self) -> PathBuf {
        self.dir.join("series")
    }

    /// Appends to the file of series. What failed is written over by what is appended next.
    fn append(&self, durably: bool, put: impl FnOnce(&mut SeriesWriter)) -> Result<()> {
        let mut series = lock(&self.series);
        let mut writer = series.writer.clone();
        put(&mut writer);
        let (at, bytes) = writer.take_pending();
        if bytes.is_empty() && !(durably && series.is_unsynced) {
            return Ok(());
        }
        let path = self.series_path();
        let file = self.disk.open(&path, OpenMode::Create).io_context("open", &path)?;
        file.write_all_at(&bytes, at).io_context("write", &path)?;
        if durably {
            file.sync().io_context("synchronise", &path)?;
            if !series.is_name_durable {
                self.disk.sync_dir(&self.dir).io_context("synchronise", &self.dir)?;
            }
            series.is_name_durable = true;
        }
        (series.writer, series.is_unsynced) = (writer, !durably);
        Ok(())
    }
}

/// So many bytes, or an error: a damaged file system may say any length.
fn zeroed_bytes(len: u64) -> std::io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

impl Backend for LocalBackend {
    fn create(&self, number: u64) -> Result<Box<dyn PartWriter>> {
        let path = self.part_path(number);
        match self.disk.remove(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).io_context("remove", &path),
        }
        Ok(Box::new(FilePartWriter::new(Arc::clone(&self.disk), path, number)?))
    }

    fn open(&self, number: u64) -> Result<Arc<dyn Part>> {
        Ok(Arc::new(FilePart::open(&*self.disk, &self.part_path(number))?))
    }

    fn remove(&self, number: u64) -> Result<()> {
        let path = self.part_path(number);
        match self.disk.remove(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).io_context("remove", &path)
            }
            _ => Ok(()),
        }
    }

    fn parts(&self) -> Result<Vec<u64>> {
        let dir = self.dir.join("parts");
        let names = self.disk.list(&dir).io_context("list", &dir)?;
        let number = |name: &String| {
            let digits = name.strip_suffix(".part").filter(|digits| digits.len() == 16)?;
            u64::from_str_radix(digits, 16).ok()
        };
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn manifest(&self) -> Result<Option<(Vec<u8>, bool)>> {
        let copies = [
            self.read_file(&self.manifest_path(false))?,
            self.read_file(&self.manifest_path(true))?,
        ];
        let are_alike = copies[0] == copies[1];
        // One that a newer program wrote is not to be written over with an older copy.
        let is_other = |bytes: &&Vec<u8>| crate::manifest::other_version(bytes).is_some();
        if let Some(other) = copies.iter().flatten().find(is_other) {
            return Ok(Some((other.clone(), are_alike)));
        }
        let sound = copies
            .iter()
            .flatten()
            .filter_map(|bytes| crate::manifest::generation(bytes).map(|found| (found, bytes)));
        let best = sound.max_by_key(|&(generation, _)| generation).map(|(_, bytes)| bytes.clone());
        // Of none that is sound, the caller says what is wrong with it.
        let found = best.or_else(|| copies.into_iter().flatten().next());
        Ok(found.map(|bytes| (bytes, are_alike)))
    }

    fn set_manifest(&self, bytes: &[u8]) -> Result<()> {
        // Both are whole before the first takes its place: a full disk is met before anything has changed.
        let new = [false, true].map(|copy| {
            let path = self.manifest_path(copy);
            let mut name = path.clone().into_os_string();
            name.push(".new");
            (path, PathBuf::from(name))
        });
        for (_, new) in &new {
            let file = self.disk.open(new, OpenMode::Create).io_context("create", new)?;
            file.set_len(0).io_context("empty", new)?;
            file.write_all_at(bytes, 0).io_context("write", new)?;
            file.sync().io_context("synchronise", new)?;
        }
        for (path, new) in &new {
            let replaced = self.disk.rename(new, path).and_then(|()| self.disk.sync_dir(&self.dir));
            if let Err(error) = replaced {
                // Nobody knows which manifest the next start will find.
                let why = format!("{}: cannot replace it: {error}", path.display());
                return Err(Error::FailStop { reason: why });
            }
        }
        Ok(())
    }

    fn add_series(&self, series: &[(Option<u64>, Vec<u8>)], durably: bool) -> Result<()> {
        self.append(durably, |writer| {
            series.iter().for_each(|(producer, form)| writer.add(*producer, form));
        })
    }

    fn delete_series(&self, ids: &[SeriesId]) -> Result<()> {
        self.append(true, |writer| ids.iter().for_each(|id| writer.delete(id)))
    }

    fn series(&self, each: &mut dyn FnMut(SeriesRecord<'_>)) -> Result<u64> {
        let Some(bytes) = self.read_file(&self.series_path())? else { return Ok(0) };
        let (damaged, writer) = series_file::read(&bytes, each);
        let mut series = lock(&self.series);
        if !series.is_loaded {
            // The process before may have left it to the system.
            (series.is_unsynced, series.writer) = (writer.intact_end() > 0, writer);
            series.is_loaded = true;
        }
        Ok(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_memory_is_an_error() {
        let error = zeroed_bytes(u64::MAX).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        assert_eq!(zeroed_bytes(3).unwrap(), [0; 3]);
    }
}
