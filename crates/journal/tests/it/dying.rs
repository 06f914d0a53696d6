//! A process on a simulated disk that is killed or loses its power in the middle of an operation stops there:
//! [`Died`] unwinds, and nothing of what it was doing runs after it but destructors. The store's tests use it too.

use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use disk::{Disk, File, Mode, Region, SimDisk, SimProcess};

/// What unwinds when a process dies.
pub(crate) struct Died;

/// A process whose death ends what it was doing.
#[derive(Clone, Debug)]
pub(crate) struct Dying {
    pub(crate) process: SimProcess,
    disk: SimDisk,
    /// It is being cleared away: errors are errors.
    pub(crate) quiet: Arc<AtomicBool>,
}

impl Dying {
    pub(crate) fn new(disk: &SimDisk) -> Dying {
        Dying { process: disk.process(), disk: disk.clone(), quiet: Arc::default() }
    }

    fn done<T>(&self, result: io::Result<T>) -> io::Result<T> {
        let dead = || self.process.is_dead() || self.disk.is_without_power();
        if result.is_err() && !self.quiet.load(SeqCst) && dead() && !std::thread::panicking() {
            resume_unwind(Box::new(Died));
        }
        result
    }
}

impl Disk for Dying {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.done(self.process.create_dir(path))
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn File>> {
        let file = self.done(self.process.open(path, mode))?;
        Ok(Box::new(DyingFile { file, dying: self.clone() }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.done(self.process.list(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.done(self.process.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.done(self.process.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.done(self.process.remove(path))
    }

    fn boot_id(&self) -> Option<u128> {
        self.process.boot_id()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.done(self.process.sync_dir(dir))
    }
}

#[derive(Debug)]
struct DyingFile {
    file: Box<dyn File>,
    dying: Dying,
}

impl File for DyingFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.dying.done(self.file.read_at(bytes, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.dying.done(self.file.write_at(bytes, offset))
    }

    fn len(&self) -> io::Result<u64> {
        self.dying.done(self.file.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.dying.done(self.file.set_len(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.dying.done(self.file.allocate(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.dying.done(self.file.sync())
    }

    fn lock(&self) -> io::Result<()> {
        self.dying.done(self.file.lock())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.dying.done(self.file.try_lock())
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.dying.done(self.file.try_lock_shared())
    }

    fn unlock(&self) -> io::Result<()> {
        self.dying.done(self.file.unlock())
    }

    fn map(&self, len: u64) -> io::Result<Region> {
        self.dying.done(self.file.map(len))
    }
}
