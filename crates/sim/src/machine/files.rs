//! File operations of simulated processes.

use std::io;
use std::path::PathBuf;

use disk::Region;
use rustix::io::Errno;

use super::{OpDecision, OpenFile, SimMachine, killed_error, power_error};
use crate::dir_state::InodeId;
use crate::fault::{DiskOperation, FaultKind};
use crate::inode::{Inode, OpenId, Pid};

impl SimMachine {
    /// Current path of the file, or empty.
    fn path_of(&self, node: InodeId) -> PathBuf {
        let mut files = self.names.files();
        files.find(|(_, id)| *id == node).map_or(PathBuf::new(), |(path, _)| path.to_owned())
    }

    /// [`SimMachine::begin`] for an open file.
    fn begin_on(
        &mut self,
        pid: Pid,
        open: OpenId,
        operation: DiskOperation,
    ) -> io::Result<OpDecision> {
        self.live_process(pid)?;
        let path = match self.faults.is_empty() {
            true => PathBuf::new(),
            false => self.path_of(self.open_files[&open].inode),
        };
        self.begin(pid, operation, &[&path])
    }

    /// [`SimMachine::operate`] for an open file.
    fn operate_on<T>(
        &mut self,
        pid: Pid,
        open: OpenId,
        operation: DiskOperation,
        act: impl FnOnce(&mut SimMachine, InodeId) -> io::Result<T>,
    ) -> io::Result<T> {
        self.live_process(pid)?;
        let node = self.open_files[&open].inode;
        let path = match self.faults.is_empty() {
            true => PathBuf::new(),
            false => self.path_of(node),
        };
        self.operate(pid, operation, &[&path], |machine| act(machine, node))
    }

    fn inode_of(&mut self, open: OpenId) -> &mut Inode {
        let id = self.open_files[&open].inode;
        self.inode(id)
    }

    /// No effect for a file that a kill or power loss has closed.
    pub(crate) fn close(&mut self, open: OpenId) {
        if let Some(OpenFile { inode: node, .. }) = self.open_files.remove(&open) {
            self.inode(node).unlock(open);
            self.drop_if_unreferenced(node);
        }
    }

    pub(crate) fn read(
        &mut self,
        pid: Pid,
        open: OpenId,
        bytes: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let end = match self.begin_on(pid, open, DiskOperation::Read)? {
            OpDecision::Fail(_, error) => return Err(error),
            OpDecision::Partial => self.partial_len(bytes.len()),
            _ => bytes.len(),
        };
        check_offset(offset)?;
        Ok(self.inode_of(open).read(&mut bytes[..end], offset))
    }

