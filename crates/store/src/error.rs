//! Error type.

use std::io;
use std::path::{Path, PathBuf};

/// Result of store operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("{path}: cannot {action}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The folder holds no store.
    #[error("{}: there is no store here", dir.display())]
    NotFound {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder holds a store where a snapshot is required.
    #[error("{}: this is a store, not a snapshot of one; `topdeck store snapshot` makes one", dir.display())]
    NotASnapshot {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder already holds a store.
    #[error("{}: there is a store here already", dir.display())]
    AlreadyExists {
        /// The folder.
        dir: PathBuf,
    },
    /// A file was written by a newer topdeck.
    #[error("{}: has format version {found}, this topdeck reads version {supported}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version this program supports.
        supported: u32,
    },
    /// Another process has the store open.
    #[error("{}: the store is open in another process; it must be closed there first", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// Manifest and copy are both corrupt.
    #[error("{}: {reason}, nor is its copy whole; put one of them back, or make a store of a \
             snapshot with `topdeck store restore`", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// Stored bytes are corrupt.
    #[error("{location}: {reason}")]
    Damage {
        /// File and location in it.
        location: String,
        /// The cause.
        reason: String,
    },
    /// The journal beside the store is not the one that the store was fed from.
    #[error("{}: this journal is number {found:032x}, the store was fed from {expected:032x}; put \
             the right one back, or restore store and journal together", dir.display())]
    WrongJournal {
        /// The journal's folder.
        dir: PathBuf,
        /// Id of that journal.
        found: u128,
        /// Id that the store expects.
        expected: u128,
    },
    /// A batch names a series by an id that the store does not know; the sender must send canonical
    /// keys.
    #[error("series {id} is not known here; send the batch with the series' form")]
    UnknownSeries {
        /// The id.
        id: model::SeriesId,
    },
    /// A batch or its content is invalid: sender error.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The series has a different point-in-time histogram at the same timestamp.
    #[error(
        "series {series} has another histogram at {time} ns already; \
         a point-in-time histogram is one sample, the first that came is kept"
    )]
    ConflictingPoint {
        /// The series.
        series: model::SeriesId,
        /// The timestamp, in nanoseconds since the Unix epoch.
        time: i64,
    },
    /// A limit on series was reached.
    #[error(transparent)]
    Cardinality(#[from] crate::index::CardinalityError),
    /// A journal operation failed.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// A query exceeds a limit.
    #[error("{limit}: {found}, allowed are {max}; {remedy}")]
    QueryTooExpensive {
        /// The limited quantity.
        limit: &'static str,
        /// The requested amount.
        found: u64,
        /// The limit.
        max: u64,
        /// The remedy.
        remedy: &'static str,
    },
    /// The read was cancelled: [`crate::ReadView::with_cancellation`].
    #[error("reading took longer than it may; ask for less, or raise timeout")]
    Cancelled,
    /// A setting is out of range.
    #[error("{name} is {found}, must be {expected}")]
    InvalidSetting {
        /// The setting.
        name: &'static str,
        /// Rejected value.
        found: String,
        /// Allowed values.
        expected: &'static str,
    },
    /// A maintenance task panicked: a bug. Other maintenance goes on.
    #[error(
        "{action} met a defect of topdeck and is tried again in {seconds} s; please report it: \
         {message}"
    )]
    MaintenancePanicked {
        /// The task and its object.
        action: String,
        /// The panic message.
        message: String,
        /// Time until the retry.
        seconds: u64,
    },
    /// The store is closing: unfinished work is discarded and repeated after the next opening.
    #[error("the store is being closed")]
    Closing,
    /// Fail-stop: an earlier error left memory and disk inconsistent; reopening the store recovers.
    #[error("the store stopped after an error: {reason}; open it again")]
    FailStop {
        /// The earlier error.
        reason: String,
    },
}

/// Adds the action and the path to an I/O error.
pub(crate) trait IoContext<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.to_owned(), action: doing, source })
    }
}
