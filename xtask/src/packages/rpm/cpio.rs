//! Archive of cpio (format "new ASCII", `070701`), as in the payload of rpm.

use anyhow::{Result, ensure};

use crate::packages::file_tree::PackageFile;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// An archive of the files, whose paths are from the root.
pub(super) fn cpio(files: &[(&str, &PackageFile)], time_s: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (index, (path, file)) in files.iter().enumerate() {
        let size = file.bytes().len();
        ensure!(u32::try_from(size).is_ok(), "cannot archive {path}: it has {size} bytes");
        let links = if file.is_dir() { 2 } else { 1 };
        let numbers = [index as u64 + 1, u64::from(mode(file)), 0, 0, links, time_s, size as u64];
        put_header(&mut bytes, numbers, &format!("./{path}"));
        bytes.extend_from_slice(file.bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    put_header(&mut bytes, [0, 0, 0, 0, 1, 0, 0], "TRAILER!!!");
    Ok(bytes)
}

/// Type and permissions, as in `st_mode`.
pub(super) fn mode(file: &PackageFile) -> u32 {
    file.mode | if file.is_dir() { DIRECTORY } else { REGULAR }
}

/// `numbers` are inode, mode, user, group, links, time and size; devices and checksum are 0.
fn put_header(bytes: &mut Vec<u8>, numbers: [u64; 7], name: &str) {
    let mut text = "070701".to_owned();
    let name_bytes = name.len() as u64 + 1;
    for number in numbers.into_iter().chain([0, 0, 0, 0, name_bytes, 0]) {
        text.push_str(&format!("{number:08x}"));
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
