//! The running agent: a unit of systemd, or, without systemd, a shell loop that restarts it.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::changes::FileOwner;
use crate::host_root::HostRoot;
use crate::system_user::find_user;

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
pub(crate) struct AgentService {
    root: HostRoot,
    /// systemd, or a shell loop without.
    systemd: Option<Systemctl>,
}

/// State of an agent before an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitState {
    pub(crate) is_running: bool,
    /// Whether systemd starts it at boot.
    is_enabled: bool,
}

impl AgentService {
    /// systemd if it is the init of this system (sd_booted(3)).
    pub(crate) fn detect(root: &HostRoot) -> AgentService {
        let is_booted = root.is_system() && Path::new("/run/systemd/system").is_dir();
        let systemd = is_booted.then(|| Systemctl(vec!["systemctl".to_owned()]));
        AgentService { root: root.clone(), systemd }
    }

    pub(crate) fn is_systemd(&self) -> bool {
        self.systemd.is_some()
    }

    /// Text of the unit file.
    pub(crate) fn unit_text(root: &HostRoot) -> String {
        UNIT_TEXT.replace("/usr/bin/topdeck", &root.program().display().to_string())
    }

    /// Whether an agent runs. With systemd it may also be that of a shell loop, from a time before
    /// systemd.
    pub(crate) fn is_running(&self) -> bool {
        let is_active = |systemd: &Systemctl| systemd.is(&["is-active", "--quiet", UNIT]);
        self.systemd.as_ref().is_some_and(is_active) || !self.running_processes().is_empty()
    }

    pub(crate) fn state(&self) -> UnitState {
        let is_enabled = |systemd: &Systemctl| systemd.is(&["is-enabled", "--quiet", UNIT]);
        UnitState {
            is_running: self.is_running(),
            is_enabled: self.systemd.as_ref().is_some_and(is_enabled),
        }
    }

    /// Starts the agent, also after a reboot if there is systemd.
    pub(crate) fn start(&self, owner: Option<FileOwner>) -> Result<()> {
        match &self.systemd {
            Some(systemd) => {
                systemd.run(&["daemon-reload"])?;
                systemd.run(&["enable", "--now", UNIT])
            }
            None => start_loop(&self.root, owner),
        }
    }

    /// Stops the agent. It need not run.
    pub(crate) fn stop(&self) -> Result<()> {
        let stopped = self.systemd.as_ref().map_or(Ok(()), |systemd| systemd.run(&["stop", UNIT]));
        stopped.and(self.stop_loop())
    }

    /// Stops the agent, and removes its registration. It need not run.
    pub(crate) fn disable(&self) -> Result<()> {
        let disable = |systemd: &Systemctl| systemd.run(&["disable", "--now", UNIT]);
        let disabled = self.systemd.as_ref().map_or(Ok(()), disable);
        self.stop_loop().and(disabled)
    }

    /// Takes back a start: an agent that systemd started at boot before stays enabled.
    pub(crate) fn undo_start(&self, before: UnitState) -> Result<()> {
        if before.is_enabled { self.stop() } else { self.disable() }
    }

    /// Takes back a stop, when the previous files are in their places.
    pub(crate) fn undo_stop(&self, before: UnitState, owner: Option<FileOwner>) -> Result<()> {
        self.reload()?;
        match &self.systemd {
            _ if !before.is_running || self.is_running() => Ok(()),
            Some(systemd) => systemd.run(&["start", UNIT]),
            None => start_loop(&self.root, owner),
        }
    }

    /// Makes systemd read the unit files again.
    pub(crate) fn reload(&self) -> Result<()> {
        self.systemd.as_ref().map_or(Ok(()), |systemd| systemd.run(&["daemon-reload"]))
    }

