//! Signing key of an agent, created once per journal.
//!
//! A copy of the journal's directory includes the key and is the same producer. A journal restored
//! from a snapshot is new, with a new number and key.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use net::signature::{KEY_BYTES, Signer, from_hex, to_hex};

use crate::error::{Error, Result};

/// Key file in the journal's directory, readable by its owner only.
pub(crate) const FILE: &str = "producer-key";

/// Reads the key of a journal's directory, or creates it.
pub(crate) fn open(journal: &Path) -> Result<Signer> {
    let path = journal.join(FILE);
    let failed = |cause: String| Error::Key { path: path.clone(), cause };
    match File::open(&path) {
        Ok(file) => read(file).map_err(|error| failed(error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(journal, &path).map_err(|error| failed(error.to_string()))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

fn read(file: File) -> io::Result<Signer> {
    let mut text = String::new();
    // One byte more than the key, to detect a file that is too long.
    file.take(2 * KEY_BYTES as u64 + 2).read_to_string(&mut text)?;
    let seed = from_hex::<KEY_BYTES>(text.trim_end());
    let seed = seed.ok_or_else(|| io::Error::other("expected 64 hexadecimal digits"))?;
    Ok(Signer::from_seed(&seed))
}

fn create(journal: &Path, path: &Path) -> io::Result<Signer> {
    let mut seed = [0; KEY_BYTES];
    seed[..16].copy_from_slice(&journal::random_id().to_le_bytes());
    seed[16..].copy_from_slice(&journal::random_id().to_le_bytes());
    let new = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(format!("{}\n", to_hex(&seed)).as_bytes())?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, path)?;
    File::open(journal)?.sync_all()?;
    Ok(Signer::from_seed(&seed))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn key_is_created_once_with_mode_0600() {
        let dir = std::env::temp_dir().join(format!("topdeck-key-{:x}", journal::random_id()));
        fs::create_dir(&dir).unwrap();
        let first = open(&dir).unwrap().public_key();
        assert_eq!(open(&dir).unwrap().public_key(), first);
        let mode = fs::metadata(dir.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(dir.join(FILE), "short").unwrap();
        let error = open(&dir).unwrap_err().to_string();
        assert!(error.contains("expected 64 hexadecimal digits; "), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }
}
