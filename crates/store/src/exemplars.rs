//! Exemplars of the last hour: a sample of the requests of each series, minute and size.
//!
//! They are a side record of batches: read from the journal with the samples, kept in memory within
//! a budget, and saved in a file of the store's directory before records leave the journal.

mod exemplar_file;
mod reservoir;
mod selection;

use std::collections::HashSet;
use std::ops::Range;

use model::SeriesId;

use crate::resolution::HOUR;

pub(crate) use exemplar_file::{ExemplarFile, encode};
pub(crate) use reservoir::Reservoir;
pub use reservoir::{EXEMPLAR_AHEAD_MAX, ExemplarCounts, ExemplarStat};
pub use selection::{ExemplarSelection, SelectedExemplar};
pub(crate) use selection::{choose, collect, complete};

/// How exemplars are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExemplarOptions {
    /// Maximum memory in bytes: 32 MiB by default. Beyond it the oldest minutes are evicted; 0
    /// keeps none.
    pub bytes_max: usize,
    /// How long they are kept, in nanoseconds: one hour by default.
    pub retention: i64,
}

impl ExemplarOptions {
    /// Keeps all: for programs that open a store for a while, and must not remove what its owner
    /// keeps.
    pub fn unlimited() -> ExemplarOptions {
        ExemplarOptions { bytes_max: usize::MAX, retention: i64::MAX }
    }
}

impl Default for ExemplarOptions {
    fn default() -> ExemplarOptions {
        ExemplarOptions { bytes_max: 32 << 20, retention: HOUR }
    }
}

impl ExemplarRequest {
    /// Memory that each exemplar of the store takes at most while exemplars are selected.
    pub const CANDIDATE_BYTES: u64 = 2 * size_of::<selection::WeightedCandidate>() as u64;
}

/// Which exemplars are selected.
#[derive(Clone, Debug)]
pub struct ExemplarRequest {
    /// Their series.
    pub series: HashSet<SeriesId>,
    /// Their times.
    pub range: Range<i64>,
    /// Lower bound of their values, exclusive.
    pub above: f64,
    /// Upper bound of their values, inclusive.
    pub up_to: f64,
    /// Maximum number. More are sampled by weight, with the largest.
    pub limit: usize,
}
