//! Installation errors.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The `metrics` crate takes one recorder for a whole process.
    #[error(
        "cannot install the metrics recorder: another one is installed; add \
         facade::metrics::MetricsRecorder to a fanout that feeds both"
    )]
    Recorder,
    /// `tracing` takes one subscriber for a whole process.
    #[error(
        "cannot install the tracing subscriber: another one is installed; add \
         facade::tracing::layer() to its layers"
    )]
    Subscriber,
}

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;
