//! Folders for journals to write to, on the disk that holds the build, and gone afterwards.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Beside the folder of this program: in cargo's target folder, which is on a disk where builds
/// fit.
pub(crate) fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program")?;
    Ok(program.ancestors().nth(2).context("cannot find the target folder")?.to_owned())
}

/// A new folder, removed with all it holds when dropped.
pub(crate) fn folder() -> Result<TempDir> {
    let target = target()?;
    let folder = tempfile::Builder::new().prefix("journal-").tempdir_in(&target);
    folder.with_context(|| format!("cannot create a folder in {}", target.display()))
}

/// What the journals are written to, for the report.
pub(crate) fn describe(folder: &Path) -> String {
    let name = super::cost::file_system(folder).unwrap_or_else(|| "not known".to_owned());
    match name.as_str() {
        "tmpfs" => "tmpfs, **which is memory: nothing was written to a disk**".to_owned(),
        _ => name,
    }
}
