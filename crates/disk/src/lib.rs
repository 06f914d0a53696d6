//! Files as a durable store needs them: [`Disk`] and [`File`] are the few operations that
//! durability is made of, [`OsDisk`] is the real thing. The crate `sim` has one in memory for
//! tests, which loses, reorders and refuses on request.
//!
//! Offsets and lengths are bytes. Every operation may be used from several threads at once. What is
//! promised is what POSIX promises and no more: written data are durable after [`File::sync`], a
//! new, renamed or removed name after [`Disk::sync_dir`] of its folder, and nothing else is.
#![deny(unsafe_code)]

mod os;
mod region;

use std::fmt::Debug;
use std::io;
use std::path::Path;

pub use os::OsDisk;
pub use region::{Region, WAKE_BYTES};

/// How [`Disk::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// To read and write; made when it is missing.
    Create,
    /// To read and write; an error when it exists.
    CreateNew,
}

/// File system interface, real or simulated.
pub trait Disk: Send + Sync + Debug {
    /// Makes a folder and what is missing above it. No error when it exists. Each folder that was
    /// made is durable after [`Disk::sync_dir`] of the one above it.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a file. It is closed, and its lock released, when it is dropped or its process dies;
    /// regions that were mapped stay.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>>;

    /// The names of the files (not of the folders) in a folder, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Gives a file another name in the same file system; what had that name is gone. Durable after
    /// [`Disk::sync_dir`] of the new name's folder, and of the old one's when that is another.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name in the same file system; an error when something has that name.
    /// Durable after [`Disk::sync_dir`] of the new name's folder.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name; open files live on.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes names made, changed and removed in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// A number that is another one each time the machine starts: as long as it is the same, the
    /// page cache and mapped memory have lost nothing. `None` when the system does not tell.
    fn boot_id(&self) -> Option<u128>;
}

/// An open file.
pub trait File: Send + Sync + Debug {
    /// Reads at most `bytes.len()` bytes; 0 at the end of the file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at least one and at most `bytes.len()` bytes (none when there are none), into the
    /// page cache.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Cuts the file, or lengthens it with zeros that may have no blocks yet.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Lengthens the file to at least `len` bytes of zeros whose blocks are reserved: writing them
    /// later does not meet a full disk. Where the file system cannot reserve, it only lengthens;
    /// nobody else may change the length meanwhile.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Makes all that was written, and the length, durable. After an error nothing is known about
    /// what was written since the last success, and a later success does not speak for it.
    fn sync(&self) -> io::Result<()>;

    /// Takes the file's exclusive lock, waiting for it. Locks belong to this open file: another
    /// `open` of the same path is another owner, also in the same process. The system releases them
    /// with the file.
    fn lock(&self) -> io::Result<()>;

    /// Takes the file's exclusive lock unless someone else has it, shared or exclusive. Who has it
    /// shared gives that up first, also when the exclusive one is then not to be had.
    fn try_lock(&self) -> io::Result<bool>;

    /// Takes the file's lock together with others that share it, unless someone has it exclusively.
    fn try_lock_shared(&self) -> io::Result<bool>;

    /// Releases the lock.
    fn unlock(&self) -> io::Result<()>;

    /// The first `len` bytes as memory that all who map them share, in this process and in others,
    /// and that outlives the process. `len` is a multiple of 8 and above [`WAKE_BYTES`].
    ///
    /// The file must have these bytes and must never be made shorter than that while it is mapped;
    /// they must have been reserved by [`File::allocate`]. Otherwise an access may kill the process
    /// (SIGBUS): past the end of the file, or where a full disk has no block for the page. What is
    /// stored is durable after [`File::sync`], but for the first [`WAKE_BYTES`], which no crash
    /// need spare.
    fn map(&self, len: u64) -> io::Result<Region>;

    /// Fills `bytes`; how many there were when the file ends before.
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

    /// Writes all of `bytes`. After an error any part of them may have been written.
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
