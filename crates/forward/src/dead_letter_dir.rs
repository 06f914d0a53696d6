//! Dead letters: batches that a remote rejects. `dead-letter/REMOTE/SEQUENCE.request` is a forward
//! request that can be sent again by hand (see `docs/agent.md`); `SEQUENCE.batch` has the raw bytes
//! of a journal record that cannot be a forward request; `SEQUENCE.reason` has the reason, one
//! line. SEQUENCE is that of the batch in the forward protocol: its position in the journal plus
//! one.
//!
//! The size limit per remote is [`BYTES_MAX`]. Beyond it, a batch is dropped, and a gap is sent in
//! its place, as for every dead letter.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Size limit of a remote's dead letters.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// Dead letter content.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeadLetter<'a> {
    /// Forward request with one batch.
    Request(&'a [u8]),
    /// Record that cannot be a forward request.
    RawBatch(&'a [u8]),
}

#[derive(Clone, Debug)]
pub(crate) struct DeadLetterDir {
    directory: PathBuf,
    bytes_max: u64,
}

impl DeadLetterDir {
    pub(crate) fn new(directory: &Path, remote: &str) -> DeadLetterDir {
        DeadLetterDir { directory: directory.join(remote), bytes_max: BYTES_MAX }
    }

    /// Writes a batch durably. Returns its path, or `None` if the size limit is reached.
    pub(crate) fn write(
        &self,
        sequence: u64,
        dead_letter: &DeadLetter<'_>,
        cause: &str,
    ) -> Result<Option<PathBuf>> {
        let (DeadLetter::Request(bytes) | DeadLetter::RawBatch(bytes)) = *dead_letter;
        let kind = if let DeadLetter::Request(_) = dead_letter { "request" } else { "batch" };
        let failed = |path: &Path, source| Error::Dir { path: path.display().to_string(), source };
        // Accessible to the owner only.
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        created.map_err(|error| failed(&self.directory, error))?;
        let used = self.bytes().map_err(|error| failed(&self.directory, error))?;
        if used.saturating_add(bytes.len() as u64) > self.bytes_max {
            return Ok(None);
        }
        let name = format!("{sequence:020}");
        let path = self.directory.join(format!("{name}.{kind}"));
        write_file(&path, bytes).map_err(|error| failed(&path, error))?;
        let reason = self.directory.join(format!("{name}.reason"));
        write_file(&reason, format!("{cause}\n").as_bytes())
            .map_err(|error| failed(&reason, error))?;
        let directory = File::open(&self.directory).and_then(|directory| directory.sync_all());
        directory.map_err(|error| failed(&self.directory, error))?;
        Ok(Some(path))
    }

    fn bytes(&self) -> std::io::Result<u64> {
        fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_are_written_with_their_reason_up_to_the_limit() {
        let root =
            std::env::temp_dir().join(format!("topdeck-dead-letter-{:x}", journal::random_id()));
        let dir = DeadLetterDir { bytes_max: 10, ..DeadLetterDir::new(&root, "site") };
        let path = dir.write(7, &DeadLetter::RawBatch(b"batch"), "no").unwrap().unwrap();
        assert_eq!(path, root.join("site/00000000000000000007.batch"));
        assert_eq!(fs::read(&path).unwrap(), b"batch");
        assert_eq!(fs::read_to_string(path.with_extension("reason")).unwrap(), "no\n");
        assert_eq!(dir.write(8, &DeadLetter::Request(b"batch"), "no").unwrap(), None);
        fs::remove_dir_all(root).unwrap();
    }
}
