//! Simulated disk with crash and fault injection, for tests: no product crate depends on it. All
//! nondeterminism follows from a seed (and from the scheduling of threads).
//!
//! A machine has one [`SimDisk`] and processes that use it, each a [`SimProcess`]. A process can be
//! killed, which loses nothing, and power can be lost, which loses as much as POSIX allows:
//!
//! * data written since the last `sync`: each sector of 512 bytes of each write may survive or not,
//!   and a sector written several times may hold any of its versions;
//! * length changes: the length is one that the file had since the last `sync`; bytes inside it
//!   that did not survive are zero;
//! * names: see [`NameOrder`]. A file whose name or directory did not survive is lost, even if it
//!   was synced; `create_dir` also needs a `sync_dir` of the parent;
//! * mapped files: each page of 4 KiB is as last synced or as it was at the end. The wake page is
//!   not saved: only data written with `write_at` count there.
//!
//! It is stricter than a real machine where that is simpler: two writes into one sector may survive
//! in any combination, and after a failed sync no byte becomes durable until it is written again.
//!
//! Differences from the real disk: a directory cannot be renamed; a larger mapping of a file
//! requires that no process has the smaller one; mapped files have reserved blocks (a real machine
//! kills a process that stores to a page without a block on a full disk); and truncating a mapped
//! file panics.
#![forbid(unsafe_code)]

mod dir_state;
mod fault;
mod inode;
mod machine;
mod mapped_words;
mod pages;
mod process;
mod rng;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dir_state::{DirEntry, absolute};
use inode::Inode;
use machine::{SimMachine, SimShared};
use pages::PAGE;

pub use dir_state::NameOrder;
pub use fault::{DiskOperation, Fault, FaultKind};
pub use process::SimProcess;

/// Simulated disk with a page cache, crash model and fault injection. Clones are the same disk.
///
/// ```
/// use disk::{Disk, OpenMode};
/// use sim::SimDisk;
///
/// let disk = SimDisk::new(1);
/// disk.cut_after(2);
/// let process = disk.process();
/// let file = process.open("/a".as_ref(), OpenMode::Create)?;
/// file.write_all_at(b"abc", 0)?;
/// assert!(file.sync().is_err(), "the power goes while it is under way");
/// // Many things may be left of the same moment.
/// for seed in 0..100 {
///     let disk = disk.fork(seed);
///     disk.power_cut();
///     match disk.contents("/a") {
///         None => {} // Its directory was not synced.
///         Some(bytes) => assert!(bytes == b"" || bytes == [0; 3] || bytes == b"abc"),
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct SimDisk(Arc<SimShared>);

impl SimDisk {
    /// An empty disk. Relative paths start at `/`.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(SimShared::new(SimMachine::new(seed))))
    }

    /// A new process.
    pub fn process(&self) -> SimProcess {
        SimProcess::new(Arc::clone(&self.0))
    }

    /// Cuts the power and restores it: all processes are dead, and an arbitrary part of the data
    /// that was not durable is left. New processes find a working disk.
    pub fn power_cut(&self) {
        self.0.machine().power_cut();
        self.0.notify();
    }

    /// Cuts the power during a mutating operation, the one after the next `count`: it and all later
    /// operations of all processes fail until [`SimDisk::power_cut`] decides what is left.
    pub fn cut_after(&self, count: u64) {
        let mut machine = self.0.machine();
        machine.cut_at = Some(machine.operations + count);
    }

    /// Whether power was lost and [`SimDisk::power_cut`] has not been called since.
    pub fn is_without_power(&self) -> bool {
        self.0.machine().is_powered_off
    }

    /// Number of mutating operations (see [`DiskOperation::mutates`]) begun so far, without those
    /// interrupted by a power loss or kill. An operation that fails for its own reason, such as a
    /// missing file, may not count; one that hits a [`Fault`] does.
    pub fn operations(&self) -> u64 {
        self.0.machine().operations
    }

    /// Injects a fault. Of several matching faults, the first that is not used up applies.
    pub fn inject(&self, fault: Fault) {
        let partial = matches!(fault.operation, DiskOperation::Read | DiskOperation::Write);
        assert!(
            partial || fault.kind != FaultKind::ShortWrite,
            "BUG: {:?} has no partial effect",
            fault.operation
        );
        self.0.machine().faults.push(fault);
    }

    /// Number of operations to which a fault applied, whether or not the caller reported it.
    pub fn fault_hits(&self) -> u64 {
        self.0.machine().fault_hits
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.0.machine().faults.clear();
    }

    /// Sets which names a power loss leaves.
    pub fn set_name_order(&self, order: NameOrder) {
        self.0.machine().name_order = order;
    }

    /// Capacity in bytes, counted in whole pages of 4 KiB, written or reserved. Names take no
    /// space, but creating a file needs a free page. Existing data stay.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.machine().capacity_pages = Some(bytes / PAGE);
    }

    /// Used bytes.
    pub fn used_bytes(&self) -> u64 {
        self.0.machine().used_pages() * PAGE
    }

    /// A copy of the current disk, including data that are not durable, for another continuation.
    /// It has no processes, faults or armed power loss.
    pub fn fork(&self, seed: u64) -> SimDisk {
        SimDisk(Arc::new(SimShared::new(self.0.machine().fork(seed))))
    }

    /// All named files with their lengths.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let machine = self.0.machine();
        let len = |(path, id): (&Path, _)| (path.to_owned(), machine.inodes[&id].len());
        machine.names.files().map(len).collect()
    }

    /// Contents of a file; `None` if it does not exist.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let machine = self.0.machine();
        match machine.names.get(&absolute(path.as_ref()))? {
            DirEntry::File(id) => Some(machine.inodes[&id].to_vec()),
            DirEntry::Dir => None,
        }
    }

    /// Flips one bit in cache and disk. Panics if the file has no such byte.
    #[track_caller]
    pub fn flip_bit(&self, path: impl AsRef<Path>, byte: u64, bit: u32) {
        self.modify_inode(path.as_ref(), |node| {
            let mut value = [0];
            assert!(
                node.read(&mut value, byte) == 1 && bit < 8,
                "BUG: no bit {bit} of byte {byte}"
            );
            node.damage(&[value[0] ^ (1 << bit)], byte);
        });
    }

    /// Overwrites bytes in cache and disk, extending the file. Panics if the file does not exist.
    #[track_caller]
    pub fn overwrite(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        self.modify_inode(path.as_ref(), |node| node.damage(bytes, offset));
    }

    /// Truncates a file to `len` bytes in cache and disk, unless it is shorter. Panics if it does
    /// not exist or a living process maps it.
    #[track_caller]
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) {
        self.modify_inode(path.as_ref(), |node| {
            assert!(!node.is_mapped(), "BUG: truncated to {len} bytes while mapped");
            if len < node.len() {
                node.damage_len(len);
            }
        });
    }

    #[track_caller]
    fn modify_inode(&self, path: &Path, act: impl FnOnce(&mut Inode)) {
        let mut machine = self.0.machine();
        match machine.names.get(&absolute(path)) {
            Some(DirEntry::File(id)) => act(machine.inode(id)),
            _ => panic!("BUG: there is no file {path:?} to damage"),
        }
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").finish_non_exhaustive()
    }
}
