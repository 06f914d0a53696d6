//! Server programs, each on a loopback port and in a directory of its own, not as root.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Address of all servers.
pub(super) const ADDRESS: &str = "127.0.0.1";
/// Time for the start of a server on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for its end, after which it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A running server, ended on drop.
pub(super) struct ServerProcess {
    child: Child,
    log: PathBuf,
    signal: &'static str,
}

/// A directory of a server, and the user as whom its programs run.
pub(super) struct ServerDir {
    pub(super) path: PathBuf,
    /// UID and GID; `None`: those of this process.
    user: Option<(u32, u32)>,
}

impl ServerDir {
    /// Creates the directory `name` in `dir`. Servers of root run as `user`, or as nobody if there
    /// is no such user.
    pub(super) fn new(dir: &Path, name: &str, user: &str) -> Result<ServerDir> {
        let mut dir = ServerDir::of_this_user(dir, name)?;
        // This process has no other way to know its user.
        if fs::metadata("/proc/self")?.uid() == 0 {
            dir.user = Some(find_user(user)?);
        }
        dir.hand_over(&dir.path)?;
        Ok(dir)
    }

    /// As [`Self::new`], for programs in the build directory, which other users may not enter.
    pub(super) fn of_this_user(dir: &Path, name: &str) -> Result<ServerDir> {
        let path = dir.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(ServerDir { path, user: None })
    }

    /// A file of the server.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.hand_over(&path)?;
        Ok(path)
    }

    /// Gives a file to the user of the server.
    pub(super) fn hand_over(&self, path: &Path) -> Result<()> {
        let Some((uid, gid)) = self.user else { return Ok(()) };
        chown(path, Some(uid), Some(gid))
            .with_context(|| format!("cannot give {} to user {uid}", path.display()))
    }

    /// A program of the server, whose output goes to the file `log`.
    pub(super) fn command(&self, program: &Path) -> Result<Command> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = Command::new(program);
        command.current_dir(&self.path).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        Ok(command)
    }

    /// Runs a program to its end.
    pub(super) fn run(&self, command: &mut Command) -> Result<()> {
        let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
        if !status.success() {
            bail!("{command:?} exited with {status}: {}", self.log_end());
        }
        Ok(())
    }

    /// Starts a server and waits until it accepts connections at `port`. `signal` ends it.
    pub(super) fn start(
        &self,
        mut command: Command,
        port: u16,
        signal: &'static str,
    ) -> Result<ServerProcess> {
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut server = ServerProcess { child, log: self.log(), signal };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect((ADDRESS, port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{command:?} exited with {status}: {}", self.log_end());
            }
            if Instant::now() > deadline {
                bail!("{command:?} does not listen on port {port}: {}", self.log_end());
            }
            sleep(PAUSE);
        }
        Ok(server)
    }

    fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    fn log_end(&self) -> String {
        log_end(&self.log())
    }
}

impl ServerProcess {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the server wrote last.
    pub(super) fn log_end(&self) -> String {
        log_end(&self.log)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args([self.signal, &pid]).status();
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            sleep(PAUSE);
        }
    }
}

fn log_end(path: &Path) -> String {
    let log = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&log[log.len().saturating_sub(2_000)..]).into_owned()
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((ADDRESS, 0)).context("cannot bind a loopback port")?;
    Ok(listener.local_addr()?.port())
}

/// Finds a program in `PATH`, among those of the administrator, or where Debian has PostgreSQL.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    dirs.extend(versions.map(|version| version.path().join("bin")));
    dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// UID and GID of a user; those of nobody if it does not exist.
fn find_user(name: &str) -> Result<(u32, u32)> {
    let all = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let find = |name: &str| {
        let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut fields = line.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find(name).or_else(|| find("nobody")).with_context(|| format!("no user {name} or nobody"))
}

/// The number after `before`, such as that of `before 17 after`.
pub(super) fn number_after(text: &str, before: &str) -> Option<u64> {
    let (_, rest) = text.split_once(before)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_reports_are_found() {
        let report = "tps = 9\nnumber of transactions actually processed: 400/400\n";
        assert_eq!(number_after(report, "actually processed:"), Some(400));
        assert_eq!(number_after(report, "failed:"), None);
        assert_eq!(number_after("calls=", "calls="), None);
    }
}
