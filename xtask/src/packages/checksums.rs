//! `SHA256SUMS`: digests of all packages, in the format of `sha256sum --check`.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use ring::digest;

use super::PackageDir;

pub(super) const FILE: &str = "SHA256SUMS";

/// Writes the digests of the files that are written so far, sorted by name.
pub(super) fn write(files: &mut PackageDir) -> Result<()> {
    let mut names = files.names.clone();
    names.sort_unstable();
    let mut text = String::new();
    for name in names {
        let path = files.dir.join(&name);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let _ = writeln!(text, "{}  {name}", sha256_hex(&bytes));
    }
    files.write(FILE, text.as_bytes())
}

/// Names of the files whose digests are listed.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| Some(line.split_once("  ")?.1))
}

pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_that_of_fips_180() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), expected);
    }
}
