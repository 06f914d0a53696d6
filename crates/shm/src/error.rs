//! Error type of recording and reading.

use std::io;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is to be recorded.
    #[error("shared-memory metrics are disabled (TOPDECK_SHM=off)")]
    Disabled,
    /// It could not be made a while ago, and another attempt comes later.
    #[error("there is no file of metrics: {reason}")]
    Unavailable {
        /// What was wrong.
        reason: String,
    },
    /// The world did something.
    #[error("{action} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What came of it.
        cause: io::Error,
    },
    /// It would be on a disk, where a write can wait for the disk.
    #[error("cannot use {}: not on tmpfs, metrics could block on a disk; set TOPDECK_SHM to a \
             folder on tmpfs", path.display())]
    NotInMemory {
        /// The folder.
        path: PathBuf,
    },
    /// Somebody else could write there.
    #[error("cannot use {}: owner {owner}, mode {mode:o}, expected owner {uid} and no write \
             access for others; remove it or set TOPDECK_SHM", path.display())]
    ForeignOwner {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// What may be done with it.
        mode: u32,
        /// Whose it should be.
        uid: u32,
    },
    /// The file system is full.
    #[error("cannot reserve {bytes} bytes in {}: {cause}; free space or enlarge the file system", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// What it needed.
        bytes: usize,
        /// What was said.
        cause: io::Error,
    },
    /// The metric would be the one too many.
    #[error("cannot register metric {name:?}: metric table full, limit {limit}")]
    LimitReached {
        /// The metric.
        name: String,
        /// What there is room for, in words.
        limit: &'static str,
    },
    /// A name that nothing can have.
    #[error("metric {name:?}: {reason}")]
    InvalidName {
        /// The metric.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Two parts of the program disagree.
    #[error("cannot register metric {name:?}: it exists with another kind or unit")]
    Conflict {
        /// The metric.
        name: String,
    },
    /// The file is not what it says it is, or not yet: its process may be making it now.
    #[error("{} is no file of metrics: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Made by a later topdeck.
    #[error("{} has version {found} of the format with features {features:#x}; this topdeck reads \
             version {supported} without any: take a later one", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// Features that a reader must know.
        features: u64,
        /// What is known.
        supported: u64,
    },
}

impl Error {
    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |cause| Error::Io { action: doing, path, cause }
    }
}

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;
