//! State of a [`super::SimDisk`]: inodes, directories, processes, faults.

mod directories;
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::dir_state::{DirState, InodeId, NameOrder};
use super::fault::{self, DiskOperation, Fault, FaultKind};
use super::inode::{Inode, OpenId, Pid};
use super::pages::PAGE;
use super::rng::Rng;

/// State shared by all handles of a simulated disk.
#[derive(Debug)]
pub(super) struct SimShared {
    machine: Mutex<SimMachine>,
    /// Notified when a lock may be free or when waiters must die.
    released: Condvar,
}

impl SimShared {
    pub(super) fn new(machine: SimMachine) -> SimShared {
        SimShared { machine: Mutex::new(machine), released: Condvar::new() }
    }

    /// Locks the state, ignoring poisoning: a failing test must not make others fail.
    pub(super) fn machine(&self) -> MutexGuard<'_, SimMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is released.
    pub(super) fn wait<'a>(
        &self,
        machine: MutexGuard<'a, SimMachine>,
    ) -> MutexGuard<'a, SimMachine> {
        self.released.wait(machine).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn notify(&self) {
        self.released.notify_all();
    }
}

#[derive(Debug)]
pub(super) struct SimMachine {
    pub(super) rng: Rng,
    pub(super) names: DirState,
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    pub(super) faults: Vec<Fault>,
    /// Operations to which a fault applied.
    pub(super) fault_hits: u64,
    pub(super) name_order: NameOrder,
    pub(super) capacity_pages: Option<u64>,
    /// Mutating operations begun, without those interrupted by a power loss or kill.
    pub(super) operations: u64,
    /// Number of operations after which power is lost.
    pub(super) cut_at: Option<u64>,
    /// Power is lost until `power_cut`.
    pub(super) is_powered_off: bool,
    /// Number of power losses.
    pub(super) boot_count: u128,
    open_files: BTreeMap<OpenId, OpenFile>,
    processes: BTreeMap<Pid, ProcessEntry>,
    next_id: u64,
}

/// Open file of a process.
#[derive(Clone, Copy, Debug)]
struct OpenFile {
    inode: InodeId,
    pid: Pid,
    writable: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ProcessEntry {
    pub(super) is_dead: bool,
    pub(super) operations: u64,
    pub(super) kill_at: Option<u64>,
}

/// How an operation proceeds: completes, is short, fails, or is interrupted by a crash.
enum OpDecision {
    Complete,
    /// Partial effect.
    Partial,
    Fail(FaultKind, io::Error),
    /// Power is lost during the operation.
    CutPower,
    /// The process is killed during the operation.
    KillProcess,
}

impl SimMachine {
    pub(super) fn new(seed: u64) -> SimMachine {
        SimMachine {
            rng: Rng::new(seed),
            names: DirState::default(),
            inodes: BTreeMap::new(),
            faults: Vec::new(),
            fault_hits: 0,
            name_order: NameOrder::default(),
            capacity_pages: None,
            operations: 0,
            cut_at: None,
            is_powered_off: false,
            boot_count: 0,
            open_files: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_id: 0,
        }
    }

