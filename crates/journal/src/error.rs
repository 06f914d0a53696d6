//! Error type.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::settings::LimitPolicy;

/// Result of journal operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of the journal.
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

    /// The directory holds no journal: wrong directory, or not created yet.
    #[error("{}: there is no journal here; `topdeck journal create` makes one", dir.display())]
    NotFound {
        /// The folder.
        dir: PathBuf,
    },

    /// The directory already holds a journal.
    #[error("{}: there is a journal here already", dir.display())]
    AlreadyExists {
        /// The folder.
        dir: PathBuf,
    },

    /// Both copies of the settings are corrupt, or the file is missing while segments exist.
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
        /// The newest version this program supports.
        supported: u32,
    },

    /// A setting is out of range.
    #[error("{name} is {found}, must be {expected}")]
    InvalidSetting {
        /// Setting.
        name: &'static str,
        /// Rejected value, with unit.
        found: String,
        /// Allowed values.
        expected: String,
    },

    /// Another process has the journal open, and one of the two requires exclusive access.
    #[error("{}: the journal is in use by another process{}", dir.display(), if *.is_exclusive { "; it must be closed there first" } else { ", which opened it for itself alone" })]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// Whether this caller requires exclusive access.
        is_exclusive: bool,
    },

    /// Too many open handles in all processes together.
    #[error("{}: already open {max} times, which is the most", dir.display())]
    TooManyHandles {
        /// The folder.
        dir: PathBuf,
        /// Limit.
        max: usize,
    },

    /// The batch is larger than a segment can hold.
    #[error(
        "batch of {found} bytes does not fit: this journal takes {max} at once (a quarter of its \
         segment size)"
    )]
    TooLarge {
        /// Encoded size in bytes.
        found: u64,
        /// Limit in bytes.
        max: u64,
    },

    /// The journal is at its limit and may not drop unread records: nothing was appended.
    #[error("the journal is full: {0}")]
    Full(#[from] FullReason),

    /// The buffer is full and was not flushed in time, or another process was stopped during an
    /// append: nothing was appended.
    #[error(
        "the journal's buffer took nothing for {waited:?}: the process that writes it to disk, or \
         one that was appending, does not get on"
    )]
    AppendTimeout {
        /// Time waited.
        waited: Duration,
    },

    /// A batch larger than the buffer can only be written by the process that writes segments,
    /// which is another one.
    #[error(
        "another process writes this journal's segments, so that only batches of up to {max} \
         bytes can be appended here (half its buffer)"
    )]
    NotWriter {
        /// Largest batch this process can append now, in bytes.
        max: u64,
    },

    /// Fail-stop: a write or fsync failed, and the journal acknowledges nothing more. Data
    /// acknowledged before is not affected. When the disk works again, close the journal in all
    /// processes and reopen it.
    #[error(
        "the journal stopped after a failed write or sync and acknowledges nothing; when the disk \
         is sound again, restart the processes that have it open"
    )]
    Poisoned,

    /// No checkpoint or subscriber has this name.
    #[error("no subscriber or checkpoint is named {name:?}")]
    NoCheckpoint {
        /// Requested name.
        name: String,
    },

    /// A checkpoint with this name exists.
    #[error("there is a subscriber or checkpoint named {name:?} already")]
    CheckpointExists {
        /// Name.
        name: String,
    },

    /// Invalid name of a subscriber or checkpoint.
    #[error("the name {name:?} has {found} bytes, may have 1 to {max}")]
    InvalidName {
        /// Name.
        name: String,
        /// Length in bytes.
        found: usize,
        /// Limit in bytes.
        max: usize,
    },

    /// The subscriber is in use by another reader.
    #[error("subscriber {name:?} is in use by another reader")]
    SubscriberBusy {
        /// Subscriber.
        name: String,
    },

    /// Both copies of a checkpoint are corrupt.
    #[error("{}: both copies of the checkpoint are damaged; set it anew, or `topdeck journal \
             repair` resets it to the first record kept", path.display())]
    CheckpointCorrupt {
        /// Checkpoint file.
        path: PathBuf,
    },

    /// Commit beyond the read position.
    #[error("position {found} cannot be committed: reading has come to {read_to}")]
    CommitBeyondRead {
        /// Requested position.
        found: u64,
        /// Read position.
        read_to: u64,
    },

    /// Position out of range.
    #[error("position {found} is not in the journal, which has {first} to {end}")]
    PositionOutOfRange {
        /// Requested position.
        found: u64,
        /// First retained record.
        first: u64,
        /// Position after the last record.
        end: u64,
    },
}

impl Error {
    /// Whether the system was out of file descriptors or memory, so that the operation was not
    /// attempted.
    pub(crate) fn is_shortage(&self) -> bool {
        const SHORTAGE_ERRNOS: [rustix::io::Errno; 3] =
            [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOMEM];
        let is_short = |os| SHORTAGE_ERRNOS.iter().any(|short| short.raw_os_error() == os);
        matches!(self, Error::Io { source, .. } if source.raw_os_error().is_some_and(is_short))
    }

    /// Whether the file does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Why the journal is full.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FullReason {
    /// Size limit reached, and the records are still needed.
    #[error("its segments take {used_bytes} bytes, the limit is {max_bytes}{}", describe_holder(holder, *policy))]
    RetentionLimit {
        /// Bytes used by segments.
        used_bytes: u64,
        /// Limit in bytes.
        max_bytes: u64,
        /// The subscriber or checkpoint that is furthest behind, if any.
        holder: Option<String>,
        /// Policy at the limit.
        policy: LimitPolicy,
    },
    /// The disk is full.
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

/// Adds the action and the path to an I/O error.
pub(crate) trait IoContext<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.to_owned(), action: doing, source })
    }
}
