//! Installation errors.

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The `metrics` crate supports one recorder per process.
    #[error(
        "cannot install the metrics recorder: another one is installed; add \
         exporter::metrics::MetricsRecorder to a fanout that feeds both"
    )]
    Recorder,
    /// `tracing` supports one global subscriber per process.
    #[error(
        "cannot install the tracing subscriber: another one is installed; add \
         exporter::tracing::layer() to its layers"
    )]
    Subscriber,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
