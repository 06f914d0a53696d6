//! `topdeck uninstall`: removes what the manifest lists, and the token of this host on the server.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use client::{print_message, print_stdout};

use crate::changes::remove_if_exists;
use crate::host_root::HostRoot;
use crate::manifest::{InstallManifest, ManifestEntry};
use crate::server_api::ServerApi;
use crate::service::AgentService;
use crate::system_user::remove_user;

/// Options of a removal.
#[derive(Clone, Debug, Default)]
pub struct UninstallOptions {
    /// Directory instead of `/`.
    pub root: Option<PathBuf>,
    /// Whether nothing is changed.
    pub is_dry_run: bool,
}

/// Stops the agent, and removes all that `install` made.
pub fn uninstall(options: &UninstallOptions) -> Result<()> {
    let root = HostRoot::new(options.root.as_deref());
    let Some(manifest) = InstallManifest::read(&root.manifest())? else {
        bail!(
            "nothing to uninstall: `topdeck install` has installed nothing here ({} is missing)",
            root.manifest().display()
        );
    };
    if root.is_system() && !rustix::process::geteuid().is_root() && !options.is_dry_run {
        bail!("cannot uninstall without root; run the command with sudo");
    }
    let step = |text: String| -> Result<bool> {
        let prefix = if options.is_dry_run { "would " } else { "" };
        print_stdout(format!("  {prefix}{text}\n").as_bytes())?;
        Ok(!options.is_dry_run)
    };
    let service = AgentService::detect(&root);
    if step("stop the agent".to_owned())?
        && let Err(error) = service.stop()
    {
        // An interrupted installation has no unit yet.
        print_message(format_args!("{error:#}"));
    }
    if step("remove the token of this host on the server".to_owned())?
        && let Err(error) = unenroll(&root, &manifest)
    {
        print_message(format_args!(
            "{error:#}; the token is valid until `topdeck token DIR remove NAME` on the server"
        ));
    }
    for entry in manifest.0.iter().rev() {
        remove_entry(entry, &root, &step)?;
    }
    if !options.is_dry_run {
        remove_if_exists(&root.manifest())
            .with_context(|| format!("cannot remove {}", root.manifest().display()))?;
        remove_dirs(&manifest)?;
        service.reload()?;
    }
    Ok(())
}

fn unenroll(root: &HostRoot, manifest: &InstallManifest) -> Result<()> {
    let secret = match fs::read_to_string(root.token()) {
        Ok(text) => text.trim().to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => bail!("cannot read {}: {error}", root.token().display()),
    };
    match manifest.server() {
        Some((url, pins)) => ServerApi::new(url, &pins)?.unenroll(&secret),
        None => Ok(()),
    }
}

/// Removes an entry; directories follow when the manifest is gone.
fn remove_entry(
    entry: &ManifestEntry,
    root: &HostRoot,
    step: &dyn Fn(String) -> Result<bool>,
) -> Result<()> {
    match entry {
        ManifestEntry::Server(_) | ManifestEntry::Pin(_) | ManifestEntry::Dir(_) => Ok(()),
        ManifestEntry::User(name) => match step(format!("remove user {name}"))? {
            true if root.is_system() => remove_user(name),
            _ => Ok(()),
        },
        ManifestEntry::File(path) => match step(format!("remove {}", path.display()))? {
            true => {
                remove_if_exists(path).with_context(|| format!("cannot remove {}", path.display()))
            }
            false => Ok(()),
        },
        ManifestEntry::Tree(path) => match step(format!("remove {}", path.display()))? {
            true => match fs::remove_dir_all(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("cannot remove {}", path.display()))
                }
                _ => Ok(()),
            },
            false => Ok(()),
        },
    }
}

/// Removes the directories that are empty now; others have files of others.
fn remove_dirs(manifest: &InstallManifest) -> Result<()> {
    for entry in manifest.0.iter().rev() {
        let ManifestEntry::Dir(dir) = entry else { continue };
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                print_message(format_args!("{} has other files; it is kept", dir.display()));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                bail!("cannot remove {}: {error}", dir.display());
            }
            _ => {}
        }
    }
    Ok(())
}
