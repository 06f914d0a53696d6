//! A `topdeck serve` or `topdeck agent` as a process: started, stopped, killed, frozen.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::client::{Answer, request};

/// How long anything may take that should take a moment, on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that goes when the test ends.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("topdeck-serve-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port that was free a moment ago. A process that is started again needs the same one.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}

/// One process, and how to start it again.
pub(crate) struct Deck {
    role: &'static str,
    pub(crate) folder: Folder,
    pub(crate) port: u16,
    child: Option<Child>,
}

impl Deck {
    /// `more` are settings beside data and HTTP.
    pub(crate) fn new(role: &'static str, more: &str) -> Deck {
        let folder = Folder::new();
        let port = free_port();
        let settings = format!(
            "data = \"data\"\ninterval = \"1s\"\n{more}\n[http]\nlisten = [\"127.0.0.1:{port}\"]\n\
             [host]\nprocfs = false\nblock_io = false\nrun_queue = false\nhiccup = false\n"
        );
        std::fs::write(folder.path("topdeck.toml"), settings).expect("settings are written");
        Deck { role, folder, port, child: None }
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.folder.path("topdeck.toml")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path("log")).unwrap_or_default()
    }

    /// Starts it and waits until it answers.
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
            .open(self.folder.path("log"))
            .expect("a log can be written");
        let again = log.try_clone().expect("a descriptor is free");
        let child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .args([self.role, "--config"])
            .arg(self.settings())
            .env_clear()
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
            if let Ok(answer) = request(self.port, "GET", "/health", &[], b"")
                && answer.status == 200
            {
                return;
            }
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok()).flatten() {
                panic!("topdeck {} ended ({status}):\n{}", self.role, self.log());
            }
            assert!(began.elapsed() < PATIENCE, "topdeck {} does not answer:\n{}", self.role, self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().expect("kill starts");
        assert!(status.success(), "kill {signal} {pid}");
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// Asks it to stop, and waits until it has.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal("-TERM");
        let mut child = self.child.take().expect("it runs");
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("it can be waited for") {
                assert!(status.success(), "topdeck {} ended with {status}:\n{}", self.role, self.log());
                return;
            }
            assert!(began.elapsed() < PATIENCE, "topdeck {} does not stop:\n{}", self.role, self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    pub(crate) fn reload(&self) {
        self.signal("-HUP");
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        request(self.port, "GET", path, &[], b"").expect("it answers")
    }

    /// A process's memory in bytes, as the system counts it.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let pid = self.child.as_ref().expect("it runs").id();
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
        let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("statm");
        pages * 4096
    }
}

impl Drop for Deck {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Adds to a file of settings.
pub(crate) fn append(path: &Path, text: &str) {
    let mut file = std::fs::File::options().append(true).open(path).expect("the settings are there");
    file.write_all(text.as_bytes()).expect("settings are written");
}
