//! A PostgreSQL server of its own for a test.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::server_process::{TestDir, free_port, wait_until};

/// Shared memory that the server needs to start.
const MEMORY_BYTES: u64 = 32 << 20;
const LOGINS: &str = "local all all trust\nhost all secret 127.0.0.1/32 scram-sha-256\nhost all \
                      all 127.0.0.1/32 trust\n";

/// The server, with a socket in its directory.
pub(crate) struct PostgresServer {
    program: PathBuf,
    user: Option<(u32, u32)>,
    pub(crate) dir: TestDir,
    pub(crate) port: u16,
    child: Option<Child>,
    /// Whether pg_stat_statements is installed.
    pub(crate) has_statements: bool,
}

impl PostgresServer {
    /// None, with a line that says so, if PostgreSQL is not installed or cannot run here.
    pub(crate) fn start_new() -> Option<PostgresServer> {
        let (Some(initdb), Some(program)) = (find("initdb"), find("postgres")) else {
            println!("skipped: PostgreSQL is not installed (initdb and postgres)");
            return None;
        };
        let room = rustix::fs::statvfs("/dev/shm").map_or(0, |it| it.f_bavail * it.f_frsize);
        if room < MEMORY_BYTES {
            println!("skipped: PostgreSQL needs {MEMORY_BYTES} bytes in /dev/shm, has {room}");
            return None;
        }
        let dir = TestDir::new();
        // It refuses to run as root.
        let user = rustix::process::geteuid().is_root().then(|| user("postgres"));
        if let Some((uid, gid)) = user {
            if let Some(closed) = dir.0.ancestors().skip(1).find(|above| !lets_in(above, uid)) {
                println!("skipped: PostgreSQL's user {uid} may not enter {}", closed.display());
                return None;
            }
            chown(&dir.0, Some(uid), Some(gid)).expect("root may do that");
        }
        let share = Command::new(program.with_file_name("pg_config")).arg("--sharedir").output();
        let share = share.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
        let control = "extension/pg_stat_statements.control";
        let has_statements = share.is_ok_and(|share| Path::new(&share).join(control).exists());
        let port = free_port();
        let mut server = PostgresServer { program, user, dir, port, child: None, has_statements };
        let mut make = server.command(&initdb);
        make.args(["-U", "postgres", "--no-sync", "--locale=C", "-E", "UTF8", "-A", "trust"]);
        assert!(make.status().expect("it starts").success(), "initdb failed");
        std::fs::write(server.dir.path("data").join("pg_hba.conf"), LOGINS).expect("it is a file");
        server.start();
        Some(server)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir.0).arg("-D").arg(self.dir.path("data"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    pub(crate) fn start(&mut self) {
        let mut command = self.command(&self.program);
        let sockets = format!("unix_socket_directories={}", self.dir.0.display());
        let mut settings = vec!["listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=8MB"];
        settings.push(&sockets);
        if self.has_statements {
            settings.push("shared_preload_libraries=pg_stat_statements");
        }
        command.args(settings.into_iter().flat_map(|setting| ["-c", setting]));
        command.args(["-p", &self.port.to_string()]);
        self.child = Some(command.spawn().expect("it starts"));
        wait_until("PostgreSQL is ready", || self.try_sql("SELECT 1").is_some());
    }

    /// Stops it at once, as in a crash: sessions are terminated.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let pid = Pid::from_raw(child.id().cast_signed()).expect("a process has a number");
        let _ = kill_process(pid, Signal::QUIT);
        let _ = child.wait();
    }

    /// A session of psql that reads statements from its input.
    pub(crate) fn session(&self) -> Command {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]);
        command.args(["-p", &self.port.to_string(), "-d", "postgres", "-h"]).arg(&self.dir.0);
        command
    }

    fn try_sql(&self, sql: &str) -> Option<String> {
        let output = self.session().args(["-c", sql]).output().expect("psql starts");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[track_caller]
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|| panic!("PostgreSQL rejects {sql}"))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Finds a program in `PATH`, or where distributions install PostgreSQL.
fn find(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    dirs.extend(std::env::split_paths(&path));
    dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Whether a user may traverse a directory, by its mode.
fn lets_in(dir: &Path, uid: u32) -> bool {
    let found = std::fs::metadata(dir).expect("it exists");
    found.mode() & 0o001 != 0 || found.uid() == uid && found.mode() & 0o100 != 0
}

/// UID and GID of a user; those of nobody if it does not exist.
fn user(name: &str) -> (u32, u32) {
    let all = std::fs::read_to_string("/etc/passwd").expect("there are users");
    let find = |name: &str| {
        let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut fields = line.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find(name).or_else(|| find("nobody")).expect("no user to run PostgreSQL as")
}
