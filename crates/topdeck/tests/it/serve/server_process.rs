//! A `topdeck serve` or `topdeck agent` process: start, stop, kill, freeze.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use std::time::{Duration, Instant};

use super::client::{TestResponse, request_at};
use crate::environment::{TIMEOUT, fresh_dir, stop};
pub(crate) use crate::environment::{free_port, wait_until};

/// Poll interval of a process state.
const PAUSE: Duration = Duration::from_millis(5);

/// Directory, removed on drop.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new() -> TestDir {
        TestDir(fresh_dir(&std::env::temp_dir()))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process, and how to restart it.
pub(crate) struct ServerProcess {
    role: &'static str,
    pub(crate) dir: TestDir,
    pub(crate) port: u16,
    host: Ipv4Addr,
    /// Network namespace, if not the default one.
    network: Option<String>,
    /// Bearer token for requests, if required.
    token: Option<String>,
    /// Whether it is started without a settings file.
    uses_defaults: bool,
    /// Environment variables.
    variables: Vec<(&'static str, PathBuf)>,
    child: Option<Child>,
    /// Length of the log at the last start.
    log_offset: usize,
}

impl ServerProcess {
    /// `more` are settings besides data directory and HTTP.
    pub(crate) fn new(role: &'static str, more: &str) -> ServerProcess {
        let dir = TestDir::new();
        let port = free_port();
        let settings = format!(
            "data_dir = \"data\"\ncollection_interval = \"1s\"\n{more}\n[http]\nlisten = \
             [\"127.0.0.1:{port}\"]\n[host]\nprocfs = false\nblock_io = false\nrun_queue = \
             false\nprocesses = false\nhiccup = false\nshm_metrics = false\ncrashes = \
             false\ncgroups = false\n"
        );
        std::fs::write(dir.path("topdeck.toml"), settings).expect("settings are written");
        let host = Ipv4Addr::LOCALHOST;
        ServerProcess {
            role,
            dir,
            port,
            host,
            network: None,
            token: None,
            uses_defaults: false,
            variables: Vec::new(),
            child: None,
            log_offset: 0,
        }
    }

    /// Server in another network namespace, reached at an address.
    pub(crate) fn in_network(network: &str, host: impl Into<Ipv4Addr>) -> ServerProcess {
        let mut deck = ServerProcess::new("serve", "");
        (deck.host, deck.network) = (host.into(), Some(network.to_owned()));
        let text = std::fs::read_to_string(deck.settings()).expect("there are settings");
        let text = text.replace("127.0.0.1", &deck.host.to_string());
        std::fs::write(deck.settings(), text).expect("settings are written");
        let output = Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .arg("token")
            .arg(deck.dir.path("data"))
            .args(["add", "test", "ingest", "read"])
            .output()
            .expect("the binary starts");
        let secret = String::from_utf8(output.stdout).expect("it is UTF-8");
        deck.token = Some(secret.trim().to_owned());
        deck
    }

    /// Server with default settings, if the default ports are free.
    pub(crate) fn with_defaults() -> Option<ServerProcess> {
        let mut deck = ServerProcess::new("serve", "");
        (deck.port, deck.uses_defaults) = (7717, true);
        let wanted = SocketAddr::from((deck.host, 8125));
        if TcpListener::bind(deck.address()).is_err() || UdpSocket::bind(wanted).is_err() {
            println!("skipped: the ports that it wants without settings, 7717 or 8125, are in use");
            return None;
        }
        Some(deck)
    }

    /// Sets environment variables of the process.
    pub(crate) fn set_variables(&mut self, variables: &[(&'static str, PathBuf)]) {
        self.variables.extend_from_slice(variables);
    }

    /// UDP port of the listener "StatsD" or "Graphite" of the running process; the settings have
    /// port 0.
    #[track_caller]
    pub(crate) fn udp_port(&self, of: &str) -> u16 {
        let start = format!(" {of} at ");
        let port = || {
            let log = self.log();
            let line = log.get(self.log_offset..)?.lines().find(|line| line.contains(&start))?;
            let rest = line.split("udp 127.0.0.1:").nth(1)?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        // It responds shortly before it logs its addresses.
        wait_until("it says where it takes datagrams", || port().is_some());
        port().expect("it has said so")
    }

    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().expect("it has one")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((self.host, self.port))
    }

    /// Sends a request.
    pub(crate) fn request(&self, method: &str, path: &str) -> std::io::Result<TestResponse> {
        let shown = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> =
            shown.iter().map(|shown| ("Authorization", shown.as_str())).collect();
        request_at(self.address(), method, path, &headers, b"")
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.dir.path("topdeck.toml")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path("log")).unwrap_or_default()
    }

    /// Starts it and waits until it responds.
    #[track_caller]
    pub(crate) fn start(&mut self) {
        self.spawn();
        self.await_ready();
    }

    pub(crate) fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path("log"))
            .expect("a log can be written");
        self.log_offset = self.log().len();
        let again = log.try_clone().expect("a descriptor is free");
        let binary = env!("CARGO_BIN_EXE_topdeck");
        let mut command = match &self.network {
            // `ip netns exec` becomes the binary: the process is the same.
            Some(network) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", network, binary]);
                command
            }
            None => {
                let mut command = Command::new(binary);
                command.env_clear();
                command
            }
        };
        command.envs(self.variables.iter().cloned());
        command.arg(self.role);
        match self.uses_defaults {
            true => command.arg("--data-dir").arg(self.dir.path("data")),
            false => command.arg("--config").arg(self.settings()),
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(again)
            .spawn()
            .expect("the binary starts");
        self.child = Some(child);
    }

