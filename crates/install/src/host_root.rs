//! Paths of an installation, below `/` or another directory.

use std::path::{Path, PathBuf};

/// Root directory of an installation.
#[derive(Clone, Debug)]
pub(crate) struct HostRoot(PathBuf);

impl HostRoot {
    pub(crate) fn new(path: Option<&Path>) -> HostRoot {
        HostRoot(path.unwrap_or(Path::new("/")).to_owned())
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
