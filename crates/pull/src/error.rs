//! Settings errors of a job.

/// The result of most operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Settings error of a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Where it should go cannot be dialled.
    #[error("{job}: {source}")]
    Target {
        /// The job.
        job: String,
        /// What is wrong.
        source: net::EndpointError,
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
    #[error("{job}: {message}")]
    Setting {
        /// The job.
        job: String,
        /// What is wrong.
        message: String,
    },
}
