//! What is looked at closely: the buckets of these histograms are read, of all others only how many values they have.
//!
//! Reading and subtracting buckets is nearly all that `top` costs; what is not on the screen needs none of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What is looked at closely at the next look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Close {
    /// Everything.
    pub(crate) is_all: bool,
    /// All of this process: the one that is open, or that Enter would open.
    pub(crate) process: Option<PathBuf>,
    /// The metric that the row of a process shows.
    pub(crate) rows: HashMap<PathBuf, String>,
}

impl Close {
    pub(crate) fn all() -> Close {
        Close { is_all: true, ..Close::default() }
    }

    /// Which series of a process it is about.
    pub(crate) fn of(&self, path: &Path) -> Series<'_> {
        if self.is_all || self.process.as_deref() == Some(path) {
            return Series::All;
        }
        self.rows.get(path).map_or(Series::None, |name| Series::Named(name))
    }
}

/// Some series of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Series<'a> {
    All,
    Named(&'a str),
    None,
}

impl Series<'_> {
    pub(crate) fn has(self, name: &str) -> bool {
        match self {
            Series::All => true,
            Series::Named(wanted) => name == wanted,
            Series::None => false,
        }
    }
}
