//! Who has the journal open, told by locks that the kernel releases however a process ends.
//!
//! ```text
//! locks/open      held while a journal is opened, or a checkpoint added, opened, set or removed: one at a time
//! locks/attached  shared by all who have it open; exclusive for one who wants it alone
//! locks/flusher   held by the one process that writes segments, until it ends or another asks for it
//! locks/w000 …    one per open journal: its number is what the append lock says about its owner
//! ```

use disk::{Disk, File, Mode};

use crate::buffer::Alive;
use crate::error::{Doing, Error, Result};
use crate::places::Places;

/// How often a journal can be open at once, all processes together.
pub(crate) const SLOTS_MAX: usize = 128;

/// The lock that orders openings.
pub(crate) struct Opening {
    _file: Box<dyn File>,
}

impl Opening {
    /// Waits for its turn.
    pub(crate) fn begin(disk: &dyn Disk, places: &Places) -> Result<Opening> {
        let file = open(disk, places, "open")?;
        file.lock().doing("lock it", &places.lock("open"))?;
        Ok(Opening { _file: file })
    }
}

/// This handle's presence.
pub(crate) struct Presence {
    _attached: Box<dyn File>,
    _slot_file: Box<dyn File>,
    /// Its number among those present.
    pub(crate) slot: u32,
    /// Nobody else was there when it came.
    pub(crate) first: bool,
}

impl Presence {
    /// Makes the lock files that the first one to come needs.
    pub(crate) fn prepare(disk: &dyn Disk, places: &Places) -> Result<()> {
        ["attached", "flusher", &slot_name(0)]
            .into_iter()
            .try_for_each(|name| open(disk, places, name).map(drop))
    }

    /// Attaches, the caller having the opening's lock.
    pub(crate) fn begin(
        disk: &dyn Disk,
        places: &Places,
        alone: bool,
        _turn: &Opening,
    ) -> Result<Presence> {
        let path = places.lock("attached");
        let attached = open(disk, places, "attached")?;
        let first = attached.try_lock().doing("lock it", &path)?;
        let busy = || Error::Busy { dir: places.dir.clone(), alone };
        if alone && !first {
            return Err(busy());
        }
        if !alone {
            if first {
                attached.unlock().doing("unlock it", &path)?;
            }
            if !attached.try_lock_shared().doing("lock it", &path)? {
                return Err(busy());
            }
        }
        for slot in 0..SLOTS_MAX as u32 {
            let name = slot_name(slot);
            let file = open(disk, places, &name)?;
            if file.try_lock().doing("lock it", &places.lock(&name))? {
                return Ok(Presence { _attached: attached, _slot_file: file, slot, first });
            }
        }
        Err(Error::Crowded { dir: places.dir.clone(), max: SLOTS_MAX })
    }
}

/// Opens a lock file.
pub(crate) fn open(disk: &dyn Disk, places: &Places, name: &str) -> Result<Box<dyn File>> {
    let path = places.lock(name);
    disk.open(&path, Mode::Create).doing("open it", &path)
}

fn slot_name(slot: u32) -> String {
    format!("w{slot:03}")
}

/// Asks the locks.
pub(crate) struct Present<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) places: &'a Places,
}

impl Alive for Present<'_> {
    fn if_dead(&self, slot: u32, then: &mut dyn FnMut()) {
        // Whoever cannot be asked counts as alive: waiting longer is better than two owners of a lock. A
        // free lock is released again with the file.
        let Ok(file) = open(self.disk, self.places, &slot_name(slot)) else { return };
        if file.try_lock().unwrap_or(false) {
            then();
        }
    }
}
