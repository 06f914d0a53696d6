//! What metrics have in common: a kind, and cells in each lane.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counter::{Counter, UpDown};
use crate::gauge::{FloatGauge, Gauge};
use crate::heartbeat::Heartbeat;
use crate::histogram::Histogram;
use crate::in_flight::InFlight;
use crate::layout::kind;
use crate::text::Text;

/// A kind of metric. There are no others than those of this crate.
pub trait Metric: sealed::Sealed {}

pub(crate) mod sealed {
    use super::Cells;

    pub trait Sealed: Sized {
        const KIND: u64;
        fn at(cells: Cells) -> Self;
        fn cells(&self) -> &Cells;
    }
}

/// Where the cells of a metric lie in each lane, known once it is registered.
#[derive(Debug)]
pub struct Cells(AtomicU64);

/// Not registered yet.
pub(crate) const UNKNOWN: u64 = u64::MAX;
/// There is no room for it, or it is no metric: what is recorded goes nowhere.
pub(crate) const NOWHERE: u64 = u64::MAX - 1;

impl Cells {
    pub(crate) const fn unknown() -> Cells {
        Cells(AtomicU64::new(UNKNOWN))
    }

    pub(crate) fn at(cells: u64) -> Cells {
        Cells(AtomicU64::new(cells))
    }

    pub(crate) fn set(&self, cells: u64) {
        self.0.store(cells, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Where the small ones are; beyond every lane for what is not registered.
    #[inline(always)]
    pub(crate) fn small(&self) -> usize {
        self.get() as u32 as usize
    }

    /// Where both are.
    #[inline(always)]
    pub(crate) fn both(&self) -> (usize, usize) {
        let cells = self.get();
        (cells as u32 as usize, (cells >> 32) as usize)
    }
}

impl Clone for Cells {
    fn clone(&self) -> Cells {
        Cells::at(self.get())
    }
}

macro_rules! kinds {
    ($($metric:ident $kind:ident),*) => {
        $(
            impl sealed::Sealed for $metric {
                const KIND: u64 = kind::$kind;

                #[inline(always)]
                fn at(cells: Cells) -> $metric {
                    $metric { cells }
                }

                #[inline(always)]
                fn cells(&self) -> &Cells {
                    &self.cells
                }
            }
            impl Metric for $metric {}
        )*
    };
}

kinds!(
    Counter COUNTER, UpDown UP_DOWN, Gauge GAUGE, FloatGauge FLOAT_GAUGE, Text TEXT, Histogram HISTOGRAM,
    InFlight IN_FLIGHT, Heartbeat HEARTBEAT
);
