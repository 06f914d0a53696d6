//! Directories of user-named files: name validation and I/O errors.

use std::fs;
use std::io;
use std::path::Path;

use crate::api_error::ApiError;

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Whether a name is valid, so that it cannot lead out of the directory: letters, digits, '-', '_'
/// and `others`, starting with a letter or digit.
pub(crate) fn is_valid_name(name: &str, others: &[u8]) -> bool {
    let is_plain = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || others.contains(&byte)
    };
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// Names in a directory, sorted; empty if the directory does not exist. Names that are not UTF-8
/// are skipped.
pub(crate) fn list_entries(dir: &Path) -> Result<Vec<String>, ApiError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(dir, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| io_error(dir, &error))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

/// An I/O error.
pub(crate) fn io_error(path: &Path, error: &io::Error) -> ApiError {
    ApiError::Internal(format!("{}: {error}", path.display()))
}
