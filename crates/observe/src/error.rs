//! Errors of the role.

use std::io;

use wire::CaptureError;

/// Error of starting or stopping the capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The packets cannot be captured.
    #[error("{0}")]
    Capture(#[from] CaptureError),
    /// Requests cannot be reported to the node that compares both ends.
    #[error("cannot report requests of [wire_ends]: {0}")]
    ReportTarget(String),
    /// The system cannot create a thread.
    #[error("cannot start thread {name}: {source}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The journal did not accept the last interval; it is lost.
    #[error("cannot store the last interval of [wire]: {0}")]
    FinalInterval(#[from] intake::Error),
    /// The thread that writes panicked at the stop; the last interval is lost.
    #[error(
        "cannot store the last interval of [wire]: thread wire writer panicked; the log has the \
         panic"
    )]
    WriterPanic,
}
