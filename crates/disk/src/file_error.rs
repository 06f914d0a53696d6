//! Error of a file operation, with the action and the path.

use std::path::{Path, PathBuf};
use std::{error, fmt, io};

/// A file operation failed: the operating system, or what the path names, is at fault.
#[derive(Debug)]
pub struct FileError {
    /// The file or directory.
    pub path: PathBuf,
    /// The failed action, as in "cannot ACTION PATH".
    pub action: &'static str,
    /// The operating system's error.
    pub source: io::Error,
}

impl FileError {
    /// Error of an action on a path.
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> FileError {
        FileError { path: path.to_owned(), action, source }
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileError { path, action, source } = self;
        write!(f, "cannot {action} {}: {source}", path.display())
    }
}

impl error::Error for FileError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Adds the action and the path to an I/O error.
pub trait IoContext<T> {
    /// The result of `action` on `path`.
    fn io_context(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn io_context(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError::new(action, path, source))
    }
}
