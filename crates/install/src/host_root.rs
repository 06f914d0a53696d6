//! Paths of an installation, below `/` or another directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};

/// Root directory of an installation.
#[derive(Clone, Debug)]
pub(crate) struct HostRoot(PathBuf);

/// Lock file of installations below `/`, which only root can open. It is not removed: the
/// directory is empty after a boot.
const SYSTEM_LOCK: &str = "/run/topdeck-install.lock";

impl HostRoot {
    /// The paths are absolute: the agent runs in another directory.
    pub(crate) fn new(path: Option<&Path>) -> Result<HostRoot> {
        let path = path.unwrap_or(Path::new("/"));
        let absolute = std::path::absolute(path);
        absolute.map(HostRoot).with_context(|| format!("invalid --root {}", path.display()))
    }

    /// Locks the root: two installations at a time would undo each other's steps. The lock ends
    /// with the file, or with the process.
    pub(crate) fn lock(&self) -> Result<Option<File>> {
        let (path, opened) = match self.is_system() {
            true => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false).mode(0o600);
                (Path::new(SYSTEM_LOCK), options.open(SYSTEM_LOCK))
            }
            // The directory itself, so that no file is left in it.
            false => (&*self.0, File::open(&self.0)),
        };
        let file = match opened {
            // Nothing is installed in a directory that does not exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_system() => {
                return Ok(None);
            }
            opened => opened.with_context(|| format!("cannot open {}", path.display()))?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => bail!(
                "cannot lock {}: another `topdeck install` or `uninstall` runs; wait until it ends",
                path.display()
            ),
            Err(TryLockError::Error(error)) => {
                Err(anyhow!("cannot lock {}: {error}", path.display()))
            }
        }
    }

    /// Whether it is `/`: users and services of the system are those of the installation.
    pub(crate) fn is_system(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// A file by its absolute path.
    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.join("/usr/local/bin/topdeck")
    }

    /// The program of a Debian or RPM package.
    pub(crate) fn packaged_program(&self) -> PathBuf {
        self.join("/usr/bin/topdeck")
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.join("/etc/topdeck/agent.toml")
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.join("/etc/topdeck/agent-token")
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.join("/etc/topdeck/agent-install")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.join("/var/lib/topdeck-agent")
    }

    pub(crate) fn unit(&self) -> PathBuf {
        self.join("/etc/systemd/system/topdeck-agent.service")
    }

    /// Log of an agent without systemd.
    pub(crate) fn log(&self) -> PathBuf {
        self.join("/var/log/topdeck-agent.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_root_is_that_of_the_current_directory() {
        let root = HostRoot::new(Some(Path::new("below/here"))).unwrap();
        let expected = std::env::current_dir().unwrap().join("below/here/etc/topdeck/agent.toml");
        assert_eq!(root.settings(), expected);
        assert!(!root.is_system() && HostRoot::new(None).unwrap().is_system());
        HostRoot::new(Some(Path::new(""))).unwrap_err();
    }

    #[test]
    fn one_installation_at_a_time_changes_a_root() {
        let path = std::env::temp_dir().join(format!("topdeck-root-{}", std::process::id()));
        let root = HostRoot::new(Some(&path)).unwrap();
        assert!(root.lock().unwrap().is_none(), "there is no directory");
        std::fs::create_dir(&path).unwrap();
        let first = root.lock().unwrap();
        let error = root.lock().unwrap_err().to_string();
        assert!(error.contains("another `topdeck install` or `uninstall` runs"), "{error}");
        drop(first);
        assert!(root.lock().unwrap().is_some());
        std::fs::remove_dir(&path).unwrap();
    }
}
