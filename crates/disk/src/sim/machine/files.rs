//! What processes do to files they have open.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::{Machine, Open, Turn, killed, no_power};
use crate::sim::fault::{FaultKind, Operation};
use crate::sim::names::NodeId;
use crate::sim::node::{Node, OpenId, Pid};
use crate::{Region, region};

impl Machine {
    /// The file's present path, or nothing when it has none.
    fn path_of(&self, node: NodeId) -> PathBuf {
        let mut files = self.names.files();
        files.find(|(_, id)| *id == node).map_or(PathBuf::new(), |(path, _)| path.to_owned())
    }

    /// [`Machine::begin`] for an open file.
    fn begin_on(&mut self, pid: Pid, open: OpenId, operation: Operation) -> io::Result<Turn> {
        self.alive(pid)?;
        let path = match self.faults.is_empty() {
            true => PathBuf::new(),
            false => self.path_of(self.opens[&open].node),
        };
        self.begin(pid, operation, &[&path])
    }

    /// [`Machine::operate`] for an open file.
    fn operate_on<T>(
        &mut self,
        pid: Pid,
        open: OpenId,
        operation: Operation,
        act: impl FnOnce(&mut Machine, NodeId) -> io::Result<T>,
    ) -> io::Result<T> {
        self.alive(pid)?;
        let node = self.opens[&open].node;
        let path = match self.faults.is_empty() {
            true => PathBuf::new(),
            false => self.path_of(node),
        };
        self.operate(pid, operation, &[&path], |machine| act(machine, node))
    }

    fn node_of(&mut self, open: OpenId) -> &mut Node {
        let id = self.opens[&open].node;
        self.node(id)
    }

    /// Does nothing for a file that a kill or a power cut has closed.
    pub(in crate::sim) fn close(&mut self, open: OpenId) {
        if let Some(Open { node, .. }) = self.opens.remove(&open) {
            self.node(node).unlock(open);
            self.sweep();
        }
    }

    pub(in crate::sim) fn read(
        &mut self,
        pid: Pid,
        open: OpenId,
        bytes: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let end = match self.begin_on(pid, open, Operation::Read)? {
            Turn::Fails(_, error) => return Err(error),
            Turn::Short => self.part_of(bytes.len()),
            _ => bytes.len(),
        };
        signed(offset)?;
        Ok(self.node_of(open).read(&mut bytes[..end], offset))
    }

