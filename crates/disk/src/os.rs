//! Real file system. Locks are `flock`, which belongs to the open file description and which the
//! kernel releases when a process ends; memory is shared by `mmap`. For local file systems: network
//! file systems guarantee neither.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use crate::{Disk, File, OpenMode, Region};

#[cfg(not(target_endian = "little"))]
compile_error!("shared memory and files of topdeck are little endian");

/// Real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let file = match mode {
            OpenMode::Read => fs::File::open(path),
            OpenMode::Write => fs::File::options().read(true).write(true).open(path),
            OpenMode::Create => {
                fs::File::options().read(true).write(true).create(true).truncate(false).open(path)
            }
            OpenMode::CreateNew => {
                fs::File::options().read(true).write(true).create_new(true).open(path)
            }
        }?;
        Ok(Box::new(OsFile(file)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir_or_current(dir))? {
            let entry = entry?;
            match entry.file_type() {
                // topdeck creates no names that are not UTF-8.
                Ok(kind) if kind.is_file() => names.extend(entry.file_name().into_string()),
                Ok(_) => {}
                // Removed in the meantime: some file systems need another call for the file type.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn boot_id(&self) -> Option<u128> {
        // Linux, Documentation/admin-guide/sysctl/kernel.rst: a UUID made at each boot.
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir_or_current(dir))?.sync_all()
    }
}

/// `Path::parent` of a bare name is empty: the current directory.
fn dir_or_current(dir: &Path) -> &Path {
    match dir.as_os_str().is_empty() {
        true => Path::new("."),
        false => dir,
    }
}

#[derive(Debug)]
struct OsFile(fs::File);

impl Drop for OsFile {
    /// Closing is not enough: mappings of the file keep the lock's owner open, and so does,
    /// briefly, a child process that another thread is starting.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl File for OsFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        match retry_on_intr(|| fallocate(&self.0, FallocateFlags::empty(), 0, len)) {
            Ok(()) => Ok(()),
            // Not supported by this file system or kernel.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => match self.len()? < len {
                true => self.set_len(len),
                false => Ok(()),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn lock(&self) -> io::Result<()> {
        loop {
            match self.0.lock() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn try_lock(&self) -> io::Result<bool> {
        lock_result(self.0.try_lock())
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        lock_result(self.0.try_lock_shared())
    }

    fn unlock(&self) -> io::Result<()> {
        self.0.unlock()
    }

    fn map(&self, len: u64) -> io::Result<Region> {
        Region::map(&self.0, len)
    }
}

fn lock_result(tried: Result<(), fs::TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}
