//! The file `received-alerts`: changes are appended, and the whole file is replaced once it has
//! twice the size of its alerts.
//!
//! The format is that of [`crate::received_file`]. After an error, and first of all after a start,
//! the file is replaced: so nothing is appended to a change that was cut.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, File, FileError, IoContext, OpenMode, read_file, replace_file};

use crate::received_alerts::ReceivedAlert;
use crate::received_file::{
    DecodedAlerts, ReceivedChange, decode_received, encode_changes, encode_received,
};

/// Name in the data directory; `docs/formats/received-alerts.md`.
const FILE_NAME: &str = "received-alerts";
/// Maximum size of the file: alerts of the maximum size whose texts are escaped, with an
/// acknowledgement of each alert, and as many changes.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Size of changes below which the file is not replaced.
const CHANGES_BYTES_MIN: u64 = 1 << 20;

/// Writer of the file.
pub(crate) struct ReceivedLog {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// `None` before the file is replaced.
    open: Option<OpenLog>,
    changes_bytes_min: u64,
}

struct OpenLog {
    file: Box<dyn File>,
    /// Size when it was replaced.
    replaced_bytes: u64,
    bytes: u64,
}

impl ReceivedLog {
    /// Reads the file. If it is damaged, it is kept under another name, and the problem is
    /// returned.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        data: &Path,
    ) -> (ReceivedLog, DecodedAlerts, Option<String>) {
        let path = data.join(FILE_NAME);
        let (decoded, problem) = match read_alerts(&*disk, &path) {
            Ok(decoded) => {
                let cut = "the last change of received alerts was cut, and is left out";
                let problem = decoded.is_cut.then(|| cut.to_owned());
                (decoded, problem)
            }
            Err(cause) => {
                let kept = path.with_added_extension("damaged");
                let kept = match disk.rename(&path, &kept) {
                    Ok(()) => format!(", kept as {}", kept.display()),
                    Err(_) => String::new(),
                };
                let problem = format!("{cause}{kept}; alerts from outside begin anew");
                (DecodedAlerts::default(), Some(problem))
            }
        };
        let log = ReceivedLog { disk, path, open: None, changes_bytes_min: CHANGES_BYTES_MIN };
        (log, decoded, problem)
    }

    /// Whether the next write replaces the file.
    pub(crate) fn is_replaced_next(&self) -> bool {
        self.open.as_ref().is_none_or(|open| {
            let changes_bytes = open.bytes.saturating_sub(open.replaced_bytes);
            changes_bytes >= open.replaced_bytes.max(self.changes_bytes_min)
        })
    }

    /// Replaces the file by one of all alerts, durably.
    pub(crate) fn replace(&mut self, alerts: &[Arc<ReceivedAlert>]) -> Result<(), FileError> {
        self.open = None;
        let text = encode_received(alerts);
        replace_file(&*self.disk, &self.path, text.as_bytes())?;
        let file = self.disk.open(&self.path, OpenMode::Create).io_context("open", &self.path)?;
        let bytes = text.len() as u64;
        self.open = Some(OpenLog { file, replaced_bytes: bytes, bytes });
        Ok(())
    }

    /// Appends changes durably. The file must have been replaced since the start, and since the
    /// last error.
    pub(crate) fn append(&mut self, changes: &[ReceivedChange]) -> Result<(), FileError> {
        let mut open = self.open.take().expect("BUG: the file was not replaced before");
        if !changes.is_empty() {
            let text = encode_changes(changes);
            open.file.write_all_at(text.as_bytes(), open.bytes).io_context("write", &self.path)?;
            open.file.sync().io_context("fsync", &self.path)?;
            open.bytes += text.len() as u64;
        }
        self.open = Some(open);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn set_changes_bytes_min(&mut self, bytes: u64) {
        self.changes_bytes_min = bytes;
    }
}

fn read_alerts(disk: &dyn Disk, path: &Path) -> Result<DecodedAlerts, String> {
    let bytes = read_file(disk, path, FILE_BYTES_MAX)
        .map_err(|error| format!("cannot read received alerts: {error}"))?;
    match bytes {
        None => Ok(DecodedAlerts::default()),
        Some(bytes) => decode_received(&bytes).map_err(|error| error.to_string()),
    }
}