    /// Last lines of the agent's log, for an error.
    pub(crate) fn last_lines(&self) -> String {
        let text = match &self.systemd {
            Some(_) => {
                let command = Command::new("journalctl")
                    .args(["--unit", UNIT, "--lines", "5", "--output", "cat", "--no-pager"])
                    .stdin(Stdio::null())
                    .output();
                command.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            }
            None => fs::read_to_string(self.root.log()),
        };
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// How a user reads its log.
    pub(crate) fn log_hint(&self) -> String {
        match &self.systemd {
            Some(_) => format!("journalctl -u {UNIT}"),
            None => self.root.log().display().to_string(),
        }
    }

    fn running_processes(&self) -> HashMap<Pid, Pid> {
        running_processes(&self.root, &trusted_users(&self.root))
    }

    fn stop_loop(&self) -> Result<()> {
        for (signal, timeout) in [(Signal::TERM, STOP_TIMEOUT), (Signal::KILL, STOP_TIMEOUT)] {
            let began = Instant::now();
            let running = self.running_processes();
            for (process, group) in &running {
                // A script that started an agent, such as the entry point of a container, leads its
                // group: only the agent is stopped then. It may have ended by itself.
                let _ = match running.contains_key(group) {
                    true => kill_process_group(*group, signal),
                    false => kill_process(*process, signal),
                };
            }
            while began.elapsed() < timeout {
                if self.running_processes().is_empty() {
                    return Ok(());
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        let running: Vec<_> = self.running_processes().into_keys().collect();
        bail!("cannot stop the agent: processes {running:?} do not end")
    }
}

/// Words of the command of systemctl, before its arguments.
#[derive(Clone, Debug)]
struct Systemctl(Vec<String>);

impl Systemctl {
    fn run(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new(&self.0[0])
            .args(&self.0[1..])
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

    fn is(&self, arguments: &[&str]) -> bool {
        self.run(arguments).is_ok()
    }
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

/// Users whose processes may be the agent: this one, and that of the agent.
fn trusted_users(root: &HostRoot) -> Vec<u32> {
    let own = rustix::process::getuid().as_raw();
    let agent = if root.is_system() { find_user().ok().flatten() } else { None };
    agent.map(|owner| owner.user).into_iter().chain([own]).collect()
}

/// Processes of loop and agent with their groups, found by their arguments: no file can be out of
/// date. Others may run processes with these arguments, which would be taken for the agent, and
/// killed.
fn running_processes(root: &HostRoot, users: &[u32]) -> HashMap<Pid, Pid> {
    let (program, settings) = (root.program(), root.settings());
    let is_own = |arguments: &[&[u8]]| {
        let of_loop = [LOOP_NAME.as_bytes(), path_bytes(&program), path_bytes(&settings)];
        let of_agent = [path_bytes(&program), b"agent", b"--config", path_bytes(&settings)];
        arguments.ends_with(&of_loop) || arguments == of_agent
    };
    // A container may have an agent of its own.
    let own_namespace = fs::read_link("/proc/self/ns/pid").ok();
    let is_elsewhere = |dir: &Path| {
        let namespace = fs::read_link(dir.join("ns/pid")).ok();
        namespace.is_some() && namespace != own_namespace
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let process = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let arguments: Vec<&[u8]> = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
        let is_own = is_own(&arguments) && users.contains(&user_of(&entry.path())?);
        let is_here = is_own && !is_elsewhere(&entry.path());
        let group = if is_here { group_of(&entry.path()) } else { None };
        Some((pid, group?))
    };
    entries.filter_map(process).collect()
}

/// Real user of a process. The owner of its directory is root if its memory may not be dumped.
fn user_of(dir: &Path) -> Option<u32> {
    let status = fs::read_to_string(dir.join("status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().next()?.parse().ok()
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
    use std::io::Write as _;
    use std::path::PathBuf;

    use super::*;

    /// systemctl for one unit. Its state is files of a directory, its unit file is `unit`.
    const SYSTEMCTL: &str = "\
cd \"$1\" && shift
case \"$1\" in
is-active) [ -e active ] ;;
is-enabled) [ -e enabled ] ;;
daemon-reload) ;;
start) cp unit active ;;
stop) rm -f active ;;
enable) touch enabled && cp unit active ;;
disable) rm -f enabled active ;;
esac";

    /// A directory of one test.
    struct ServiceDir(PathBuf);

    impl ServiceDir {
        fn new(name: &str) -> ServiceDir {
            let name = format!("topdeck-service-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(&dir).unwrap();
            ServiceDir(dir)
        }

        fn root(&self) -> HostRoot {
            HostRoot::new(Some(&self.0)).unwrap()
        }

        fn service(&self) -> AgentService {
            let dir = self.0.display().to_string();
            let words = [SHELL, "-c", SYSTEMCTL, "systemctl", &dir].map(str::to_owned);
            AgentService { root: self.root(), systemd: Some(Systemctl(words.to_vec())) }
        }
    }

    impl Drop for ServiceDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A failed update left the unit disabled, or a stopped one running.
    #[test]
    fn undone_update_leaves_the_unit_as_it_was() {
        for before in [[true, true], [true, false], [false, true], [false, false]] {
            let dir = ServiceDir::new(&format!("update-{before:?}"));
            let files = ["active", "enabled"].map(|name| dir.0.join(name));
            for (file, is_there) in files.iter().zip(before) {
                if is_there {
                    fs::write(file, "old unit").unwrap();
                }
            }
            let service = dir.service();
            let state = service.state();
            if state.is_running {
                service.stop().unwrap();
            }
            fs::write(dir.0.join("unit"), "new unit").unwrap();
            service.start(None).unwrap();
            // In the order of the undo: the start, the files, the stop.
            service.undo_start(state).unwrap();
            fs::write(dir.0.join("unit"), "old unit").unwrap();
            service.undo_stop(state, None).unwrap();
            assert_eq!(files.each_ref().map(|file| file.exists()), before);
            if before[0] {
                assert_eq!(fs::read_to_string(&files[0]).unwrap(), "old unit");
            }
        }
    }

    #[test]
    fn removed_agent_is_not_started_at_boot() {
        let dir = ServiceDir::new("remove");
        fs::write(dir.0.join("unit"), "").unwrap();
        let service = dir.service();
        service.start(None).unwrap();
        assert_eq!(service.state(), UnitState { is_running: true, is_enabled: true });
        service.disable().unwrap();
        assert_eq!(service.state(), UnitState { is_running: false, is_enabled: false });
    }

    /// Anybody may run a program with these arguments.
    #[test]
    fn process_of_another_user_is_not_the_agent() {
        let dir = ServiceDir::new("users");
        let root = dir.root();
        let mut child = Command::new(SHELL)
            .args(["-c", "echo up; read line", LOOP_NAME])
            .args([root.program(), root.settings()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let own = rustix::process::getuid().as_raw();
        let pid = Pid::from_child(&child);
        assert_eq!(running_processes(&root, &[own + 1, own]), HashMap::from([(pid, pid)]));
        assert_eq!(running_processes(&root, &[own + 1]), HashMap::new());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        child.wait().unwrap();
    }

    /// The entry point of a container starts the agent and a program in its own group.
    #[test]
    fn a_stop_leaves_the_program_that_started_the_agent() {
        let dir = ServiceDir::new("group");
        let (root, service) = (dir.root(), dir.service());
        let script = "sh -c 'echo up; sleep 5; :' \"$LOOP\" \"$PROGRAM\" \"$SETTINGS\" &
            read line; echo left";
        let mut child = Command::new(SHELL)
            .args(["-c", script])
            .env("LOOP", LOOP_NAME)
            .env("PROGRAM", root.program())
            .env("SETTINGS", root.settings())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut lines = [0; 3];
        std::io::Read::read_exact(&mut output, &mut lines).unwrap();
        assert!(service.is_running());
        service.stop_loop().unwrap();
        assert!(!service.is_running());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success(), "the stop ended the entry point too");
    }

    /// The first line of a status file is a name, which a process chooses.
    #[test]
    fn user_of_a_process_is_its_real_one() {
        let dir = ServiceDir::new("status");
        let status = "Name:\tUid:\nUmask:\t0022\nUid:\t1000\t0\t0\t0\n";
        fs::write(dir.0.join("status"), status).unwrap();
        assert_eq!(user_of(&dir.0), Some(1000));
        assert_eq!(user_of(&dir.0.join("none")), None);
    }

    #[test]
    fn unit_runs_the_installed_program() {
        let text = AgentService::unit_text(&HostRoot::new(None).unwrap());
        assert!(text.contains(
            "\nExecStart=/usr/local/bin/topdeck agent --config /etc/topdeck/agent.toml\n"
        ));
        assert!(!text.contains("/usr/bin/topdeck"));
    }
}
