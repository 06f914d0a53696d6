//! Error type of recording and reading.

use std::io;
use std::path::PathBuf;

/// Error of recording or reading shared-memory metrics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Recording is disabled.
    #[error("shared-memory metrics are disabled (TOPDECK_SHM=off)")]
    Disabled,
    /// An earlier attempt to create the file failed; the next attempt follows later.
    #[error("cannot create the metrics file: {reason}")]
    Unavailable {
        /// Cause.
        reason: String,
    },
    /// A system call failed.
    #[error("{action} {}: {cause}", path.display())]
    Io {
        /// Failed operation.
        action: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// The directory is on a disk, where a write may block.
    #[error("cannot use {}: not on tmpfs, metrics could block on a disk; set TOPDECK_SHM to a \
             directory on tmpfs", path.display())]
    NotInMemory {
        /// The directory.
        path: PathBuf,
    },
    /// Another user could write to the directory.
    #[error("cannot use {}: owner {owner}, mode {mode:o}, expected owner {uid} and no write \
             access for others; remove it or set TOPDECK_SHM", path.display())]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// Expected owner.
        uid: u32,
    },
    /// The file system is full.
    #[error(
        "cannot reserve {bytes} bytes in {}: {cause}; free space or enlarge the file system",
        path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Requested size.
        bytes: usize,
        /// Cause.
        cause: io::Error,
    },
    /// The metric table is full.
    #[error("cannot register metric {name:?}: metric table full, limit {limit}")]
    LimitReached {
        /// The metric.
        name: String,
        /// The limit, as text.
        limit: &'static str,
    },
    /// Invalid name.
    #[error("invalid metric {name:?}: {reason}")]
    InvalidName {
        /// The metric.
        name: String,
        /// Cause.
        reason: &'static str,
    },
    /// Two definitions of one metric disagree.
    #[error("cannot register metric {name:?}: it exists with another kind or unit")]
    Conflict {
        /// The metric.
        name: String,
    },
    /// Not a metrics file, or not yet complete: its process may be creating it.
    #[error("{} is not a metrics file: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// Created by a newer topdeck.
    #[error("cannot read {}: format version {found} with features {features:#x}, supported \
             {supported} without features; use a newer topdeck", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// Feature bits that a reader must support.
        features: u64,
        /// Supported version.
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

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
