//! The running agent: a unit of systemd, or, without systemd, a shell loop that restarts it.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::changes::FileOwner;
use crate::host_root::HostRoot;

const UNIT: &str = "topdeck-agent.service";
/// The unit of the packages, whose program is in /usr/bin.
const UNIT_TEXT: &str = include_str!("../../../packaging/systemd/topdeck-agent.service");
/// Restarts the agent after a failure; a clean stop ends it. It is the leader of a process group.
const LOOP: &str = "\
while :; do
    \"$1\" agent --config \"$2\"
    [ $? = 0 ] && exit
    sleep 5
done";
/// Argument 0 of the loop.
const LOOP_NAME: &str = "topdeck-agent-loop";
const SHELL: &str = "/bin/sh";
/// Time for a stop: an agent takes at most 15 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of the log that an error has.
const LOG_LINES: usize = 5;

/// How the agent is run.
#[derive(Clone, Debug)]
pub(crate) enum AgentService {
    Systemd,
    Loop(HostRoot),
}

impl AgentService {
    /// systemd if it is the init of this system (sd_booted(3)).
    pub(crate) fn detect(root: &HostRoot) -> AgentService {
        match root.is_system() && Path::new("/run/systemd/system").is_dir() {
            true => AgentService::Systemd,
            false => AgentService::Loop(root.clone()),
        }
    }

    pub(crate) fn is_systemd(&self) -> bool {
        matches!(self, AgentService::Systemd)
    }

    /// Text of the unit file.
    pub(crate) fn unit_text(root: &HostRoot) -> String {
        UNIT_TEXT.replace("/usr/bin/topdeck", &root.program().display().to_string())
    }

    pub(crate) fn is_running(&self) -> bool {
        match self {
            AgentService::Systemd => systemctl(&["is-active", "--quiet", UNIT]).is_ok(),
            AgentService::Loop(root) => !running_groups(root).is_empty(),
        }
    }

    /// Starts the agent, also after a reboot if there is systemd.
    pub(crate) fn start(&self, owner: Option<FileOwner>) -> Result<()> {
        match self {
            AgentService::Systemd => {
                systemctl(&["daemon-reload"])?;
                systemctl(&["enable", "--now", UNIT])
            }
            AgentService::Loop(root) => start_loop(root, owner),
        }
    }

    /// Stops the agent, and removes its registration. It need not run.
    pub(crate) fn stop(&self) -> Result<()> {
        match self {
            AgentService::Systemd => systemctl(&["disable", "--now", UNIT]),
            AgentService::Loop(root) => stop_loop(root),
        }
    }

    /// Makes systemd forget a removed unit.
    pub(crate) fn reload(&self) -> Result<()> {
        match self {
            AgentService::Systemd => systemctl(&["daemon-reload"]),
            AgentService::Loop(_) => Ok(()),
        }
    }

    /// Last lines of the agent's log, for an error.
    pub(crate) fn last_lines(&self) -> String {
        let text = match self {
            AgentService::Systemd => {
                let command = Command::new("journalctl")
                    .args(["--unit", UNIT, "--lines", "5", "--output", "cat", "--no-pager"])
                    .stdin(Stdio::null())
                    .output();
                command.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            }
            AgentService::Loop(root) => fs::read_to_string(root.log()),
        };
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// How a user reads its log.
    pub(crate) fn log_hint(&self) -> String {
        match self {
            AgentService::Systemd => format!("journalctl -u {UNIT}"),
            AgentService::Loop(root) => root.log().display().to_string(),
        }
    }
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    let output = Command::new("systemctl")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot run systemctl")?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    bail!("`systemctl {}` failed: {error}", arguments.join(" "))
}

fn start_loop(root: &HostRoot, owner: Option<FileOwner>) -> Result<()> {
    let log_path = root.log();
    let log = OpenOptions::new().create(true).append(true).open(&log_path);
    let log = log.with_context(|| format!("cannot write {}", log_path.display()))?;
    let mut command = Command::new(SHELL);
    command
        .args(["-c", LOOP, LOOP_NAME])
        .arg(root.program())
        .arg(root.settings())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .env_remove("TOPDECK_ENROLLMENT_TOKEN")
        .process_group(0);
    if let Some(owner) = owner {
        command.uid(owner.user).gid(owner.group);
    }
    command.spawn().with_context(|| format!("cannot start {SHELL}"))?;
    Ok(())
}

fn stop_loop(root: &HostRoot) -> Result<()> {
    for (signal, timeout) in [(Signal::TERM, STOP_TIMEOUT), (Signal::KILL, STOP_TIMEOUT)] {
        let began = Instant::now();
        for group in running_groups(root) {
            // It may have ended by itself.
            let _ = kill_process_group(group, signal);
        }
        while began.elapsed() < timeout {
            if running_groups(root).is_empty() {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    bail!("cannot stop the agent: process groups {:?} do not end", running_groups(root))
}

/// Process groups of loop and agent, found by their arguments: no file can be out of date.
fn running_groups(root: &HostRoot) -> HashSet<Pid> {
    let (program, settings) = (root.program(), root.settings());
    let is_own = |arguments: &[&[u8]]| {
        let of_loop = [LOOP_NAME.as_bytes(), path_bytes(&program), path_bytes(&settings)];
        let of_agent = [path_bytes(&program), b"agent", b"--config", path_bytes(&settings)];
        arguments.ends_with(&of_loop) || arguments == of_agent
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let group = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let arguments: Vec<&[u8]> = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
        is_own(&arguments).then(|| group_of(&entry.path())).flatten()
    };
    entries.filter_map(group).collect()
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// Group of a process, unless it has ended (zombie).
fn group_of(dir: &Path) -> Option<Pid> {
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    // After the name, which may contain anything: state, parent, group.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    Pid::from_raw(fields.nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_runs_the_installed_program() {
        let text = AgentService::unit_text(&HostRoot::new(None));
        assert!(text.contains(
            "\nExecStart=/usr/local/bin/topdeck agent --config /etc/topdeck/agent.toml\n"
        ));
        assert!(!text.contains("/usr/bin/topdeck"));
    }
}
