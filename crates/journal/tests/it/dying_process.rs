//! A process on a simulated disk stops at the operation during which it is killed or loses power:
//! [`ProcessDeath`] unwinds, and only destructors run after it. Tests of the store use this file
//! too.

use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use disk::{Disk, File, OpenMode, Region};
use sim::{SimDisk, SimProcess};

/// Panic payload of a process death.
pub(crate) struct ProcessDeath;

/// A process whose death unwinds its thread.
#[derive(Clone, Debug)]
pub(crate) struct DyingDisk {
    pub(crate) process: SimProcess,
    disk: SimDisk,
    /// Clean-up is running: errors do not unwind.
    pub(crate) is_cleanup: Arc<AtomicBool>,
}

impl DyingDisk {
    pub(crate) fn new(disk: &SimDisk) -> DyingDisk {
        DyingDisk { process: disk.process(), disk: disk.clone(), is_cleanup: Arc::default() }
    }

    fn check_death<T>(&self, result: io::Result<T>) -> io::Result<T> {
        let dead = || self.process.is_dead() || self.disk.is_without_power();
        if result.is_err() && !self.is_cleanup.load(SeqCst) && dead() && !std::thread::panicking() {
            resume_unwind(Box::new(ProcessDeath));
        }
        result
    }
}

impl Disk for DyingDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.check_death(self.process.create_dir(path))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let file = self.check_death(self.process.open(path, mode))?;
        Ok(Box::new(DyingFile { file, disk: self.clone() }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.check_death(self.process.list(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_death(self.process.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_death(self.process.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check_death(self.process.remove(path))
    }

    fn boot_id(&self) -> Option<u128> {
        self.process.boot_id()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check_death(self.process.sync_dir(dir))
    }
}

#[derive(Debug)]
struct DyingFile {
    file: Box<dyn File>,
    disk: DyingDisk,
}

impl File for DyingFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.check_death(self.file.read_at(bytes, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.disk.check_death(self.file.write_at(bytes, offset))
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.check_death(self.file.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.check_death(self.file.set_len(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.disk.check_death(self.file.allocate(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.check_death(self.file.sync())
    }

    fn lock(&self) -> io::Result<()> {
        self.disk.check_death(self.file.lock())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.check_death(self.file.try_lock())
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.disk.check_death(self.file.try_lock_shared())
    }

    fn unlock(&self) -> io::Result<()> {
        self.disk.check_death(self.file.unlock())
    }

    fn map(&self, len: u64) -> io::Result<Region> {
        self.disk.check_death(self.file.map(len))
    }
}
