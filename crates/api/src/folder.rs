//! Folders of things that people name: their names, and what is wrong with them.

use std::fs;
use std::io;
use std::path::Path;

use crate::refusal::Refusal;

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 64;

/// Whether a name is no path, so that what is in a folder cannot be left by it: letters, digits, '-', '_' and what else
/// there may be, and a letter or digit first.
pub(crate) fn is_name(name: &str, others: &[u8]) -> bool {
    let is_plain = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || others.contains(&byte)
    };
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// What is in a folder, in order; nothing if it is not there. What is no text is not ours.
pub(crate) fn entries(folder: &Path) -> Result<Vec<String>, Refusal> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed(folder, &error))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// The disk says no.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Refusal {
    Refusal::Internal(format!("{}: {error}", path.display()))
}
