//! Simulated process.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, File, OpenMode, Region};

use super::dir_state::absolute;
use super::inode::{OpenId, Pid};
use super::machine::SimShared;

/// Process with its own handles on a simulated disk. Clones are the same process, for its threads.
#[derive(Clone)]
pub struct SimProcess {
    shared: Arc<SimShared>,
    pid: Pid,
}

impl SimProcess {
    pub(super) fn new(shared: Arc<SimShared>) -> SimProcess {
        let pid = shared.machine().new_process();
        SimProcess { shared, pid }
    }

    /// `kill -9`: its files are closed and their locks released, and all its further operations
    /// fail. Its writes and stores to mapped memory remain. (Its threads keep running, and their
    /// stores still reach other processes' regions of the same file: end them.)
    pub fn kill(&self) {
        self.shared.machine().kill(self.pid);
        self.shared.notify();
    }

    /// Kills the process during a mutating operation, the one after the next `count`. Whether that
    /// operation takes effect is arbitrary; for a write, so is the number of bytes.
    pub fn kill_after(&self, count: u64) {
        let mut machine = self.shared.machine();
        let process = machine.process(self.pid);
        process.kill_at = Some(process.operations + count);
    }

    /// Number of mutating operations begun, without the one that killed it.
    pub fn operations(&self) -> u64 {
        self.shared.machine().process(self.pid).operations
    }

    /// Whether it was killed, directly or by a power loss.
    pub fn is_dead(&self) -> bool {
        self.shared.machine().process(self.pid).is_dead
    }

    /// Any operation may kill the process, and so release locks.
    fn finish_operation<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.shared.notify();
        }
        result
    }
}

impl Disk for SimProcess {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.finish_operation(self.shared.machine().create_dir(self.pid, &absolute(path)))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let id =
            self.finish_operation(self.shared.machine().open(self.pid, &absolute(path), mode))?;
        Ok(Box::new(SimFile { process: self.clone(), id }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.finish_operation(self.shared.machine().list(self.pid, &absolute(dir)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.finish_operation(self.shared.machine().rename(
            self.pid,
            &absolute(from),
            &absolute(to),
        ))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.finish_operation(self.shared.machine().link(self.pid, &absolute(from), &absolute(to)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.finish_operation(self.shared.machine().remove(self.pid, &absolute(path)))
    }

    fn boot_id(&self) -> Option<u128> {
        Some(self.shared.machine().boot_count)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.finish_operation(self.shared.machine().sync_dir(self.pid, &absolute(dir)))
    }
}

impl fmt::Debug for SimProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimProcess").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// Open file of a process.
#[derive(Debug)]
struct SimFile {
    process: SimProcess,
    id: OpenId,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.process.shared.machine().close(self.id);
        self.process.shared.notify();
    }
}

impl File for SimFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let SimFile { process, id } = self;
        process.finish_operation(process.shared.machine().read(process.pid, *id, bytes, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let SimFile { process, id } = self;
        process.finish_operation(process.shared.machine().write(process.pid, *id, bytes, offset))
    }

    fn len(&self) -> io::Result<u64> {
        self.process.shared.machine().len(self.process.pid, self.id)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let SimFile { process, id } = self;
        process.finish_operation(process.shared.machine().set_len(process.pid, *id, len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let SimFile { process, id } = self;
        process.finish_operation(process.shared.machine().allocate(process.pid, *id, len))
    }

    fn sync(&self) -> io::Result<()> {
        let SimFile { process, id } = self;
        process.finish_operation(process.shared.machine().sync(process.pid, *id))
    }

    fn lock(&self) -> io::Result<()> {
        let SimFile { process: SimProcess { shared, pid }, id } = self;
        let mut machine = shared.machine();
        let mut have = machine.try_lock(*pid, *id, true)?;
        // It may have released a shared lock that another waits for.
        shared.notify();
        while !have {
            machine = shared.wait(machine);
            have = machine.retry_lock(*pid, *id)?;
        }
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        let taken = self.process.shared.machine().try_lock(self.process.pid, self.id, true);
        self.process.shared.notify();
        taken
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        let taken = self.process.shared.machine().try_lock(self.process.pid, self.id, false);
        self.process.shared.notify();
        taken
    }

    fn unlock(&self) -> io::Result<()> {
        self.process.shared.machine().unlock(self.process.pid, self.id)?;
        self.process.shared.notify();
        Ok(())
    }

    fn map(&self, len: u64) -> io::Result<Region> {
        let SimFile { process, id } = self;
        process.finish_operation(process.shared.machine().map(process.pid, *id, len))
    }
}
