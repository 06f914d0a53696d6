//! Error type.

use std::io;
use std::path::{Path, PathBuf};

/// The result of most operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation on a file.
    #[error("{path}: cannot {action}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no store in the folder.
    #[error("{}: there is no store here", dir.display())]
    NotFound {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder has a store, and what is wanted is a snapshot of one.
    #[error("{}: this is a store, not a snapshot of one; `topdeck store snapshot` makes one", dir.display())]
    NotASnapshot {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder has a store already.
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
        /// The version this program knows.
        supported: u32,
    },
    /// Another process has the store open.
    #[error("{}: the store is open in another process; it must be closed there first", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// The manifest and the copy before it are both damaged.
    #[error("{}: {reason}, nor is its copy whole; put one of them back, or make a store of a \
             snapshot with `topdeck store restore`", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Bytes that are not what was written.
    #[error("{location}: {reason}")]
    Damage {
        /// Which file, and where in it.
        location: String,
        /// What is wrong.
        reason: String,
    },
    /// The journal beside the store is another one than the store was fed from.
    #[error("{}: this journal is number {found:032x}, the store was fed from {expected:032x}; put \
             the right one back, or restore store and journal together", dir.display())]
    WrongJournal {
        /// The journal's folder.
        dir: PathBuf,
        /// Its number.
        found: u128,
        /// The one the store knows.
        expected: u128,
    },
    /// A batch names a series by a number that the store does not know: send its form.
    #[error("series {id} is not known here; send the batch with the series' form")]
    UnknownSeries {
        /// The number.
        id: model::SeriesId,
    },
    /// A batch, or what it holds, is refused: the sender is to blame.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// A series has another point-in-time histogram at the same moment: both cannot be true.
    #[error(
        "series {series} has another histogram at {time} ns already; \
         a point-in-time histogram is one sample, the first that came is kept"
    )]
    ConflictingPoint {
        /// The series.
        series: model::SeriesId,
        /// The moment, in nanoseconds since the Unix epoch.
        time: i64,
    },
    /// A limit on series was reached.
    #[error(transparent)]
    Cardinality(#[from] crate::index::CardinalityError),
    /// The journal could not take or give a record.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// A question that costs more than it may.
    #[error("{limit}: {found}, allowed are {max}; {remedy}")]
    QueryTooExpensive {
        /// What there is too much of.
        limit: &'static str,
        /// How much.
        found: u64,
        /// How much there may be.
        max: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// Nobody waits for what is read any more: [`crate::View::until`].
    #[error("reading took longer than it may; ask for less, or raise timeout")]
    Cancelled,
    /// A setting is out of range.
    #[error("{name} is {found}, must be {expected}")]
    InvalidSetting {
        /// The setting.
        name: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A piece of maintenance panicked: topdeck has a defect there. The rest is kept in order.
    #[error(
        "{action} met a defect of topdeck and is tried again in {seconds} s; please report it: \
         {message}"
    )]
    MaintenancePanicked {
        /// What was being done, and to what.
        action: String,
        /// What the panic said.
        message: String,
        /// When it is tried again.
        seconds: u64,
    },
    /// The store is being closed: what was begun is left as it was before, and done after the next
    /// opening.
    #[error("the store is being closed")]
    Closing,
    /// An earlier error left memory and disk apart; opening the store again brings them together.
    #[error("the store stopped after an error: {reason}; open it again")]
    FailStop {
        /// The error.
        reason: String,
    },
}

/// Says what was being done to which file.
pub(crate) trait IoContext<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.to_owned(), action: doing, source })
    }
}
