//! `topdeck uninstall`: removes what the manifest lists, and the token of this host on the server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
    let root = HostRoot::new(options.root.as_deref())?;
    if root.is_system() && !rustix::process::geteuid().is_root() && !options.is_dry_run {
        bail!("cannot uninstall without root; run the command with sudo");
    }
    let _lock = if options.is_dry_run { None } else { root.lock()? };
    let Some(manifest) = InstallManifest::read(&root.manifest())? else {
        bail!(
            "nothing to uninstall: `topdeck install` has installed nothing here ({} is missing)",
            root.manifest().display()
        );
    };
    let step = |text: String| -> Result<bool> {
        let prefix = if options.is_dry_run { "would " } else { "" };
        print_stdout(format!("  {prefix}{text}\n").as_bytes())?;
        Ok(!options.is_dry_run)
    };
    let service = AgentService::detect(&root);
    if step("stop the agent".to_owned())?
        && let Err(error) = service.disable()
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
    remove_entries(&manifest, &root.program(), &mut |entry| remove_entry(entry, &root, &step))?;
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

/// Removes the entries of a manifest, those after an error, too. The program is the last, and stays
/// after an error: it removes the rest later.
fn remove_entries(
    manifest: &InstallManifest,
    program: &Path,
    remove: &mut dyn FnMut(&ManifestEntry) -> Result<()>,
) -> Result<()> {
    let is_program =
        |entry: &&ManifestEntry| matches!(entry, ManifestEntry::File(path) if path == program);
    let mut has_failed = false;
    for entry in manifest.0.iter().rev().filter(|entry| !is_program(entry)) {
        if let Err(error) = remove(entry) {
            print_message(format_args!("{error:#}"));
            has_failed = true;
        }
    }
    if has_failed {
        bail!("cannot remove all of it; see the errors above, and run `topdeck uninstall` again");
    }
    manifest.0.iter().find(is_program).map_or(Ok(()), remove)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// userdel fails while a process of the user runs. The program was gone by then.
    #[test]
    fn program_stays_until_all_else_is_removed() {
        let file = |path: &str| ManifestEntry::File(path.into());
        let user = ManifestEntry::User("topdeck".to_owned());
        let manifest = InstallManifest(vec![user.clone(), file("/bin/topdeck"), file("/etc/a")]);
        let check = |is_busy: bool, expected: &[ManifestEntry]| {
            let mut removed = Vec::new();
            let remove = &mut |entry: &ManifestEntry| {
                if is_busy && *entry == user {
                    bail!("userdel: user topdeck is currently used by process 7");
                }
                removed.push(entry.clone());
                Ok(())
            };
            let outcome = remove_entries(&manifest, Path::new("/bin/topdeck"), remove);
            assert_eq!((outcome.is_ok(), &*removed), (!is_busy, expected));
        };
        check(true, &[file("/etc/a")]);
        check(false, &[file("/etc/a"), user.clone(), file("/bin/topdeck")]);
    }
}
