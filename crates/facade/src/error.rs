//! Installation errors.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The `metrics` crate takes one recorder for a whole process.
    #[error(
        "another recorder of the metrics crate is installed already: give \
         facade::metrics::Recorder to a fanout that feeds both"
    )]
    Recorder,
    /// `tracing` takes one subscriber for a whole process.
    #[error(
        "another subscriber of tracing is installed already: add facade::tracing::layer() to its \
         layers instead"
    )]
    Subscriber,
}

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;
