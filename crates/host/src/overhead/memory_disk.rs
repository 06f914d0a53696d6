//! Disk in memory: each file is an anonymous kernel file (`memfd_create`), so locks and mappings
//! are the kernel's. Directories are only prefixes of names. The files disappear when the program
//! exits.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::{Disk, File, OpenMode, OsDisk};
use rustix::fs::{MemfdFlags, memfd_create};

/// Files in memory by path. A link is a second path of the same file.
#[derive(Debug, Default)]
pub(crate) struct MemoryDisk {
    files: Mutex<BTreeMap<PathBuf, Arc<OwnedFd>>>,
}

impl MemoryDisk {
    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<OwnedFd>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let mut files = self.files();
        let file = match (files.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => Arc::clone(file),
            (None, OpenMode::Read | OpenMode::Write) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                let file = Arc::new(memfd_create("topdeck", MemfdFlags::CLOEXEC)?);
                files.insert(path.to_owned(), Arc::clone(&file));
                file
            }
        };
        // Reopened, because a lock belongs to the open file description.
        let mode = if mode == OpenMode::Read { OpenMode::Read } else { OpenMode::Write };
        OsDisk.open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = self.files();
        let inside = files.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files();
        if files.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::clone(files.get(from).ok_or(io::ErrorKind::NotFound)?);
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files().remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn boot_id(&self) -> Option<u128> {
        OsDisk.boot_id()
    }
}

#[cfg(test)]
mod tests {
    use journal::{Journal, Level, ReadItem, StartPosition};

    use super::*;

    #[test]
    fn files_have_names_locks_and_contents() {
        let disk = MemoryDisk::default();
        let [a, b] = ["/directory/a", "/directory/b"].map(Path::new);
        let missing = disk.open(a, OpenMode::Write).err().map(|error| error.kind());
        assert_eq!(missing, Some(io::ErrorKind::NotFound));
        let file = disk.open(a, OpenMode::CreateNew).unwrap();
        let exists = disk.open(a, OpenMode::CreateNew).err().map(|error| error.kind());
        assert_eq!(exists, Some(io::ErrorKind::AlreadyExists));
        file.write_all_at(b"abc", 0).unwrap();
        file.lock().unwrap();
        let again = disk.open(a, OpenMode::Read).unwrap();
        assert!(!again.try_lock_shared().unwrap());
        drop(file);
        assert!(again.try_lock_shared().unwrap());
        disk.rename(a, b).unwrap();
        assert_eq!(disk.list(Path::new("/directory")).unwrap(), ["b"]);
        let mut bytes = [0; 4];
        let file = disk.open(b, OpenMode::Read).unwrap();
        assert_eq!(file.read_full_at(&mut bytes, 0).unwrap(), 3);
        assert_eq!(&bytes[..3], b"abc");
        disk.remove(b).unwrap();
        assert!(disk.list(Path::new("/directory")).unwrap().is_empty());
    }

    #[test]
    fn a_journal_runs_on_it() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let dir = Path::new("/journal");
        let settings = journal::Settings::default();
        Journal::create(&*disk, dir, journal::random_id(), 0, &settings).unwrap();
        let options = journal::Options::default();
        let journal = Journal::open(Arc::clone(&disk), dir, &options).unwrap();
        let _ack = journal.append(b"kept in memory", Level::Disk).unwrap();
        drop(journal);
        let journal = Journal::open(disk, dir, &options).unwrap();
        let mut reader = journal.reader(StartPosition::First).unwrap();
        let Ok(Some(ReadItem::Batch(batch))) = reader.next() else { panic!("no record") };
        assert_eq!(
            batch.records().map(|record| record.bytes).collect::<Vec<_>>(),
            [b"kept in memory"]
        );
    }
}
