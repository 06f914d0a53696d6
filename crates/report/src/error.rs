//! Reasons why a report cannot be drawn.

use hist::MergeError;

/// Error of a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// The answer or the options do not fit the report; the text says what to change.
    #[error("{0}")]
    Unsuitable(String),
    /// Counts exceed 64 bits.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

pub(crate) type Result<T> = std::result::Result<T, DrawError>;

/// Returns an error of an answer or options that do not fit the report.
macro_rules! bail {
    ($($text:tt)*) => { return Err($crate::error::unsuitable(format!($($text)*))) };
}
pub(crate) use bail;

/// Error of an answer or options that do not fit the report.
pub(crate) fn unsuitable(message: impl Into<String>) -> DrawError {
    DrawError::Unsuitable(message.into())
}
