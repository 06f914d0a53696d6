//! Start errors; later errors are in the status.

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Start errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid remote name.
    #[error("remote name {name:?} {reason}")]
    Name {
        /// Name.
        name: String,
        /// Cause.
        reason: &'static str,
    },
    /// Invalid name of this agent.
    #[error("agent name {name:?} {reason}")]
    AgentName {
        /// Name.
        name: String,
        /// Cause.
        reason: &'static str,
    },
    /// Invalid URL, token or TLS settings.
    #[error("remote \"{remote}\": {reason}")]
    Remote {
        /// Remote name.
        remote: String,
        /// Cause.
        reason: String,
    },
    /// The ledger of a remote cannot be read or written.
    #[error("cannot read the ledger of a remote: {0}")]
    Ledger(#[from] intake::Error),
    /// Journal error.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// A batch cannot be decoded or encoded.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// Error of the store, which resolves series ids.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Error of the dead letter directory.
    #[error("{path}: {source}")]
    Dir {
        /// Directory or file.
        path: String,
        /// System error.
        source: std::io::Error,
    },
    /// The key file cannot be read or created.
    #[error("cannot use the key {}: {cause}; restore the file from a copy, or remove it and delete \
             the key on each remote", path.display())]
    Key {
        /// Key file.
        path: std::path::PathBuf,
        /// Cause.
        cause: String,
    },
    /// The runtime shuts down.
    #[error("topdeck is stopping")]
    Stopped,
    /// Compression failed.
    #[error("cannot compress a request: {0}")]
    Compress(std::io::Error),
}
