//! Common part of metric handles: kind and cell offsets.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counter::{Counter, UpDownCounter};
use crate::gauge::{FloatGauge, Gauge};
use crate::heartbeat::Heartbeat;
use crate::histogram::Histogram;
use crate::in_flight::InFlight;
use crate::layout::kind;
use crate::text::TextMetric;

/// Handle of a registered metric. Only types of this crate implement it.
pub trait MetricHandle: sealed::Sealed {}

pub(crate) mod sealed {
    use super::CellLocation;

    pub trait Sealed: Sized {
        const KIND: u64;
        fn at(cells: CellLocation) -> Self;
        fn cells(&self) -> &CellLocation;
    }
}

/// Offsets of a metric's cells in each lane.
#[derive(Debug)]
pub struct CellLocation(AtomicU64);

/// Not registered yet.
pub(crate) const UNKNOWN: u64 = u64::MAX;
/// No space, or an invalid metric: records are dropped.
pub(crate) const NOWHERE: u64 = u64::MAX - 1;

impl CellLocation {
    pub(crate) const fn unknown() -> CellLocation {
        CellLocation(AtomicU64::new(UNKNOWN))
    }

    pub(crate) fn at(cells: u64) -> CellLocation {
        CellLocation(AtomicU64::new(cells))
    }

    pub(crate) fn set(&self, cells: u64) {
        self.0.store(cells, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Offset of the small cells; beyond every lane if not registered.
    #[inline(always)]
    pub(crate) fn small(&self) -> usize {
        self.get() as u32 as usize
    }

    /// Offsets of small and large cells.
    #[inline(always)]
    pub(crate) fn offsets(&self) -> (usize, usize) {
        let cells = self.get();
        (cells as u32 as usize, (cells >> 32) as usize)
    }
}

impl Clone for CellLocation {
    fn clone(&self) -> CellLocation {
        CellLocation::at(self.get())
    }
}

macro_rules! kinds {
    ($($metric:ident $kind:ident),*) => {
        $(
            impl sealed::Sealed for $metric {
                const KIND: u64 = kind::$kind;

                #[inline(always)]
                fn at(cells: CellLocation) -> $metric {
                    $metric { cells }
                }

                #[inline(always)]
                fn cells(&self) -> &CellLocation {
                    &self.cells
                }
            }
            impl MetricHandle for $metric {}
        )*
    };
}

kinds!(
    Counter COUNTER, UpDownCounter UP_DOWN, Gauge GAUGE, FloatGauge FLOAT_GAUGE, TextMetric TEXT, Histogram HISTOGRAM,
    InFlight IN_FLIGHT, Heartbeat HEARTBEAT
);
