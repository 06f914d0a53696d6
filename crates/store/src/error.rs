//! Error type.

use std::path::PathBuf;

/// Result of store operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] disk::FileError),
    /// The directory holds no store.
    #[error("cannot open store {}: not found", dir.display())]
    NotFound {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory holds a store where a snapshot is required.
    #[error("cannot restore {}: it is a store, not a snapshot; make one with `topdeck store \
             snapshot`", dir.display())]
    NotASnapshot {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory already holds a store.
    #[error("cannot create store {}: it already exists", dir.display())]
    AlreadyExists {
        /// The directory.
        dir: PathBuf,
    },
    /// A file was written by a newer topdeck.
    #[error("cannot read {}: format version {found}, supported {supported}; use a newer topdeck",
            path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version this program supports.
        supported: u32,
    },
    /// Another process has the store open.
    #[error("cannot open store {}: in use by another process; close it there first",
            dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// Manifest and copy are both corrupt.
    #[error("cannot read manifest {}: {reason}, and its copy is corrupt; restore one of them or \
             run `topdeck store restore`", path.display())]
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
    #[error("cannot open journal {}: its id is {found:032x}, the store expects {expected:032x}; \
             restore the matching journal, or store and journal together", dir.display())]
    WrongJournal {
        /// The journal's directory.
        dir: PathBuf,
        /// Id of that journal.
        found: u128,
        /// Id that the store expects.
        expected: u128,
    },
    /// A batch names a series by an id that the store does not know; the sender must send canonical
    /// keys.
    #[error("unknown series {id}; send the batch with canonical keys")]
    UnknownSeries {
        /// The id.
        id: model::SeriesId,
    },
    /// A batch or its content is invalid: sender error.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The series has a different gauge histogram at the same timestamp.
    #[error(
        "series {series} already has another histogram at {time} ns; the first gauge histogram \
         is kept"
    )]
    ConflictingGaugeHistogram {
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
    #[error("{limit}: {found}, limit {max}; {remedy}")]
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
    #[error("read timed out; reduce the range or raise `timeout`")]
    Cancelled,
    /// A setting is out of range.
    #[error("invalid {name}: {found}, must be {expected}")]
    InvalidSetting {
        /// The setting.
        name: &'static str,
        /// Rejected value.
        found: String,
        /// Allowed values.
        expected: &'static str,
    },
    /// A maintenance task panicked: a bug. Other maintenance goes on.
    #[error("{action} panicked and is retried in {seconds} s, please report this bug: {message}")]
    MaintenancePanicked {
        /// The task and its object.
        action: String,
        /// The panic message.
        message: String,
        /// Time until the retry.
        seconds: u64,
    },
    /// The store is closing: unfinished work is discarded and repeated after the next opening.
    #[error("store is closing")]
    Closing,
    /// Fail-stop: an earlier error left memory and disk inconsistent; reopening the store recovers.
    #[error("store fail-stop after an error: {reason}; reopen it")]
    FailStop {
        /// The earlier error.
        reason: String,
    },
}
