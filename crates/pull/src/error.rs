//! Why a job cannot be begun.

/// The result of most operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a job's settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Where it should go cannot be dialled.
    #[error("{job}: {source}")]
    Target {
        /// The job.
        job: String,
        /// What is wrong.
        source: net::TargetError,
    },
    /// Files of TLS, or settings of it, make no sense.
    #[error("{job}: {source}")]
    Tls {
        /// The job.
        job: String,
        /// What is wrong.
        source: net::tls::TlsError,
    },
    /// Something else about it.
    #[error("{job}: {what}")]
    Setting {
        /// The job.
        job: String,
        /// What is wrong.
        what: String,
    },
}
