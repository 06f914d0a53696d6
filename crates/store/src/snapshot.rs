//! Snapshots by hard links of immutable parts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::path::Path;
use std::sync::Arc;

use disk::{Disk, FileError, IoContext, OpenMode};
use journal::StartPosition;

use crate::error::{Error, Result};
use crate::inner::SUBSCRIBER;
use crate::local_backend::LocalBackend;
use crate::manifest::Manifest;
use crate::manifest_file::ManifestFile;
use crate::mutex::lock;
use crate::store::Store;

/// Contents of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Number of parts.
    pub parts: u64,
    /// Bytes of the parts.
    pub bytes: u64,
    /// Rows in the parts, of all resolutions.
    pub rows: u64,
    /// Number of series.
    pub series: u64,
}

impl Store {
    /// Writes a snapshot of the store into a new directory. It contains everything acknowledged
    /// before. On the same file system, parts are hard links and take no space.
    pub fn snapshot(&self, disk: &Arc<dyn Disk>, to: &Path) -> Result<SnapshotInfo> {
        let inner = self.inner();
        let _work = lock(&inner.work);
        inner.flush()?;
        let manifest = Arc::clone(&inner.state().manifest);
        let from = inner.dir().to_owned();
        // A restored store is fed by another journal.
        let copied = Manifest {
            journal: None,
            position: 0,
            has_sections: false,
            ..Manifest::clone(&manifest)
        };
        copy(disk, &from, to, &copied)
    }

    /// Creates a store from a snapshot, in a new directory.
    pub fn restore(
        disk: &Arc<dyn Disk>,
        snapshot: &Path,
        dir: &Path,
        settings: &journal::Settings,
    ) -> Result<SnapshotInfo> {
        let manifest = {
            let file = ManifestFile::open(Arc::clone(disk), snapshot)?;
            let (bytes, _) =
                file.read()?.ok_or_else(|| Error::NotFound { dir: snapshot.to_owned() })?;
            Manifest::open(&bytes, snapshot)?
        };
        if manifest.journal.is_some() {
            return Err(Error::NotASnapshot { dir: snapshot.to_owned() });
        }
        if ManifestFile::exists(&**disk, dir)? {
            return Err(Error::AlreadyExists { dir: dir.to_owned() });
        }
        let journal = Store::create_journal(disk, &dir.join("journal"), settings)?;
        copy(disk, snapshot, dir, &Manifest { journal: Some(journal), position: 0, ..manifest })
    }

    /// Creates the journal of a store, unless one exists from before a crash. Returns its id.
    pub(crate) fn create_journal(
        disk: &Arc<dyn Disk>,
        path: &Path,
        settings: &journal::Settings,
    ) -> Result<u128> {
        disk.create_dir(path.parent().unwrap_or(path)).io_context("create", path)?;
        match journal::Journal::create(
            &**disk,
            path,
            journal::random_id(),
            journal::wall_clock()(),
            settings,
        ) {
            Ok(()) | Err(journal::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let options = journal::Options {
            is_exclusive: true,
            has_background_thread: false,
            ..Default::default()
        };
        let journal = journal::Journal::open(Arc::clone(disk), path, &options)?;
        match journal.add_subscriber(SUBSCRIBER, StartPosition::First, true) {
            Ok(_) | Err(journal::Error::CheckpointExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(journal.stat()?.id)
    }
}

/// Copies parts and keys, and the manifest last: a directory without a manifest is no store.
fn copy(disk: &Arc<dyn Disk>, from: &Path, to: &Path, manifest: &Manifest) -> Result<SnapshotInfo> {
    if ManifestFile::exists(&**disk, to)? {
        return Err(Error::AlreadyExists { dir: to.to_owned() });
    }
    let manifest_file = ManifestFile::open(Arc::clone(disk), to)?;
    for &number in manifest.parts.keys() {
        let name = LocalBackend::part_name(number);
        link(&**disk, &from.join(&name), &to.join(&name))?;
    }
    let parts = to.join("parts");
    disk.sync_dir(&parts).io_context("fsync", &parts)?;
    copy_bytes(&**disk, &from.join("series"), &to.join("series"))?;
    disk.sync_dir(to).io_context("fsync", to)?;
    manifest_file.replace(&manifest.write())?;
    Ok(SnapshotInfo {
        parts: manifest.parts.len() as u64,
        bytes: manifest.parts.values().map(|part| part.bytes).sum(),
        rows: manifest.parts.values().map(|part| part.rows).sum(),
        series: manifest.series,
    })
}

/// Hard link; between file systems, or where a crash left a partial copy, the bytes are copied.
fn link(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    match disk.link(from, to) {
        Ok(()) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::CrossesDevices | std::io::ErrorKind::AlreadyExists
            ) =>
        {
            copy_bytes(disk, from, to)
        }
        Err(error) => Err(FileError::new("link", to, error).into()),
    }
}

fn copy_bytes(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    const PIECE: usize = 1 << 20;
    let source = match disk.open(from, OpenMode::Read) {
        Ok(source) => source,
        // A store without series has no series file.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && from.ends_with("series") => {
            return Ok(());
        }
        Err(error) => return Err(FileError::new("open", from, error).into()),
    };
    // An existing file may be a hard link of another file, and must not be overwritten in place.
    match disk.remove(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(FileError::new("remove", to, error).into());
        }
        _ => {}
    }
    let target = disk.open(to, OpenMode::CreateNew).io_context("create", to)?;
    let mut bytes = vec![0; PIECE];
    let mut at = 0_u64;
    loop {
        let have = source.read_full_at(&mut bytes, at).io_context("read", from)?;
        target.write_all_at(&bytes[..have], at).io_context("write", to)?;
        at = at.saturating_add(have as u64);
        if have < PIECE {
            return Ok(target.sync().io_context("fsync", to)?);
        }
    }
}
