//! Heartbeats: that something still runs.

use crate::cells::{Access as _, Shared};
use crate::gauge::of_lane_0;
use crate::metric::Cells;
use crate::sync::{AtomicU64, Ordering};

/// A sign of life: how often it came, and when it last did.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub(crate) cells: Cells,
}

impl Heartbeat {
    /// Still here.
    #[inline]
    pub fn beat(&self) {
        let small = self.cells.small();
        let cells = (of_lane_0::<AtomicU64>(small), of_lane_0::<AtomicU64>(small.wrapping_add(8)));
        if let (Some(beats), Some(last)) = cells {
            last.store(clock::now_relaxed(), Ordering::Relaxed);
            Shared::add(beats, 1);
        }
    }
}
