//! Handle locks: which processes have the journal open, by file locks that the kernel releases.
//!
//! ```text
//! locks/open      held while the journal is opened or a checkpoint added, opened, set or removed
//! locks/attached  shared by all open handles; exclusive for an exclusive handle
//! locks/flusher   held by the process that writes segments, until it ends or another asks for it
//! locks/w000 …    one per open handle: the append lock stores its number as the owner
//! ```

use disk::{Disk, File, IoContext, OpenMode};

use crate::buffer::ProcessLiveness;
use crate::error::{Error, Result};
use crate::paths::Paths;

/// Maximum number of open handles, all processes together.
pub(crate) const SLOTS_MAX: usize = 128;

/// Lock that serialises opening.
pub(crate) struct OpenLock {
    _file: Box<dyn File>,
}

impl OpenLock {
    /// Waits for the lock.
    pub(crate) fn begin(disk: &dyn Disk, paths: &Paths) -> Result<OpenLock> {
        let file = open(disk, paths, "open")?;
        file.lock().io_context("lock", &paths.lock("open"))?;
        Ok(OpenLock { _file: file })
    }
}

/// Lock files of this handle.
pub(crate) struct HandleLocks {
    _attach_lock: Box<dyn File>,
    _slot_file: Box<dyn File>,
    /// Slot number.
    pub(crate) slot: u32,
    /// No other handle was open.
    pub(crate) is_first: bool,
}

impl HandleLocks {
    /// Creates the lock files that the first handle needs.
    pub(crate) fn prepare(disk: &dyn Disk, paths: &Paths) -> Result<()> {
        ["attached", "flusher", &slot_name(0)]
            .into_iter()
            .try_for_each(|name| open(disk, paths, name).map(drop))
    }

    /// Attaches; the caller holds the opening lock.
    pub(crate) fn begin(
        disk: &dyn Disk,
        paths: &Paths,
        alone: bool,
        _turn: &OpenLock,
    ) -> Result<HandleLocks> {
        let path = paths.lock("attached");
        let attached = open(disk, paths, "attached")?;
        let first = attached.try_lock().io_context("lock", &path)?;
        let busy = || Error::InUse { dir: paths.dir.clone(), is_exclusive: alone };
        if alone && !first {
            return Err(busy());
        }
        if !alone {
            if first {
                attached.unlock().io_context("unlock", &path)?;
            }
            if !attached.try_lock_shared().io_context("lock", &path)? {
                return Err(busy());
            }
        }
        for slot in 0..SLOTS_MAX as u32 {
            let name = slot_name(slot);
            let file = open(disk, paths, &name)?;
            if file.try_lock().io_context("lock", &paths.lock(&name))? {
                return Ok(HandleLocks {
                    _attach_lock: attached,
                    _slot_file: file,
                    slot,
                    is_first: first,
                });
            }
        }
        Err(Error::TooManyHandles { dir: paths.dir.clone(), max: SLOTS_MAX })
    }
}

/// Opens a lock file.
pub(crate) fn open(disk: &dyn Disk, paths: &Paths, name: &str) -> Result<Box<dyn File>> {
    let path = paths.lock(name);
    Ok(disk.open(&path, OpenMode::Create).io_context("open", &path)?)
}

fn slot_name(slot: u32) -> String {
    format!("w{slot:03}")
}

/// Checks liveness through lock files.
pub(crate) struct LivenessProbe<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) paths: &'a Paths,
}

impl ProcessLiveness for LivenessProbe<'_> {
    fn with_dead(&self, slot: u32, then: &mut dyn FnMut()) {
        // A process whose lock file cannot be checked counts as alive: waiting longer is better
        // than two owners of a lock. Closing the file releases a lock taken here.
        let Ok(file) = open(self.disk, self.paths, &slot_name(slot)) else { return };
        if file.try_lock().unwrap_or(false) {
            then();
        }
    }
}
