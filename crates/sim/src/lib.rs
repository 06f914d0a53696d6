//! Simulated disk with crash and fault injection, for tests: no product crate depends on this one.
//! Everything arbitrary follows from a seed (and
//! from the order in which threads come).
//!
//! A machine has one [`SimDisk`] and processes that see it, each a [`SimProcess`]. A process can be
//! killed, which loses nothing, and the power can be cut, which loses as much as POSIX allows:
//!
//! * of what was written since the last `sync`, each sector of 512 bytes of each write may have
//!   arrived or not, and a sector that was written several times may hold any of its versions;
//! * of changes of the length, the length is one that the file had since the last `sync`; what is
//!   inside and did not arrive is zero;
//! * of names, see [`NameOrder`]. A file whose name did not arrive is gone, whatever was synced of
//!   it, and a file whose folder did not arrive likewise: `create_dir` too needs a `sync_dir`
//!   above;
//! * of a mapped file, each page of 4 KiB is as last synced or as it was at the end. The wake page
//!   is not kept: only what was written with `write_at` counts there.
//!
//! It is stricter than a real machine where that is simpler: two writes into one sector may arrive
//! in any combination, and after a sync that failed no byte becomes durable that is not written
//! again.
//!
//! Where it differs from the real disk: a folder cannot be renamed; a file can be mapped further
//! than before only when no process has the shorter map; what is mapped has its blocks reserved
//! (where the real one kills a process that stores to a page without a block when the disk is
//! full); and to cut off what is mapped is a panic.
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
///         None => {} // Its folder was not synced.
///         Some(bytes) => assert!(bytes == b"" || bytes == [0; 3] || bytes == b"abc"),
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct SimDisk(Arc<SimShared>);

impl SimDisk {
    /// An empty disk. Paths on it begin at `/`, relative ones too.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(SimShared::new(SimMachine::new(seed))))
    }

    /// A new process.
    pub fn process(&self) -> SimProcess {
        SimProcess::new(Arc::clone(&self.0))
    }

    /// Cuts the power and turns it on again: all processes are dead, and of what was not durable an
    /// arbitrary part is left. New processes find a disk that works.
    pub fn power_cut(&self) {
        self.0.machine().power_cut();
        self.0.notify();
    }

    /// Cuts the power in the middle of a mutating operation, the one after the next `count`: that
    /// and all later ones of all processes are errors, until [`SimDisk::power_cut`] says what is
    /// left.
    pub fn cut_after(&self, count: u64) {
        let mut machine = self.0.machine();
        machine.cut_at = Some(machine.operations + count);
    }

    /// Whether the power went and [`SimDisk::power_cut`] has not been called since.
    pub fn is_without_power(&self) -> bool {
        self.0.machine().is_powered_off
    }

    /// How many mutating operations (see [`Operation::mutates`]) were begun so far, without those
    /// that a power cut or a kill interrupted. One that fails for a reason of its own, such as a
    /// missing file, may not count; one that meets a [`Fault`] does.
    pub fn operations(&self) -> u64 {
        self.0.machine().operations
    }

    /// Makes operations fail. Of several faults that fit, the first strikes that has not been used
    /// up.
    pub fn inject(&self, fault: Fault) {
        let partial = matches!(fault.operation, DiskOperation::Read | DiskOperation::Write);
        assert!(
            partial || fault.kind != FaultKind::ShortWrite,
            "BUG: {:?} has no part that could be done",
            fault.operation
        );
        self.0.machine().faults.push(fault);
    }

    /// Takes all faults back.
    pub fn clear_faults(&self) {
        self.0.machine().faults.clear();
    }

    /// Which names a power cut leaves.
    pub fn set_name_order(&self, order: NameOrder) {
        self.0.machine().name_order = order;
    }

    /// How many bytes fit: whole pages of 4 KiB, of which a file takes as many as were written or
    /// reserved. Names take no room, but a file can be made only when a page is free. What the disk
    /// already has stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.machine().capacity_pages = Some(bytes / PAGE);
    }

    /// How many bytes of the capacity are taken.
    pub fn used_bytes(&self) -> u64 {
        self.0.machine().used_pages() * PAGE
    }

    /// A copy of the disk as it is at this moment, with what is not durable, so that other things
    /// may happen to it. It has no processes, faults, or orders to cut the power.
    pub fn fork(&self, seed: u64) -> SimDisk {
        SimDisk(Arc::new(SimShared::new(self.0.machine().fork(seed))))
    }

    /// All files that have a name, with their lengths.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let machine = self.0.machine();
        let len = |(path, id): (&Path, _)| (path.to_owned(), machine.inodes[&id].len());
        machine.names.files().map(len).collect()
    }

    /// What a file holds; `None` when there is no such file.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let machine = self.0.machine();
        match machine.names.get(&absolute(path.as_ref()))? {
            DirEntry::File(id) => Some(machine.inodes[&id].to_vec()),
            DirEntry::Folder => None,
        }
    }

    /// Turns one bit over, in the cache and on the disk. Panics where the file has no such byte.
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

    /// Puts other bytes into a file, in the cache and on the disk; the file is lengthened for them.
    /// Panics when there is no such file.
    #[track_caller]
    pub fn overwrite(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        self.modify_inode(path.as_ref(), |node| node.damage(bytes, offset));
    }

    /// Cuts a file to `len` bytes, in the cache and on the disk, unless it is shorter. Panics when
    /// there is no such file or a living process maps it.
    #[track_caller]
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) {
        self.modify_inode(path.as_ref(), |node| {
            assert!(!node.is_mapped(), "BUG: cut to {len} bytes while it is mapped");
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
