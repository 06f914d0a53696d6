//! Append errors: retryable or permanent.

use std::time::Duration;

/// The result of most operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Append errors; no part of the batch is stored, except as a variant says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A limit is reached now: the sender keeps the batch and retries.
    #[error("{reason}; try again in {} s", retry_after.as_secs())]
    Full {
        /// The limit that is reached.
        reason: String,
        /// Delay before the retry.
        retry_after: Duration,
    },
    /// The batch is in the buffer of the journal and waits for space: it is not acknowledged, and
    /// stored when there is some.
    #[error(
        "{reason}; the sent data waits and is stored when there is space; sent again, it may count \
         twice unless its batch has an identity; try again in {} s", retry_after.as_secs()
    )]
    WaitsForSpace {
        /// The limit that is reached.
        reason: String,
        /// Delay before the retry.
        retry_after: Duration,
    },
    /// The batch is too large: the sender has to split it.
    #[error("batch size limit ({max} bytes) exceeded: {size} bytes; send smaller requests")]
    TooLarge {
        /// The encoded size in bytes.
        size: u64,
        /// Maximum size in bytes.
        max: u64,
    },
    /// The batch or its contents are rejected permanently: the sender is to blame.
    #[error("{0}")]
    Rejected(String),
    /// The sender is not the earlier sender of this producer.
    #[error("{0}")]
    Forbidden(String),
    /// The sequence jumps further from the last one than allowed.
    #[error(
        "cannot take sequence {sequence} of producer {producer:016x}: the last one was {last}, \
         and at most {max} may be left out; a sender that begins anew takes a new epoch"
    )]
    SequenceJump {
        /// Producer id.
        producer: u64,
        /// Last accepted sequence.
        last: u64,
        /// Received sequence.
        sequence: u64,
        /// Maximum jump.
        max: u64,
    },
    /// The disk failed, or the store's state in memory is not certain: topdeck has to be restarted.
    #[error("{0}")]
    JournalFailed(String),
}

impl From<disk::FileError> for Error {
    fn from(error: disk::FileError) -> Error {
        Error::JournalFailed(error.to_string())
    }
}

/// Retry delay when the journal is full.
const RETRY_AFTER_FULL: Duration = Duration::from_secs(5);
/// Retry delay after a timed-out wait.
const RETRY_AFTER_STALL: Duration = Duration::from_secs(1);

impl Error {
    /// Whether a retry of the same batch may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Full { .. })
    }

    pub(crate) fn waits_for_space(reason: String) -> Error {
        Error::WaitsForSpace { reason, retry_after: RETRY_AFTER_FULL }
    }
}

impl From<journal::Error> for Error {
    fn from(error: journal::Error) -> Error {
        match error {
            journal::Error::Full(_) => {
                Error::Full { reason: error.to_string(), retry_after: RETRY_AFTER_FULL }
            }
            journal::Error::AppendTimeout { .. } => {
                Error::Full { reason: error.to_string(), retry_after: RETRY_AFTER_STALL }
            }
            journal::Error::TooLarge { found, max } => Error::TooLarge { size: found, max },
            _ => Error::JournalFailed(error.to_string()),
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        match error {
            store::Error::Journal(error) => error.into(),
            store::Error::Model(_)
            | store::Error::Cardinality(_)
            | store::Error::UnknownSeries { .. } => Error::Rejected(error.to_string()),
            _ => Error::JournalFailed(error.to_string()),
        }
    }
}

impl From<model::Error> for Error {
    fn from(error: model::Error) -> Error {
        Error::Rejected(error.to_string())
    }
}
