//! Tar archives (POSIX.1-1988 ustar) of a `FileTree`, and gzip.
//!
//! Format: POSIX.1-2017, `pax`, "ustar Interchange Format". A header has 512 bytes; numbers are
//! octal text. Paths have at most 100 bytes after a prefix of 155, files less than 8 GiB: what a
//! header cannot hold is an error.

use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};

use super::file_tree::{FileTree, PackageFile};

const BLOCK: usize = 512;
/// Readers of tar expect records of 20 blocks.
const RECORD: usize = 20 * BLOCK;
const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;

/// A tar archive of the files. `prefix` comes before each path; with `./`, the archive begins with
/// that directory, as in packages of Debian. `time_s` is the time of all files, since the epoch.
pub(super) fn tar(tree: &FileTree, prefix: &str, time_s: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if prefix == "./" {
        let mut root = FileTree::default();
        root.add_dir("", 0o755, 0);
        for (_, file) in root.iter() {
            bytes.extend_from_slice(&header("./", file, time_s)?);
        }
    }
    for (path, file) in tree.iter() {
        let end = if file.is_dir() { "/" } else { "" };
        let path = format!("{prefix}{path}{end}");
        let header = header(&path, file, time_s);
        bytes.extend_from_slice(&header.with_context(|| format!("cannot archive {path}"))?);
        bytes.extend_from_slice(file.bytes());
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    }
    bytes.resize((bytes.len() + 2 * BLOCK).next_multiple_of(RECORD), 0);
    Ok(bytes)
}

/// The bytes as a gzip file without a name and a time.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::new(9));
    let compressed = writer.write_all(bytes).and_then(|()| writer.finish());
    compressed.expect("BUG: writing to memory failed")
}

fn header(path: &str, file: &PackageFile, time_s: u64) -> Result<[u8; BLOCK]> {
    let (prefix, name) = split_path(path)?;
    let user = if file.owner == 0 { "root" } else { "" };
    let mut header = [0; BLOCK];
    put_text(&mut header, 0, name);
    put_octal(&mut header, 100, 8, u64::from(file.mode))?;
    put_octal(&mut header, 108, 8, u64::from(file.owner))?;
    put_octal(&mut header, 116, 8, u64::from(file.owner))?;
    put_octal(&mut header, 124, 12, file.bytes().len() as u64)?;
    put_octal(&mut header, 136, 12, time_s)?;
    header[148..156].fill(b' ');
    header[156] = if file.is_dir() { b'5' } else { b'0' };
    put_text(&mut header, 257, "ustar\x0000");
    put_text(&mut header, 265, user);
    put_text(&mut header, 297, user);
    put_text(&mut header, 345, prefix);
    // The checksum is computed with spaces in its place; it ends with NUL and a space.
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    put_octal(&mut header, 148, 7, sum)?;
    Ok(header)
}

/// Splits a path that is too long for the name at a slash: prefix and name.
fn split_path(path: &str) -> Result<(&str, &str)> {
    if path.len() <= NAME_BYTES {
        return Ok(("", path));
    }
    let fits = |at: &usize| *at <= PREFIX_BYTES && path.len() - at - 1 <= NAME_BYTES;
    let mut slashes = path.trim_end_matches('/').match_indices('/').map(|(at, _)| at);
    let at = slashes.rfind(fits);
    let at = at.with_context(|| format!("the path has {} bytes, too many for tar", path.len()))?;
    Ok((&path[..at], &path[at + 1..]))
}

fn put_text(header: &mut [u8], at: usize, text: &str) {
    header[at..at + text.len()].copy_from_slice(text.as_bytes());
}

/// Writes `size` bytes: octal digits and a NUL.
fn put_octal(header: &mut [u8], at: usize, size: usize, value: u64) -> Result<()> {
    let text = format!("{value:0width$o}\0", width = size - 1);
    ensure!(text.len() == size, "{value} has more than {} octal digits", size - 1);
    put_text(header, at, &text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_split_at_a_slash() {
        let name = "n".repeat(60);
        let path = format!("{name}/{name}/{name}");
        assert_eq!(split_path(&path).unwrap(), (&path[..121], name.as_str()));
        assert_eq!(split_path("a/b").unwrap(), ("", "a/b"));
        let error = split_path(&"n".repeat(101)).unwrap_err().to_string();
        assert_eq!(error, "the path has 101 bytes, too many for tar");
    }

    #[test]
    fn a_number_without_space_is_an_error() {
        let mut header = [0; 8];
        assert!(put_octal(&mut header, 0, 8, 0o7_777_777).is_ok());
        assert_eq!(&header, b"7777777\0");
        assert!(put_octal(&mut header, 0, 8, 0o10_000_000).is_err());
    }
}
