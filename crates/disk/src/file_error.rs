//! I/O error with the failed action and its file.

use std::io;
use std::path::{Path, PathBuf};

/// Failed operation on a file or directory.
#[derive(Debug)]
pub struct FileError {
    /// File or directory.
    pub path: PathBuf,
    /// Action, as in "cannot open".
    pub action: &'static str,
    /// The operating system's error.
    pub source: io::Error,
}

/// Adds the action and the path to an I/O error.
pub trait IoContext<T> {
    /// The same result with a [`FileError`].
    fn io_context(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn io_context(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { path: path.to_owned(), action, source })
    }
}
