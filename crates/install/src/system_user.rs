//! The user that runs the agent, made with the tools of the system: shadow's or busybox's.

use std::fs;
use std::io;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::changes::{FileOwner, HostChanges};
use crate::manifest::ManifestEntry;

/// Name of the user and its group, as in the packages.
pub(crate) const USER: &str = "topdeck";
const HOME: &str = "/var/lib/topdeck-agent";

/// Makes the user if it is missing; returns its ids, or `None` if nothing is made.
pub(crate) fn provide_user(changes: &mut HostChanges) -> Result<Option<FileOwner>> {
    if let Some(owner) = find_user()? {
        return Ok(Some(owner));
    }
    if !changes.begin(&format!("make user {USER}"))? {
        return Ok(None);
    }
    changes.record(ManifestEntry::User(USER.to_owned()))?;
    changes.on_undo(&format!("user {USER}"), || remove_user(USER));
    let useradd = ["--system", "--user-group", "--home-dir", HOME, "--no-create-home", "--shell"];
    let useradd = [&useradd[..], &["/usr/sbin/nologin", USER]].concat();
    let adduser = ["-S", "-D", "-H", "-h", HOME, "-s", "/sbin/nologin", "-G", USER, USER];
    match run("useradd", &useradd) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            require("addgroup", run("addgroup", &["-S", USER]))?;
            require("adduser", run("adduser", &adduser))?;
        }
        outcome => require("useradd", outcome)?,
    }
    match find_user()? {
        Some(owner) => Ok(Some(owner)),
        None => {
            bail!("cannot make user {USER}: it is not in /etc/passwd afterwards; make it first")
        }
    }
}

/// Removes the user and its group.
pub(crate) fn remove_user(name: &str) -> Result<()> {
    if find_user()?.is_none() {
        return Ok(());
    }
    match run("userdel", &[name]) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            require("deluser", run("deluser", &[name]))?;
            // busybox's `deluser` removes a group that has no other member.
            let _ = run("delgroup", &[name]);
            Ok(())
        }
        outcome => require("userdel", outcome),
    }
}

pub(crate) fn find_user() -> Result<Option<FileOwner>> {
    let text = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    Ok(text.lines().find_map(parse_user))
}

/// The ids of the user in its line of passwd(5).
fn parse_user(line: &str) -> Option<FileOwner> {
    let mut fields = line.split(':');
    if fields.next() != Some(USER) {
        return None;
    }
    fields.next()?;
    let (user, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(FileOwner { user, group })
}

fn run(tool: &str, arguments: &[&str]) -> io::Result<std::process::Output> {
    Command::new(tool).args(arguments).stdin(Stdio::null()).output()
}

fn require(tool: &str, outcome: io::Result<std::process::Output>) -> Result<()> {
    let output = outcome.with_context(|| {
        format!("cannot run {tool}; make the user {USER} by hand, and run the command again")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    bail!("cannot change the user {USER}: {tool} says {:?}", error.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_user() {
        let owner = FileOwner { user: 997, group: 996 };
        assert_eq!(parse_user("topdeck:x:997:996::/:/sbin/nologin"), Some(owner));
        for line in ["topdeck2:x:1:1::/:/", "root:x:0:0:topdeck:/:/", "topdeck:x:", ""] {
            assert_eq!(parse_user(line), None, "{line}");
        }
    }
}
