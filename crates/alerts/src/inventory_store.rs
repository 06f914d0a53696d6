//! File of the inventory of series in the data directory: `docs/formats/series-inventory.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, read_file, replace_file};
use rules::{StoredInventory, decode_inventory};

/// Name in the data directory.
const FILE_NAME: &str = "series-inventory";
/// Maximum size: 30 million series.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The file.
pub(crate) struct InventoryStore {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl InventoryStore {
    pub(crate) fn new(disk: Arc<dyn Disk>, data: &Path) -> InventoryStore {
        InventoryStore { disk, path: data.join(FILE_NAME) }
    }

    /// The inventory as last written; `None` if the file is missing. One that cannot be read is
    /// kept under another name; the error says so.
    pub(crate) fn read(&self) -> Result<Option<StoredInventory>, String> {
        let read = read_file(&*self.disk, &self.path, FILE_BYTES_MAX);
        let Some(bytes) = read.map_err(|error| error.to_string())? else { return Ok(None) };
        decode_inventory(&bytes).map(Some).map_err(|error| {
            let kept = self.path.with_added_extension("damaged");
            match self.disk.rename(&self.path, &kept) {
                Ok(()) => format!("{error}; kept as {}", kept.display()),
                Err(_) => error.to_string(),
            }
        })
    }

    /// Replaces the inventory, durably and atomically.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), String> {
        replace_file(&*self.disk, &self.path, bytes).map_err(|error| error.to_string())
    }
}
