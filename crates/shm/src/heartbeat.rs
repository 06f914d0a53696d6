//! Heartbeats.

use crate::cells::{CellAccess as _, MultiWriter};
use crate::gauge::shared_cells;
use crate::metric::CellLocation;
use crate::sync::{AtomicU64, Ordering};

/// Heartbeat: number of beats and time of the last one.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub(crate) cells: CellLocation,
}

impl Heartbeat {
    /// Records a beat.
    #[inline]
    pub fn beat(&self) {
        let small = self.cells.small();
        let cells =
            (shared_cells::<AtomicU64>(small), shared_cells::<AtomicU64>(small.wrapping_add(8)));
        if let (Some(beats), Some(last)) = cells {
            last.store(clock::now_unordered(), Ordering::Relaxed);
            MultiWriter::add(beats, 1);
        }
    }
}
