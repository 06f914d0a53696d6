//! Reasons why a run cannot start.

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Name resolution failed.
    #[error("cannot resolve {host}: {error}")]
    Resolve {
        /// Host name.
        host: String,
        /// Cause.
        error: String,
    },
    /// Invalid TLS settings.
    #[error(transparent)]
    Tls(#[from] net::tls::TlsError),
    /// The host name is not valid in a certificate.
    #[error("cannot use {host} as a TLS server name: {cause}")]
    ServerName {
        /// Host name.
        host: String,
        /// Cause.
        cause: String,
    },
    /// A worker could not be started.
    #[error("cannot start a worker: {0}")]
    Worker(#[from] std::io::Error),
    /// RLIMIT_NOFILE is too low.
    #[error(
        "{required} open files are needed for the connections or processes, but the limit is \
         {allowed}; reduce --max-connections, or raise the limit with ulimit -n"
    )]
    TooFewFiles {
        /// Files needed.
        required: usize,
        /// Hard limit.
        allowed: u64,
    },
    /// RLIMIT_NOFILE is too low, and the system does not permit to raise it.
    #[error(
        "cannot raise the limit of open files to {required}: {cause}; reduce --max-connections, \
         or raise the limit with ulimit -n"
    )]
    FileLimit {
        /// Files needed.
        required: usize,
        /// Cause.
        cause: std::io::Error,
    },
    /// A program cannot be executed.
    #[error("cannot start the command {name:?}: {cause}")]
    Program {
        /// Name in the command.
        name: String,
        /// Cause and remedy.
        cause: String,
    },
    /// A request without a command in a run of commands.
    #[error(
        "request {name:?} has no command, and there is no target; add command = [\"program\", \
         \"argument\"], or a target"
    )]
    NoCommand {
        /// Name of the request.
        name: String,
    },
    /// A command in a run against a server.
    #[error("request {name:?} has a command, and there is a target; remove one of them")]
    Command {
        /// Name of the request.
        name: String,
    },
    /// pidfd_open(2) is not available.
    #[error("cannot run commands: pidfd_open(2) of Linux 5.3 or later failed: {0}")]
    Pidfd(std::io::Error),
    /// Inconsistent settings.
    #[error("{0}")]
    InvalidSettings(String),
}
