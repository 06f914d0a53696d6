//! The state behind a [`super::SimDisk`]: files, names, processes, and what is to go wrong when.

mod files;
mod folders;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::fault::{self, Fault, FaultKind, Operation};
use super::names::{NameOrder, Names, NodeId};
use super::node::{Node, OpenId, Pid};
use super::pages::PAGE;
use super::rng::Rng;

/// What all handles of a disk share.
#[derive(Debug)]
pub(super) struct Shared {
    machine: Mutex<Machine>,
    /// Notified when a lock may be free, and when those who wait for one must die.
    released: Condvar,
}

impl Shared {
    pub(super) fn new(machine: Machine) -> Shared {
        Shared { machine: Mutex::new(machine), released: Condvar::new() }
    }

    /// The state. A test that fails while it has it must not make others fail.
    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is released.
    pub(super) fn wait<'a>(&self, machine: MutexGuard<'a, Machine>) -> MutexGuard<'a, Machine> {
        self.released.wait(machine).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn notify(&self) {
        self.released.notify_all();
    }
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) rng: Rng,
    pub(super) names: Names,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) faults: Vec<Fault>,
    pub(super) order: NameOrder,
    pub(super) capacity_pages: Option<u64>,
    /// Mutating operations that were begun, without those that a power cut or a kill interrupted.
    pub(super) operations: u64,
    /// After how many of them the power goes.
    pub(super) cut_at: Option<u64>,
    /// Since the power went, until `power_cut`.
    pub(super) dark: bool,
    /// How often the power went.
    pub(super) boots: u128,
    opens: BTreeMap<OpenId, Open>,
    processes: BTreeMap<Pid, Process>,
    next_id: u64,
}

/// A file that a process has open.
#[derive(Clone, Copy, Debug)]
struct Open {
    node: NodeId,
    pid: Pid,
    writable: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) dead: bool,
    pub(super) operations: u64,
    pub(super) kill_at: Option<u64>,
}

/// How an operation is to go.
enum Turn {
    Whole,
    /// Only a part of it.
    Short,
    Fails(FaultKind, io::Error),
    /// The power goes while it is under way.
    PowerGoes,
    /// Its process is killed while it is under way.
    Dies,
}

impl Machine {
    pub(super) fn new(seed: u64) -> Machine {
        Machine {
            rng: Rng::new(seed),
            names: Names::default(),
            nodes: BTreeMap::new(),
            faults: Vec::new(),
            order: NameOrder::default(),
            capacity_pages: None,
            operations: 0,
            cut_at: None,
            dark: false,
            boots: 0,
            opens: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_id: 0,
        }
    }

    /// A copy of what is on the disk and in its cache; no process lives there.
    pub(super) fn fork(&self, seed: u64) -> Machine {
        Machine {
            names: self.names.clone(),
            nodes: self.nodes.iter().map(|(&id, node)| (id, node.fork())).collect(),
            order: self.order,
            capacity_pages: self.capacity_pages,
            operations: self.operations,
            dark: self.dark,
            boots: self.boots,
            next_id: self.next_id,
            ..Machine::new(seed)
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn new_process(&mut self) -> Pid {
        let pid = self.new_id();
        self.processes.insert(pid, Process::default());
        pid
    }

    pub(super) fn process(&mut self, pid: Pid) -> &mut Process {
        self.processes.get_mut(&pid).expect("BUG: a process without a number")
    }

    pub(super) fn kill(&mut self, pid: Pid) {
        self.process(pid).dead = true;
        let ours = |open: &Open| open.pid == pid;
        let opens: Vec<_> =
            self.opens.iter().filter(|(_, open)| ours(open)).map(|(&id, _)| id).collect();
        for open in opens {
            self.close(open);
        }
        self.nodes.values_mut().for_each(|node| node.forget(pid));
        self.sweep();
    }

    pub(super) fn power_cut(&mut self) {
        self.boots += 1;
        self.opens.clear();
        self.processes.values_mut().for_each(|process| process.dead = true);
        let Machine { names, nodes, rng, .. } = self;
        names.power_cut(self.order, rng);
        nodes.values_mut().for_each(|node| node.power_cut(rng));
        self.dark = false;
        self.cut_at = None;
        self.sweep();
    }

    /// Forgets files that have no name and that nobody uses.
    fn sweep(&mut self) {
        let mut used = self.names.reachable();
        used.extend(self.opens.values().map(|open| open.node));
        self.nodes.retain(|id, node| used.contains(id) || node.is_mapped());
    }

    fn alive(&mut self, pid: Pid) -> io::Result<&mut Process> {
        let dark = self.dark;
        let process = self.process(pid);
        match (dark, process.dead) {
            (true, _) => Err(no_power()),
            (false, true) => Err(killed()),
            (false, false) => Ok(process),
        }
    }

    /// Every operation of a process passes here, when it has been found possible.
    fn begin(&mut self, pid: Pid, operation: Operation, paths: &[&Path]) -> io::Result<Turn> {
        let operations = self.operations;
        let cut_at = self.cut_at;
        let process = self.alive(pid)?;
        if operation.mutates() {
            if cut_at.is_some_and(|at| operations >= at) {
                self.dark = true;
                return Ok(Turn::PowerGoes);
            }
            if process.kill_at.is_some_and(|at| process.operations >= at) {
                return Ok(Turn::Dies);
            }
            process.operations += 1;
            self.operations += 1;
        }
        if self.faults.is_empty() {
            return Ok(Turn::Whole);
        }
        Ok(match fault::strike(&mut self.faults, operation, paths) {
            None => Turn::Whole,
            Some(kind) => kind.error().map_or(Turn::Short, |error| Turn::Fails(kind, error)),
        })
    }

    /// Does an operation that is done in whole or not at all. When the power goes meanwhile it was begun,
    /// and [`Machine::power_cut`] chooses what becomes of it.
    fn operate<T>(
        &mut self,
        pid: Pid,
        operation: Operation,
        paths: &[&Path],
        act: impl FnOnce(&mut Machine) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.begin(pid, operation, paths)? {
            Turn::Whole | Turn::Short => act(self),
            Turn::Fails(_, error) => Err(error),
            Turn::PowerGoes => act(self).and(Err(no_power())),
            Turn::Dies => {
                let done = if self.rng.chance(4) { act(self).map(drop) } else { Ok(()) };
                self.kill(pid);
                done.and(Err(killed()))
            }
        }
    }

    pub(super) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("BUG: a file was forgotten while in use")
    }

    /// Pages of all files that have a name or are in use.
    pub(super) fn used_pages(&self) -> u64 {
        let named = self.names.files().map(|(_, id)| id);
        let mut used: BTreeSet<_> = named.collect();
        used.extend(self.opens.values().map(|open| open.node));
        let counts = |(id, node): &(&NodeId, &Node)| used.contains(id) || node.is_mapped();
        self.nodes.iter().filter(counts).map(|(_, node)| node.page_count()).sum()
    }

    fn free_pages(&self) -> u64 {
        match self.capacity_pages {
            None => u64::MAX / PAGE,
            Some(capacity) => capacity.saturating_sub(self.used_pages()),
        }
    }
}

fn killed() -> io::Error {
    io::Error::other("killed")
}

fn no_power() -> io::Error {
    io::Error::other("the power is out")
}
