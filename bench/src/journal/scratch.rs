//! Temporary directories for journals, on the disk of the build directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// cargo's target directory, which is on a disk with enough space for builds.
pub(crate) fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program")?;
    Ok(program.ancestors().nth(2).context("cannot find the target directory")?.to_owned())
}

/// A new directory, deleted on drop.
pub(crate) fn dir() -> Result<TempDir> {
    let target = target()?;
    let dir = tempfile::Builder::new().prefix("journal-").tempdir_in(&target);
    dir.with_context(|| format!("cannot create a directory in {}", target.display()))
}

/// File system of a directory, for the report.
pub(crate) fn describe(dir: &Path) -> String {
    let name = super::cost::file_system(dir).unwrap_or_else(|| "not known".to_owned());
    match name.as_str() {
        "tmpfs" => "tmpfs, **which is memory: nothing was written to a disk**".to_owned(),
        _ => name,
    }
}
