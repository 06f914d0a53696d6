//! Error type.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::settings::LimitPolicy;

/// The result of most operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of the journal.
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

    /// There is no journal in the folder: the caller has the wrong one, or has not created it.
    #[error("{}: there is no journal here; `topdeck journal create` makes one", dir.display())]
    NotFound {
        /// The folder.
        dir: PathBuf,
    },

    /// The folder has a journal already.
    #[error("{}: there is a journal here already", dir.display())]
    AlreadyExists {
        /// The folder.
        dir: PathBuf,
    },

    /// Both copies of the settings are damaged, or their file is missing, and segments are there.
    #[error("{}: both copies of the settings are missing or damaged; `topdeck journal repair` \
             restores them from the segments", path.display())]
    SettingsLost {
        /// The settings file.
        path: PathBuf,
    },

    /// A file was written by a newer topdeck.
    #[error("{}: has format version {found}, this topdeck reads versions up to {supported}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version this program knows.
        supported: u32,
    },

    /// A setting is out of range.
    #[error("{name} is {found}, must be {expected}")]
    InvalidSetting {
        /// The setting.
        name: &'static str,
        /// Its value, with its unit.
        found: String,
        /// What it may be.
        expected: String,
    },

    /// Another process has the journal and one of the two wants it alone.
    #[error("{}: the journal is in use by another process{}", dir.display(), if *.is_exclusive { "; it must be closed there first" } else { ", which opened it for itself alone" })]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// Whether it is this caller who wants to be alone.
        is_exclusive: bool,
    },

    /// Too many processes (or handles) have the journal open.
    #[error("{}: already open {max} times, which is the most", dir.display())]
    TooManyHandles {
        /// The folder.
        dir: PathBuf,
        /// The most there may be.
        max: usize,
    },

    /// A record, or the batch it is in, is larger than a segment can hold.
    #[error(
        "batch of {found} bytes does not fit: this journal takes {max} at once (a quarter of its \
         segment size)"
    )]
    TooLarge {
        /// The encoded size in bytes.
        found: u64,
        /// The largest that is accepted.
        max: u64,
    },

    /// The journal has reached its limit and may not drop what is needed: nothing was appended.
    #[error("the journal is full: {0}")]
    Full(#[from] FullReason),

    /// The buffer is full and whoever empties it has not done so in time, or another process was
    /// stopped while it was appending: nothing was appended.
    #[error(
        "the journal's buffer took nothing for {waited:?}: the process that writes it to disk, or \
         one that was appending, does not get on"
    )]
    AppendTimeout {
        /// How long the append waited.
        waited: Duration,
    },

    /// A batch that does not fit the buffer must be written by the process that writes segments,
    /// and that is another one.
    #[error(
        "another process writes this journal's segments, so that only batches of up to {max} \
         bytes can be appended here (half its buffer)"
    )]
    NotWriter {
        /// The largest batch this process can append now.
        max: u64,
    },

    /// A write or sync failed before: the writer acknowledges nothing any more. Data that were
    /// acknowledged before are not concerned. Close the journal everywhere and open it again when
    /// the disk is sound.
    #[error(
        "the journal stopped after a failed write or sync and acknowledges nothing; when the disk \
         is sound again, restart the processes that have it open"
    )]
    Poisoned,

    /// No checkpoint or subscriber has this name.
    #[error("no subscriber or checkpoint is named {name:?}")]
    NoCheckpoint {
        /// The name asked for.
        name: String,
    },

    /// A checkpoint of this name exists.
    #[error("there is a subscriber or checkpoint named {name:?} already")]
    CheckpointExists {
        /// The name.
        name: String,
    },

    /// The name cannot be a subscriber's or checkpoint's.
    #[error("the name {name:?} has {found} bytes, may have 1 to {max}")]
    InvalidName {
        /// The name.
        name: String,
        /// Its length in bytes.
        found: usize,
        /// The longest.
        max: usize,
    },

    /// Another reader is using the subscriber.
    #[error("subscriber {name:?} is in use by another reader")]
    SubscriberBusy {
        /// The subscriber.
        name: String,
    },

    /// Both copies of a checkpoint are damaged.
    #[error("{}: both copies of the checkpoint are damaged; set it anew, or `topdeck journal \
             repair` resets it to the first record kept", path.display())]
    CheckpointCorrupt {
        /// Its file.
        path: PathBuf,
    },

    /// A commit beyond what was read.
    #[error("position {found} cannot be committed: reading has come to {read_to}")]
    CommitBeyondRead {
        /// The position.
        found: u64,
        /// Where reading is.
        read_to: u64,
    },

    /// A position that the journal does not have.
    #[error("position {found} is not in the journal, which has {first} to {end}")]
    PositionOutOfRange {
        /// The position asked for.
        found: u64,
        /// The first record kept.
        first: u64,
        /// The position after the last.
        end: u64,
    },
}

impl Error {
    /// The system had no descriptor or memory left to ask it for something.
    pub(crate) fn is_shortage(&self) -> bool {
        const SHORTAGE_ERRNOS: [rustix::io::Errno; 3] =
            [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOMEM];
        let is_short = |os| SHORTAGE_ERRNOS.iter().any(|short| short.raw_os_error() == os);
        matches!(self, Error::Io { source, .. } if source.raw_os_error().is_some_and(is_short))
    }

    /// A file is not there (any more).
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Why the journal is full.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FullReason {
    /// Its own limit, and what is kept is needed.
    #[error("its segments take {used_bytes} bytes, the limit is {max_bytes}{}", describe_holder(holder, *policy))]
    RetentionLimit {
        /// What the segments take.
        used_bytes: u64,
        /// What they may take.
        max_bytes: u64,
        /// The subscriber or checkpoint that is furthest behind, if any.
        holder: Option<String>,
        /// What the journal does at its limit.
        policy: LimitPolicy,
    },
    /// The disk's.
    #[error("there is no space left on the disk for another segment")]
    NoSpace,
}

fn describe_holder(holder: &Option<String>, policy: LimitPolicy) -> String {
    match (holder, policy) {
        (Some(name), LimitPolicy::Reject) => {
            format!(
                " and {name:?} has not read the oldest; let it catch up, remove it, or raise the \
                 limit"
            )
        }
        (None, LimitPolicy::Reject) => {
            " and nobody has subscribed, so nothing may go; subscribe, or raise the limit"
                .to_owned()
        }
        (_, LimitPolicy::DropOldest) => {
            ", which leaves no room for a second segment; raise the limit".to_owned()
        }
    }
}

/// Adds the operation and the path to an `io::Error`.
pub(crate) trait IoContext<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.to_owned(), action: doing, source })
    }
}