    /// A copy of disk and cache without processes.
    pub(super) fn fork(&self, seed: u64) -> SimMachine {
        SimMachine {
            names: self.names.clone(),
            inodes: self.inodes.iter().map(|(&id, node)| (id, node.fork())).collect(),
            name_order: self.name_order,
            capacity_pages: self.capacity_pages,
            operations: self.operations,
            is_powered_off: self.is_powered_off,
            boot_count: self.boot_count,
            next_id: self.next_id,
            ..SimMachine::new(seed)
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn new_process(&mut self) -> Pid {
        let pid = self.new_id();
        self.processes.insert(pid, ProcessEntry::default());
        pid
    }

    pub(super) fn process(&mut self, pid: Pid) -> &mut ProcessEntry {
        self.processes.get_mut(&pid).expect("BUG: a process without a number")
    }

    pub(super) fn kill(&mut self, pid: Pid) {
        self.process(pid).is_dead = true;
        let ours = |open: &OpenFile| open.pid == pid;
        let opens: Vec<_> =
            self.open_files.iter().filter(|(_, open)| ours(open)).map(|(&id, _)| id).collect();
        for open in opens {
            self.close(open);
        }
        self.inodes.values_mut().for_each(|node| node.unmap_process(pid));
        self.drop_unreferenced();
    }

    pub(super) fn power_cut(&mut self) {
        self.boot_count += 1;
        self.open_files.clear();
        self.processes.values_mut().for_each(|process| process.is_dead = true);
        let SimMachine { names, inodes: nodes, rng, .. } = self;
        names.power_cut(self.name_order, rng);
        nodes.values_mut().for_each(|node| node.power_cut(rng));
        self.is_powered_off = false;
        self.cut_at = None;
        self.drop_unreferenced();
    }

    /// Drops files without names and users.
    fn drop_unreferenced(&mut self) {
        let mut used = self.names.reachable();
        used.extend(self.open_files.values().map(|open| open.inode));
        self.inodes.retain(|id, node| used.contains(id) || node.is_mapped());
    }

    /// Drops a file if it has neither names nor users.
    fn drop_if_unreferenced(&mut self, id: InodeId) {
        let is_open = self.open_files.values().any(|open| open.inode == id);
        if !is_open && !self.inode(id).is_mapped() && !self.names.is_reachable(id) {
            self.inodes.remove(&id);
        }
    }

    fn live_process(&mut self, pid: Pid) -> io::Result<&mut ProcessEntry> {
        let dark = self.is_powered_off;
        let process = self.process(pid);
        match (dark, process.is_dead) {
            (true, _) => Err(power_error()),
            (false, true) => Err(killed_error()),
            (false, false) => Ok(process),
        }
    }

    /// Every operation of a process passes here once its preconditions hold.
    fn begin(
        &mut self,
        pid: Pid,
        operation: DiskOperation,
        paths: &[&Path],
    ) -> io::Result<OpDecision> {
        let operations = self.operations;
        let cut_at = self.cut_at;
        let process = self.live_process(pid)?;
        if operation.mutates() {
            if cut_at.is_some_and(|at| operations >= at) {
                self.is_powered_off = true;
                return Ok(OpDecision::CutPower);
            }
            if process.kill_at.is_some_and(|at| process.operations >= at) {
                return Ok(OpDecision::KillProcess);
            }
            process.operations += 1;
            self.operations += 1;
        }
        if self.faults.is_empty() {
            return Ok(OpDecision::Complete);
        }
        Ok(match fault::matching_fault(&mut self.faults, operation, paths) {
            None => OpDecision::Complete,
            Some(kind) => {
                self.fault_hits += 1;
                kind.error().map_or(OpDecision::Partial, |error| OpDecision::Fail(kind, error))
            }
        })
    }

    /// Runs an atomic operation. If power is lost during it, [`SimMachine::power_cut`] decides its
    /// effect.
    fn operate<T>(
        &mut self,
        pid: Pid,
        operation: DiskOperation,
        paths: &[&Path],
        act: impl FnOnce(&mut SimMachine) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.begin(pid, operation, paths)? {
            OpDecision::Complete | OpDecision::Partial => act(self),
            OpDecision::Fail(_, error) => Err(error),
            OpDecision::CutPower => act(self).and(Err(power_error())),
            OpDecision::KillProcess => {
                let done = if self.rng.chance_in_eight(4) { act(self).map(drop) } else { Ok(()) };
                self.kill(pid);
                done.and(Err(killed_error()))
            }
        }
    }

    pub(super) fn inode(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).expect("BUG: a file was forgotten while in use")
    }

    /// Pages of all files that have a name or are in use.
    pub(super) fn used_pages(&self) -> u64 {
        let named = self.names.files().map(|(_, id)| id);
        let mut used: BTreeSet<_> = named.collect();
        used.extend(self.open_files.values().map(|open| open.inode));
        let counts = |(id, node): &(&InodeId, &Inode)| used.contains(id) || node.is_mapped();
        self.inodes.iter().filter(counts).map(|(_, node)| node.page_count()).sum()
    }

    fn free_pages(&self) -> u64 {
        match self.capacity_pages {
            None => u64::MAX / PAGE,
            Some(capacity) => capacity.saturating_sub(self.used_pages()),
        }
    }
}

fn killed_error() -> io::Error {
    io::Error::other("killed")
}

fn power_error() -> io::Error {
    io::Error::other("simulated power loss")
}
