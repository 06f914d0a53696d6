//! Append errors: retryable or permanent.

use std::time::Duration;

/// The result of most operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Append errors; nothing of the batch is stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no room now: the sender has to keep the batch and try again later.
    #[error("{reason}; try again in {} s", retry_after.as_secs())]
    Full {
        /// What is full.
        reason: String,
        /// After how long to try again.
        retry_after: Duration,
    },
    /// The batch is too large: the sender has to part it.
    #[error("{size} bytes are too much at once, {max} are taken; send less in a request")]
    TooLarge {
        /// The encoded size in bytes.
        size: u64,
        /// The largest that is taken.
        max: u64,
    },
    /// The batch, or what it holds, is not taken, now or later: the sender is to blame.
    #[error("{0}")]
    Rejected(String),
    /// The sender is not who sent in this producer's name before.
    #[error("{0}")]
    Forbidden(String),
    /// The sequence is further from the last one than the producer can have come.
    #[error(
        "cannot take sequence {sequence} of producer {producer:016x}: the last one was {last}, \
         and at most {max} may be left out; a sender that begins anew takes a new boot number"
    )]
    SequenceJump {
        /// Whose it is.
        producer: u64,
        /// The last that was taken.
        last: u64,
        /// The one that came.
        sequence: u64,
        /// How far it may be from the last.
        max: u64,
    },
    /// The disk failed, or what the store has in memory is in doubt: topdeck has to be started
    /// anew.
    #[error("{0}")]
    JournalFailed(String),
}

/// After how long a sender is asked to try again when the journal is full.
const RETRY_AFTER_FULL: Duration = Duration::from_secs(5);
/// And when it only had to wait too long.
const RETRY_AFTER_STALL: Duration = Duration::from_secs(1);

impl Error {
    /// Whether the same batch may be taken later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Full { .. })
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