    #[track_caller]
    pub(crate) fn await_ready(&mut self) {
        let began = Instant::now();
        loop {
            // With a full disk, /health answers 503, and the server is up.
            if let Ok(answer) = self.request("GET", "/health")
                && (answer.status == 200 || answer.text().contains("no space left"))
            {
                return;
            }
            if let Some(status) =
                self.child.as_mut().and_then(|child| child.try_wait().ok()).flatten()
            {
                panic!("topdeck {} ended ({status}):\n{}", self.role, self.log());
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "topdeck {} does not answer:\n{}",
                self.role,
                self.log()
            );
            std::thread::sleep(PAUSE);
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().expect("kill starts");
        assert!(status.success(), "kill {signal} {pid}");
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// Sends SIGTERM and waits for the exit.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.request_stop();
        self.await_end();
    }

    pub(crate) fn request_stop(&self) {
        self.signal("-TERM");
    }

    #[track_caller]
    pub(crate) fn await_end(&mut self) {
        let mut child = self.child.take().expect("it runs");
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("it can be waited for") {
                assert!(
                    status.success(),
                    "topdeck {} ended with {status}:\n{}",
                    self.role,
                    self.log()
                );
                return;
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "topdeck {} does not stop:\n{}",
                self.role,
                self.log()
            );
            std::thread::sleep(PAUSE);
        }
    }

    pub(crate) fn freeze(&self) {
        stop(self.pid());
    }

    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    pub(crate) fn reload(&self) {
        self.signal("-HUP");
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> TestResponse {
        self.request("GET", path).expect("it answers")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Starts a second instance, which must exit by itself: status and messages.
    #[track_caller]
    pub(crate) fn start_another(&self, more: &[&str]) -> (Option<i32>, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .args([self.role, "--config"])
            .arg(self.settings())
            .args(more)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("it can be waited for") {
                break status;
            }
            if began.elapsed() > TIMEOUT {
                let _ = child.kill();
                panic!("it does not end");
            }
            std::thread::sleep(PAUSE);
        };
        let mut said = String::new();
        let mut stderr = child.stderr.take().expect("it was asked for");
        std::io::Read::read_to_string(&mut stderr, &mut said).expect("it is UTF-8");
        (status.code(), said)
    }

    /// The audit; every difference must have a reason.
    #[track_caller]
    pub(crate) fn audit(&self) -> serde_json::Value {
        let audit = self.get("/v1/audit").json();
        assert_eq!(audit["reconciled"], true, "{audit:#}");
        audit
    }

    /// Losses in the audit, each as `reason: gaps/lost/unknown`.
    #[track_caller]
    pub(crate) fn losses(&self) -> Vec<String> {
        let audit = self.audit();
        let producers = audit["producers"].as_array().expect("producers");
        let losses =
            producers.iter().flat_map(|producer| producer["losses"].as_array().expect("losses"));
        let of = |loss: &serde_json::Value| {
            let reason = loss["reason"].as_str().expect("a reason");
            format!(
                "{reason}: {}/{}/{}",
                loss["gaps"], loss["samples_lost"], loss["gaps_of_unknown_size"]
            )
        };
        losses.map(of).collect()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let pid = self.pid();
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
        let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("statm");
        pages * 4096
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("log of the server:\n{}", self.log());
        }
    }
}

/// Appends to a settings file.
pub(crate) fn append(path: &Path, text: &str) {
    let mut file =
        std::fs::File::options().append(true).open(path).expect("the settings are there");
    file.write_all(text.as_bytes()).expect("settings are written");
}
