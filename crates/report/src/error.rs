//! Reasons why a report cannot be drawn.

use hist::MergeError;

/// Error of a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The answer or the options do not fit the report; the text says what to change.
    #[error("{0}")]
    Unsuitable(String),
    /// Counts exceed 64 bits.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

pub(crate) type Result<T> = std::result::Result<T, ReportError>;

/// Error of an answer or options that do not fit the report.
pub(crate) fn unsuitable(message: impl Into<String>) -> ReportError {
    ReportError::Unsuitable(message.into())
}
