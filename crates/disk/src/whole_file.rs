//! Whole files: read at once, and replaced durably and atomically.
//!
//! A replacement is written under the name with ".new" added. After a crash the file has its old or
//! its new content; a file ".new" may remain, which the next replacement overwrites.

use std::io;
use std::path::{Path, PathBuf};

use crate::file_error::{FileError, IoContext};
use crate::{Disk, OpenMode};

/// The first `bytes_max` bytes of a file; `None` if it is missing.
pub fn read_file(
    disk: &dyn Disk,
    path: &Path,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, FileError> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::new("open", path, error)),
    };
    let len = file.len().io_context("get the length of", path)?;
    let mut bytes = zeroed_bytes(len.min(bytes_max)).io_context("read", path)?;
    let have = file.read_full_at(&mut bytes, 0).io_context("read", path)?;
    bytes.truncate(have);
    Ok(Some(bytes))
}

/// Zeroed buffer, or an error: a damaged file system may report any length.
fn zeroed_bytes(len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Writes the new content of a file, durably, and returns its path: renaming it to `path` replaces
/// the file.
pub fn write_replacement(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<PathBuf, FileError> {
    let new = path.with_added_extension("new");
    let file = disk.open(&new, OpenMode::Create).io_context("create", &new)?;
    file.set_len(0).io_context("truncate", &new)?;
    file.write_all_at(bytes, 0).io_context("write", &new)?;
    file.sync().io_context("fsync", &new)?;
    Ok(new)
}

/// Replaces a file, or creates it, durably and atomically.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let new = write_replacement(disk, path, bytes)?;
    disk.rename(&new, path).io_context("rename", &new)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    disk.sync_dir(dir).io_context("fsync directory", dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsDisk;

    #[test]
    fn a_length_beyond_memory_is_an_error() {
        let error = zeroed_bytes(u64::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn a_replaced_file_has_the_new_content_and_leaves_no_other_file() {
        let dir = std::env::temp_dir().join(format!("topdeck-whole-file-{}", std::process::id()));
        OsDisk.create_dir(&dir).unwrap();
        let path = dir.join("a.b");
        let read = |bytes_max| read_file(&OsDisk, &path, bytes_max).unwrap();
        assert_eq!(read(10), None);
        for content in ["first and long", "second"] {
            replace_file(&OsDisk, &path, content.as_bytes()).unwrap();
            assert_eq!(read(100).as_deref(), Some(content.as_bytes()));
        }
        assert_eq!(read(3).as_deref(), Some(&b"sec"[..]));
        assert_eq!(OsDisk.list(&dir).unwrap(), ["a.b"]);
        let missing = dir.join("no/file");
        let error = replace_file(&OsDisk, &missing, b"").unwrap_err().to_string();
        let expected = format!("cannot create {}.new: ", missing.display());
        assert!(error.starts_with(&expected), "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
