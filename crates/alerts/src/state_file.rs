//! File of alert states in the data directory: `docs/formats/alert-states.md`.

use std::path::{Path, PathBuf};

use disk::{OsDisk, read_file, replace_file};
use rules::{GroupSnapshot, decode_snapshots, encode_snapshots};

use crate::error::{AlertsError, Result};

/// Name in the data directory.
const FILE_NAME: &str = "alert-states";
/// Maximum size: about a million alerts.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// File of alert states.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    pub(crate) fn new(data: &Path) -> StateFile {
        StateFile { path: data.join(FILE_NAME) }
    }

    /// States as last written; none if the file is missing.
    pub(crate) fn read(&self) -> Result<Vec<GroupSnapshot>> {
        let failed = |cause| AlertsError::States { action: "read", cause };
        let bytes = read_file(&OsDisk, &self.path, FILE_BYTES_MAX)
            .map_err(|error| failed(error.to_string()))?;
        let Some(bytes) = bytes else { return Ok(Vec::new()) };
        let text = String::from_utf8(bytes).map_err(|_| failed("the file is not text".into()))?;
        decode_snapshots(&text).map_err(|error| failed(error.to_string()))
    }

    /// Replaces the states, durably and atomically.
    pub(crate) fn write(&self, states: &[GroupSnapshot]) -> Result<()> {
        let text = encode_snapshots(states);
        replace_file(&OsDisk, &self.path, text.as_bytes())
            .map_err(|error| AlertsError::States { action: "write", cause: error.to_string() })
    }

    /// Keeps a file that cannot be read under another name, so that it is not overwritten.
    pub(crate) fn set_aside(&self) -> Option<PathBuf> {
        let kept = self.path.with_added_extension("damaged");
        std::fs::rename(&self.path, &kept).is_ok().then_some(kept)
    }
}