    pub(in crate::sim) fn write(
        &mut self,
        pid: Pid,
        open: OpenId,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<usize> {
        self.alive(pid)?;
        if !self.opens[&open].writable {
            return Err(Errno::BADF.into());
        }
        signed(offset)?;
        if offset.checked_add(bytes.len() as u64).and_then(|end| i64::try_from(end).ok()).is_none()
        {
            return Err(Errno::FBIG.into());
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let turn = self.begin_on(pid, open, Operation::Write)?;
        let count = match turn {
            Turn::Fails(_, error) => return Err(error),
            Turn::Short => self.part_of(bytes.len()),
            Turn::Dies => self.rng.up_to(bytes.len()),
            // What of it arrives is chosen with the rest.
            Turn::Whole | Turn::PowerGoes => bytes.len(),
        };
        let free = self.free_pages();
        let node = self.node_of(open);
        let fitting = node.fitting(offset, count, free);
        if fitting > 0 {
            node.write(&bytes[..fitting], offset);
        }
        match turn {
            Turn::PowerGoes => Err(no_power()),
            Turn::Dies => {
                self.kill(pid);
                Err(killed())
            }
            _ if fitting == 0 => Err(Errno::NOSPC.into()),
            _ => Ok(fitting),
        }
    }

    /// At least 1 and less than all, if that is possible.
    fn part_of(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => count,
            _ => 1 + self.rng.up_to(count - 2),
        }
    }

    pub(in crate::sim) fn len(&mut self, pid: Pid, open: OpenId) -> io::Result<u64> {
        self.alive(pid)?;
        Ok(self.node_of(open).len())
    }

    pub(in crate::sim) fn set_len(&mut self, pid: Pid, open: OpenId, len: u64) -> io::Result<()> {
        self.alive(pid)?;
        if !self.opens[&open].writable {
            return Err(Errno::INVAL.into());
        }
        signed(len)?;
        let mapped_len = self.node_of(open).mapped_len();
        assert!(
            len >= mapped_len,
            "BUG: {:?} is cut to {len} bytes while {mapped_len} are mapped",
            self.path_of(self.opens[&open].node)
        );
        self.operate_on(pid, open, Operation::SetLen, |machine, node| {
            machine.node(node).set_len(len);
            Ok(())
        })
    }

    pub(in crate::sim) fn allocate(&mut self, pid: Pid, open: OpenId, len: u64) -> io::Result<()> {
        self.alive(pid)?;
        if !self.opens[&open].writable {
            return Err(Errno::BADF.into());
        }
        signed(len)?;
        self.operate_on(pid, open, Operation::Allocate, |machine, node| {
            machine.room_for(node, len)?;
            machine.node(node).allocate(len);
            Ok(())
        })
    }

    /// An error when the disk has not the room to reserve the first `len` bytes of a file.
    fn room_for(&mut self, node: NodeId, len: u64) -> io::Result<()> {
        let free = self.free_pages();
        match self.node(node).page_count_to_reserve(len) <= free {
            true => Ok(()),
            false => Err(Errno::NOSPC.into()),
        }
    }

    pub(in crate::sim) fn sync(&mut self, pid: Pid, open: OpenId) -> io::Result<()> {
        match self.begin_on(pid, open, Operation::Sync)? {
            Turn::Whole | Turn::Short => {
                self.node_of(open).sync();
                Ok(())
            }
            Turn::Fails(kind, error) => {
                if kind != FaultKind::Interrupted && error.kind() != io::ErrorKind::Interrupted {
                    self.node_of(open).sync_fails();
                }
                Err(error)
            }
            // What of it was written is chosen with the rest.
            Turn::PowerGoes => Err(no_power()),
            Turn::Dies => {
                if self.rng.chance(4) {
                    self.node_of(open).sync();
                }
                self.kill(pid);
                Err(killed())
            }
        }
    }

    pub(in crate::sim) fn try_lock(
        &mut self,
        pid: Pid,
        open: OpenId,
        exclusive: bool,
    ) -> io::Result<bool> {
        self.operate_on(pid, open, Operation::Lock, |machine, node| {
            Ok(machine.node(node).try_lock(open, exclusive))
        })
    }

    /// [`Machine::try_lock`] by one who has waited, which is not another operation.
    pub(in crate::sim) fn retry_lock(&mut self, pid: Pid, open: OpenId) -> io::Result<bool> {
        self.alive(pid)?;
        Ok(self.node_of(open).try_lock(open, true))
    }

    pub(in crate::sim) fn unlock(&mut self, pid: Pid, open: OpenId) -> io::Result<()> {
        self.alive(pid)?;
        self.node_of(open).unlock(open);
        Ok(())
    }

    pub(in crate::sim) fn map(&mut self, pid: Pid, open: OpenId, len: u64) -> io::Result<Region> {
        self.alive(pid)?;
        region::checked(len)?;
        if !self.opens[&open].writable {
            return Err(Errno::ACCESS.into());
        }
        if self.node_of(open).len() < len {
            return Err(region::shorter_than_its_map());
        }
        self.operate_on(pid, open, Operation::Map, |machine, node| {
            machine.room_for(node, len)?;
            let node = machine.node(node);
            node.allocate(len);
            node.map(len, pid).ok_or_else(|| {
                let problem = "SimDisk: the file is mapped at a shorter length";
                io::Error::new(io::ErrorKind::Unsupported, problem)
            })
        })
    }
}

/// An offset or length that the operating system can express.
fn signed(bytes: u64) -> io::Result<()> {
    match i64::try_from(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(Errno::INVAL.into()),
    }
}
