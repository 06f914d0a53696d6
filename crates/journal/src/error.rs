//! Error type.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::LimitPolicy;

/// Result of journal operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of the journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] disk::FileError),

    /// The directory holds no journal: wrong directory, or not created yet.
    #[error(
        "cannot open journal {}: not found; create it with `topdeck journal create`",
        dir.display()
    )]
    NotFound {
        /// The directory.
        dir: PathBuf,
    },

    /// The directory already holds a journal.
    #[error("cannot create journal {}: it already exists", dir.display())]
    AlreadyExists {
        /// The directory.
        dir: PathBuf,
    },

    /// Both copies of the settings are corrupt, or the file is missing while segments exist.
    #[error("cannot read {}: both settings copies are missing or corrupt; run `topdeck journal \
             repair`", path.display())]
    SettingsLost {
        /// The settings file.
        path: PathBuf,
    },

    /// A file was written by a newer topdeck.
    #[error("cannot read {}: format version {found}, supported up to {supported}; use a newer \
             topdeck", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version this program supports.
        supported: u32,
    },

    /// A setting is out of range.
    #[error("invalid {name}: {found}, must be {expected}")]
    InvalidSetting {
        /// Setting.
        name: &'static str,
        /// Rejected value, with unit.
        found: String,
        /// Allowed values.
        expected: String,
    },

    /// Another process has the journal open, and one of the two requires exclusive access.
    #[error("cannot open journal {}: in use by another process{}", dir.display(),
            if *.is_exclusive { "; close it there first" } else { " with exclusive access" })]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Whether this caller requires exclusive access.
        is_exclusive: bool,
    },

    /// Too many open handles in all processes together.
    #[error("cannot open journal {}: open handles limit ({max}) reached", dir.display())]
    TooManyHandles {
        /// The directory.
        dir: PathBuf,
        /// Limit.
        max: usize,
    },

    /// The batch is larger than a segment can hold.
    #[error(
        "cannot append batch of {found} bytes: limit ({max} bytes, a quarter of the segment size) \
         exceeded; split it"
    )]
    TooLarge {
        /// Encoded size in bytes.
        found: u64,
        /// Limit in bytes.
        max: u64,
    },

    /// The journal is at its limit and may not drop unread records: nothing was appended.
    #[error("journal full: {0}")]
    Full(#[from] FullReason),

    /// The buffer is full and was not flushed in time, or another process was stopped during an
    /// append: nothing was appended.
    #[error(
        "append timed out after {waited:?}: the buffer is full and the flushing process, or \
         another appender, is stopped or blocked"
    )]
    AppendTimeout {
        /// Time waited.
        waited: Duration,
    },

    /// A batch larger than the buffer can only be written by the process that writes segments,
    /// which is another one.
    #[error(
        "batch exceeds {max} bytes (half the buffer): only the process that writes segments can \
         append larger batches"
    )]
    NotWriter {
        /// Largest batch this process can append now, in bytes.
        max: u64,
    },

    /// Fail-stop: a write or fsync failed, and the journal acknowledges nothing more. Data
    /// acknowledged before is not affected. When the disk works again, close the journal in all
    /// processes and reopen it.
    #[error(
        "journal fail-stop: a write or sync failed; fix the disk, then restart the processes that \
         use it"
    )]
    FailStop,

    /// No checkpoint or subscriber has this name.
    #[error("checkpoint or subscriber {name:?} not found")]
    NoCheckpoint {
        /// Requested name.
        name: String,
    },

    /// A checkpoint with this name exists.
    #[error("checkpoint or subscriber {name:?} already exists")]
    CheckpointExists {
        /// Name.
        name: String,
    },

    /// Invalid name of a subscriber or checkpoint.
    #[error("invalid name {name:?}: {found} bytes, allowed 1 to {max}")]
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
    CheckpointLocked {
        /// Subscriber.
        name: String,
    },

    /// Both copies of a checkpoint are corrupt.
    #[error("cannot read checkpoint {}: both superblock copies are corrupt; set it again or run \
             `topdeck journal repair`", path.display())]
    CheckpointCorrupt {
        /// Checkpoint file.
        path: PathBuf,
    },

    /// Commit beyond the read position.
    #[error("cannot commit position {found}: read position is {read_to}")]
    CommitBeyondRead {
        /// Requested position.
        found: u64,
        /// Read position.
        read_to: u64,
    },

    /// Position out of range.
    #[error("position {found} is out of range: the journal holds {first}..{end}")]
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
        matches!(self, Error::Io(error) if error.source.raw_os_error().is_some_and(is_short))
    }

    /// Whether the file does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Error::Io(error) if error.is_not_found())
    }
}

/// Why the journal is full.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FullReason {
    /// Size limit reached, and the records are still needed.
    #[error(
        "segments use {used_bytes} bytes, limit {max_bytes}{}",
        describe_holder(holder, *policy)
    )]
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
    #[error("no space left on the disk for another segment")]
    NoSpace,
}

fn describe_holder(holder: &Option<String>, policy: LimitPolicy) -> String {
    match (holder, policy) {
        (Some(name), LimitPolicy::Reject) => {
            format!(
                "; {name:?} has not read the oldest records: let it catch up, remove it, or raise \
                 the limit"
            )
        }
        (None, LimitPolicy::Reject) => {
            "; no subscriber exists, so nothing may be deleted: add one or raise the limit"
                .to_owned()
        }
        (_, LimitPolicy::DropOldest) => {
            "; too small for a second segment: raise the limit".to_owned()
        }
    }
}
