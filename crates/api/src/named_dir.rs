//! Folders of user-named files: name validation and I/O errors.

use std::fs;
use std::io;
use std::path::Path;

use crate::api_error::ApiError;

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 64;

/// Whether a name is no path, so that what is in a folder cannot be left by it: letters, digits,
/// '-', '_' and what else there may be, and a letter or digit first.
pub(crate) fn is_valid_name(name: &str, others: &[u8]) -> bool {
    let is_plain = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || others.contains(&byte)
    };
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// What is in a folder, in order; nothing if it is not there. What is no text is not ours.
pub(crate) fn list_entries(folder: &Path) -> Result<Vec<String>, ApiError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(folder, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| io_error(folder, &error))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// The disk says no.
pub(crate) fn io_error(path: &Path, error: &io::Error) -> ApiError {
    ApiError::Internal(format!("{}: {error}", path.display()))
}
