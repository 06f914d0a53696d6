//! Detail selection: histograms whose buckets are read.
//!
//! Reading and subtracting buckets is nearly the whole cost of `top`; series that are not on the
//! screen do not need it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Series to read in detail with the next sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetailSelection {
    /// All series.
    pub(crate) is_all: bool,
    /// All series of this process: the open one, or the one that Enter would open.
    pub(crate) process: Option<PathBuf>,
    /// Metric in the row of each process.
    pub(crate) rows: HashMap<PathBuf, String>,
}

impl DetailSelection {
    /// All histograms.
    pub fn all() -> DetailSelection {
        DetailSelection { is_all: true, ..DetailSelection::default() }
    }

    /// Selected series of a process.
    pub(crate) fn series_of(&self, path: &Path) -> SeriesSelection<'_> {
        if self.is_all || self.process.as_deref() == Some(path) {
            return SeriesSelection::All;
        }
        self.rows.get(path).map_or(SeriesSelection::None, |name| SeriesSelection::Named(name))
    }
}

/// Selection within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesSelection<'a> {
    All,
    Named(&'a str),
    None,
}

impl SeriesSelection<'_> {
    pub(crate) fn contains(self, name: &str) -> bool {
        match self {
            SeriesSelection::All => true,
            SeriesSelection::Named(wanted) => name == wanted,
            SeriesSelection::None => false,
        }
    }
}
