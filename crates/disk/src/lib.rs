//! File system interface of the durable stores: [`Disk`] and [`File`] are the few operations that
//! durability depends on, [`OsDisk`] is the real file system. Crate `sim` has an in-memory
//! implementation for tests that loses, reorders and fails operations.
//!
//! Offsets and lengths are bytes. All operations are thread-safe. The guarantees are those of
//! POSIX: written data are durable after [`File::sync`], a new, renamed or removed name after
//! [`Disk::sync_dir`] of its directory, and nothing else is.
#![deny(unsafe_code)]

mod file_error;
mod os;
mod region;
mod whole_file;

use std::fmt::Debug;
use std::io;
use std::path::Path;

pub use file_error::{FileError, IoContext};
pub use os::OsDisk;
pub use region::{FUTEX_BYTES, Region};
pub use whole_file::{read_file, replace_file, write_replacement};

/// Mode of [`Disk::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing file, read only.
    Read,
    /// Existing file, read and write.
    Write,
    /// Read and write; created if missing.
    Create,
    /// Read and write; an error if it exists.
    CreateNew,
}

/// File system interface, real or simulated.
pub trait Disk: Send + Sync + Debug {
    /// Creates a directory and its missing parents; succeeds if it exists. Each new directory is
    /// durable after [`Disk::sync_dir`] of its parent.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a file. Dropping it, or the death of its process, closes it and releases its lock;
    /// mapped regions remain.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>>;

    /// Names of the files (not directories) in a directory, unordered.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Renames a file within the same file system, replacing the target. Durable after
    /// [`Disk::sync_dir`] of the new name's directory, and of the old one's if that differs.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a hard link within the same file system; an error if the name exists. Durable after
    /// [`Disk::sync_dir`] of the new name's directory.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name; open handles stay valid.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes created, changed and removed names of a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Boot id, different after each boot: while it is unchanged, the page cache and mapped memory
    /// have lost nothing. `None` if the system does not provide one.
    fn boot_id(&self) -> Option<u128>;
}

/// An open file.
pub trait File: Send + Sync + Debug {
    /// Reads at most `bytes.len()` bytes; 0 at the end of the file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at least one and at most `bytes.len()` bytes (none if empty) into the page cache.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Truncates the file, or extends it with zeros that may have no blocks yet.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Extends the file to at least `len` bytes of zeros with reserved blocks: writing them later
    /// cannot fail with a full disk. Only extends where the file system cannot reserve; no other
    /// process may change the length meanwhile.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Makes all written data and the length durable. After an error the durability of everything
    /// written since the last success is unknown, and a later success does not cover it.
    fn sync(&self) -> io::Result<()>;

    /// Waits for the file's exclusive lock. Locks belong to the open file: another `open` of the
    /// same path is another owner, even in the same process. Closing the file releases them.
    fn lock(&self) -> io::Result<()>;

    /// Takes the file's exclusive lock unless another owner holds a shared or exclusive lock. A
    /// shared lock of this file is released first, even if the exclusive one is then not available.
    fn try_lock(&self) -> io::Result<bool>;

    /// Takes a shared lock unless another owner holds the exclusive one.
    fn try_lock_shared(&self) -> io::Result<bool>;

    /// Releases the lock.
    fn unlock(&self) -> io::Result<()>;

    /// Maps the first `len` bytes as memory shared by all processes that map them; it outlives the
    /// process. `len` is a multiple of 8 and above [`FUTEX_BYTES`].
    ///
    /// The file must have these bytes, reserved by [`File::allocate`], and must never be truncated
    /// below them while it is mapped. Otherwise an access may kill the process (SIGBUS): past the
    /// end of the file, or where a full disk has no block for the page. Stores are durable after
    /// [`File::sync`], except in the first [`FUTEX_BYTES`], which a crash may lose.
    fn map(&self, len: u64) -> io::Result<Region>;

    /// Fills `bytes`; returns the number of bytes read, less than its length at the end of the
    /// file.
    fn read_full_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut have = 0;
        while have < bytes.len() {
            match self.read_at(&mut bytes[have..], offset + have as u64) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(have)
    }

    /// Writes all of `bytes`. After an error, any part may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
