//! Temporary folders for journals, on the disk of the build folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// cargo's target folder, which is on a disk with enough space for builds.
pub(crate) fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program")?;
    Ok(program.ancestors().nth(2).context("cannot find the target folder")?.to_owned())
}

/// A new folder, deleted on drop.
pub(crate) fn folder() -> Result<TempDir> {
    let target = target()?;
    let folder = tempfile::Builder::new().prefix("journal-").tempdir_in(&target);
    folder.with_context(|| format!("cannot create a folder in {}", target.display()))
}

/// File system of a folder, for the report.
pub(crate) fn describe(folder: &Path) -> String {
    let name = super::cost::file_system(folder).unwrap_or_else(|| "not known".to_owned());
    match name.as_str() {
        "tmpfs" => "tmpfs, **which is memory: nothing was written to a disk**".to_owned(),
        _ => name,
    }
}
