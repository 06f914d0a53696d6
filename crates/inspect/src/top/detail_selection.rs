//! Detail selection: histograms whose buckets are read.
//!
//! Reading and subtracting buckets is nearly all that `top` costs; what is not on the screen needs
//! none of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Series to read in detail with the next sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetailSelection {
    /// Everything.
    pub(crate) is_all: bool,
    /// All of this process: the one that is open, or that Enter would open.
    pub(crate) process: Option<PathBuf>,
    /// The metric that the row of a process shows.
    pub(crate) rows: HashMap<PathBuf, String>,
}

impl DetailSelection {
    /// All histograms.
    pub fn all() -> DetailSelection {
        DetailSelection { is_all: true, ..DetailSelection::default() }
    }

    /// Which series of a process it is about.
    pub(crate) fn series_of(&self, path: &Path) -> SeriesSelection<'_> {
        if self.is_all || self.process.as_deref() == Some(path) {
            return SeriesSelection::All;
        }
        self.rows.get(path).map_or(SeriesSelection::None, |name| SeriesSelection::Named(name))
    }
}

/// Some series of a process.
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
