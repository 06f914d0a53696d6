//! Settings errors of a job.

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Settings error of a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid target URL.
    #[error("{job}: {cause}")]
    Target {
        /// Job name.
        job: String,
        /// Cause.
        cause: net::EndpointError,
    },
    /// Invalid TLS files or settings.
    #[error("{job}: {cause}")]
    Tls {
        /// Job name.
        job: String,
        /// Cause.
        cause: net::tls::TlsError,
    },
    /// Any other invalid setting.
    #[error("{job}: {message}")]
    Setting {
        /// Job name.
        job: String,
        /// Cause.
        message: String,
    },
}