    pub(crate) fn write(
        &mut self,
        pid: Pid,
        open: OpenId,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<usize> {
        self.live_process(pid)?;
        if !self.open_files[&open].writable {
            return Err(Errno::BADF.into());
        }
        check_offset(offset)?;
        if offset.checked_add(bytes.len() as u64).and_then(|end| i64::try_from(end).ok()).is_none()
        {
            return Err(Errno::FBIG.into());
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let turn = self.begin_on(pid, open, DiskOperation::Write)?;
        let count = match turn {
            OpDecision::Fail(_, error) => return Err(error),
            OpDecision::Partial => self.partial_len(bytes.len()),
            OpDecision::KillProcess => self.rng.up_to(bytes.len()),
            // Decided with the other pending writes.
            OpDecision::Complete | OpDecision::CutPower => bytes.len(),
        };
        let free = self.free_pages();
        let node = self.inode_of(open);
        let fitting = node.writable_len(offset, count, free);
        if fitting > 0 {
            node.write(&bytes[..fitting], offset);
        }
        match turn {
            OpDecision::CutPower => Err(power_error()),
            OpDecision::KillProcess => {
                self.kill(pid);
                Err(killed_error())
            }
            _ if fitting == 0 => Err(Errno::NOSPC.into()),
            _ => Ok(fitting),
        }
    }

    /// At least 1 and less than all, if possible.
    fn partial_len(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => count,
            _ => 1 + self.rng.up_to(count - 2),
        }
    }

    pub(crate) fn len(&mut self, pid: Pid, open: OpenId) -> io::Result<u64> {
        self.live_process(pid)?;
        Ok(self.inode_of(open).len())
    }

    pub(crate) fn set_len(&mut self, pid: Pid, open: OpenId, len: u64) -> io::Result<()> {
        self.live_process(pid)?;
        if !self.open_files[&open].writable {
            return Err(Errno::INVAL.into());
        }
        check_offset(len)?;
        let mapped_len = self.inode_of(open).mapped_len();
        assert!(
            len >= mapped_len,
            "BUG: {:?} is truncated to {len} bytes while {mapped_len} are mapped",
            self.path_of(self.open_files[&open].inode)
        );
        self.operate_on(pid, open, DiskOperation::SetLen, |machine, node| {
            machine.inode(node).set_len(len);
            Ok(())
        })
    }

    pub(crate) fn allocate(&mut self, pid: Pid, open: OpenId, len: u64) -> io::Result<()> {
        self.live_process(pid)?;
        if !self.open_files[&open].writable {
            return Err(Errno::BADF.into());
        }
        check_offset(len)?;
        self.operate_on(pid, open, DiskOperation::Allocate, |machine, node| {
            machine.check_capacity(node, len)?;
            machine.inode(node).allocate(len);
            Ok(())
        })
    }

    /// An error if the disk lacks space to reserve the first `len` bytes of a file.
    fn check_capacity(&mut self, node: InodeId, len: u64) -> io::Result<()> {
        let free = self.free_pages();
        match self.inode(node).pages_to_reserve(len) <= free {
            true => Ok(()),
            false => Err(Errno::NOSPC.into()),
        }
    }

    pub(crate) fn sync(&mut self, pid: Pid, open: OpenId) -> io::Result<()> {
        match self.begin_on(pid, open, DiskOperation::Sync)? {
            OpDecision::Complete | OpDecision::Partial => {
                self.inode_of(open).sync();
                Ok(())
            }
            OpDecision::Fail(kind, error) => {
                if kind != FaultKind::Interrupted && error.kind() != io::ErrorKind::Interrupted {
                    self.inode_of(open).fail_sync();
                }
                Err(error)
            }
            // Decided with the other pending writes.
            OpDecision::CutPower => Err(power_error()),
            OpDecision::KillProcess => {
                if self.rng.chance_in_eight(4) {
                    self.inode_of(open).sync();
                }
                self.kill(pid);
                Err(killed_error())
            }
        }
    }

    pub(crate) fn try_lock(&mut self, pid: Pid, open: OpenId, exclusive: bool) -> io::Result<bool> {
        self.operate_on(pid, open, DiskOperation::Lock, |machine, node| {
            Ok(machine.inode(node).try_lock(open, exclusive))
        })
    }

    /// [`SimMachine::try_lock`] by a waiter, which does not count as another operation.
    pub(crate) fn retry_lock(&mut self, pid: Pid, open: OpenId) -> io::Result<bool> {
        self.live_process(pid)?;
        Ok(self.inode_of(open).try_lock(open, true))
    }

    pub(crate) fn unlock(&mut self, pid: Pid, open: OpenId) -> io::Result<()> {
        self.live_process(pid)?;
        self.inode_of(open).unlock(open);
        Ok(())
    }

    pub(crate) fn map(&mut self, pid: Pid, open: OpenId, len: u64) -> io::Result<Region> {
        self.live_process(pid)?;
        Region::check_len(len, self.inode_of(open).len())?;
        if !self.open_files[&open].writable {
            return Err(Errno::ACCESS.into());
        }
        self.operate_on(pid, open, DiskOperation::Map, |machine, node| {
            machine.check_capacity(node, len)?;
            let node = machine.inode(node);
            node.allocate(len);
            node.map(len, pid).ok_or_else(|| {
                let problem = "SimDisk: the file is mapped at a shorter length";
                io::Error::new(io::ErrorKind::Unsupported, problem)
            })
        })
    }
}

/// Checks that the operating system can express an offset or length.
fn check_offset(bytes: u64) -> io::Result<()> {
    match i64::try_from(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(Errno::INVAL.into()),
    }
}
