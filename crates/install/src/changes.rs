//! Changes to this host, each with its undo.
//!
//! A file is replaced by a rename, and the previous one stays beside it until the installation
//! succeeds. With `--dry-run` changes are printed and not made.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, anyhow, bail};
use client::{print_message, print_stdout};

use crate::manifest::{InstallManifest, ManifestEntry};

/// Suffixes of a file that is being written, and of the previous one.
const SUFFIXES: [&str; 2] = [".topdeck-new", ".topdeck-old"];

/// Takes back a change.
type UndoFn = Box<dyn FnOnce() -> Result<()>>;

/// User and group of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileOwner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// Changes of an installation.
pub(crate) struct HostChanges {
    is_dry_run: bool,
    is_interrupted: Arc<AtomicBool>,
    manifest_path: PathBuf,
    manifest: InstallManifest,
    /// Directories that a dry run would have made.
    planned_dirs: HashSet<PathBuf>,
    undo: Vec<(String, UndoFn)>,
    replaced: Vec<PathBuf>,
}

impl HostChanges {
    pub(crate) fn new(
        is_dry_run: bool,
        is_interrupted: Arc<AtomicBool>,
        manifest_path: PathBuf,
        manifest: InstallManifest,
    ) -> HostChanges {
        HostChanges {
            is_dry_run,
            is_interrupted,
            manifest_path,
            manifest,
            planned_dirs: HashSet::new(),
            undo: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// Prints a step. Returns whether it is to be made.
    pub(crate) fn begin(&self, step: &str) -> Result<bool> {
        self.check_interrupt()?;
        let prefix = if self.is_dry_run { "would " } else { "" };
        print_stdout(format!("  {prefix}{step}\n").as_bytes())?;
        Ok(!self.is_dry_run)
    }

    /// An error if a signal has asked for the end.
    pub(crate) fn check_interrupt(&self) -> Result<()> {
        match self.is_interrupted.load(Ordering::Relaxed) {
            true => bail!("interrupted"),
            false => Ok(()),
        }
    }

    /// How to take back a change that was made.
    pub(crate) fn on_undo(&mut self, what: &str, undo: impl FnOnce() -> Result<()> + 'static) {
        self.undo.push((what.to_owned(), Box::new(undo)));
    }

    /// Adds an entry to the manifest, before it is made.
    pub(crate) fn record(&mut self, entry: ManifestEntry) -> Result<()> {
        self.manifest.add(entry);
        if self.is_dry_run {
            return Ok(());
        }
        let is_new = !self.manifest_path.exists();
        let text = self.manifest.text();
        replace_file(&self.manifest_path, text.as_bytes(), 0o644, None)?;
        if is_new {
            let path = self.manifest_path.clone();
            self.undo.push((path.display().to_string(), remove_file_step(path)));
        }
        Ok(())
    }

    /// Makes a directory and its missing parents.
    pub(crate) fn make_dir(&mut self, dir: &Path, mode: u32) -> Result<()> {
        let missing: Vec<PathBuf> =
            dir.ancestors().take_while(|dir| !self.is_made(dir)).map(Path::to_owned).collect();
        for dir in missing.into_iter().rev() {
            if !self.begin(&format!("make directory {}", dir.display()))? {
                self.planned_dirs.insert(dir);
                continue;
            }
            let entry = ManifestEntry::Dir(dir.clone());
            // The manifest itself is in the first one.
            match self.manifest_path.starts_with(&dir) {
                true => self.manifest.add(entry),
                false => self.record(entry)?,
            }
            DirBuilder::new()
                .mode(mode)
                .create(&dir)
                .with_context(|| format!("cannot make directory {}", dir.display()))?;
            let made = dir.clone();
            self.on_undo(&dir.display().to_string(), move || Ok(fs::remove_dir(made)?));
        }
        Ok(())
    }

    fn is_made(&self, dir: &Path) -> bool {
        dir.exists() || self.planned_dirs.contains(dir)
    }

    /// Writes a file, if it differs. Returns whether it did.
    pub(crate) fn write(
        &mut self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        owner: Option<FileOwner>,
    ) -> Result<bool> {
        let found = fs::read(path);
        if found.as_ref().is_ok_and(|found| found == bytes) {
            self.begin(&format!("keep {}: it is up to date", path.display()))?;
            return Ok(false);
        }
        let verb = if found.is_ok() { "replace" } else { "write" };
        if !self.begin(&format!("{verb} {}", path.display()))? {
            return Ok(true);
        }
        match found {
            Ok(_) => {
                let saved = with_suffix(path, SUFFIXES[1]);
                fs::rename(path, &saved)
                    .with_context(|| format!("cannot rename {}", path.display()))?;
                let (path, old) = (path.to_owned(), saved.clone());
                self.on_undo(&path.display().to_string(), move || Ok(fs::rename(old, &path)?));
                self.replaced.push(saved);
            }
            Err(_) => {
                self.record(ManifestEntry::File(path.to_owned()))?;
                self.undo.push((path.display().to_string(), remove_file_step(path.to_owned())));
            }
        }
        replace_file(path, bytes, mode, owner)?;
        Ok(true)
    }

    /// Keeps the changes.
    pub(crate) fn commit(self) {
        for path in self.replaced {
            // It is only a copy; `uninstall` removes it, too.
            let _ = fs::remove_file(path);
        }
    }

    /// Takes back all changes, the last one first.
    pub(crate) fn roll_back(self) {
        for (what, undo) in self.undo.into_iter().rev() {
            if let Err(error) = undo() {
                print_message(format_args!("cannot undo {what}: {error:#}; undo it by hand"));
            }
        }
    }
}

fn remove_file_step(path: PathBuf) -> UndoFn {
    Box::new(move || Ok(remove_if_exists(&path)?))
}

/// Removes a file and what an interrupted write left beside it.
pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    let beside = SUFFIXES.map(|suffix| with_suffix(path, suffix));
    for path in beside.iter().map(PathBuf::as_path).chain([path]) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Replaces a file durably and atomically.
fn replace_file(path: &Path, bytes: &[u8], mode: u32, owner: Option<FileOwner>) -> Result<()> {
    let new = with_suffix(path, SUFFIXES[0]);
    let written = write_file(&new, bytes, mode, owner).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        // Cleanup; the write error is returned.
        let _ = fs::remove_file(&new);
        write_error(path, &error)
    })
}

fn write_error(path: &Path, error: &io::Error) -> anyhow::Error {
    let dir = path.parent().unwrap_or(path).display();
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("free space on the disk of {dir}")
        }
        io::ErrorKind::PermissionDenied => format!("run it as a user who may write to {dir}"),
        io::ErrorKind::ReadOnlyFilesystem => format!("make {dir} writable"),
        _ => format!("check {dir}"),
    };
    anyhow!("cannot write {}: {error}; {remedy}", path.display())
}

fn write_file(path: &Path, bytes: &[u8], mode: u32, owner: Option<FileOwner>) -> io::Result<()> {
    // An earlier attempt may have left it.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    if let Some(owner) = owner {
        fchown(&file, Some(owner.user), Some(owner.group))?;
    }
    // The mode, whatever the umask.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()
}
