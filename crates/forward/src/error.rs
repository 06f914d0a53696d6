//! Start errors; later errors are in the status.

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Start errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that cannot be one.
    #[error("remote name {name:?} {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A URL, a token or TLS settings that cannot be used.
    #[error("remote \"{remote}\": {reason}")]
    Remote {
        /// The site.
        remote: String,
        /// What is wrong.
        reason: String,
    },
    /// The site's book cannot be read or written.
    #[error("cannot read the ledger of a remote: {0}")]
    Ledger(#[from] intake::Error),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// A batch that cannot be read or told in full.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The store, which knows the forms of series, failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The folder for what is set aside failed.
    #[error("{path}: {source}")]
    Folder {
        /// The folder or file.
        path: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The file of the agent's key cannot be read or made.
    #[error("cannot use the key {}: {cause}; put the file back from a copy, or remove it and have \
             each remote forget the key", path.display())]
    Key {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The runtime ends.
    #[error("topdeck is stopping")]
    Stopped,
    /// Compressing failed.
    #[error("cannot compress a parcel: {0}")]
    Compress(std::io::Error),
}
