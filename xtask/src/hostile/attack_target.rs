//! Target of an attack: its own server with tokens for all clients.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::client::{AttackResponse, KeepAliveConnection, SILENCE_TIMEOUT};
use super::innocent_client;
use crate::clients::topdeck_server::TopdeckServer;

/// Small limits, so that an attack reaches them soon. The memory bounds of this suite assume this
/// query memory limit.
const STORE: &str = "max_head_size = \"16MiB\"\n";
const LIMITS: &str = "max_buffered_body_bytes = \"64MiB\"\nmax_query_memory = \"256MiB\"\n";
/// Interval between two polls.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct AttackTarget {
    program: PathBuf,
    dir: PathBuf,
    server: Mutex<TopdeckServer>,
    address: Mutex<SocketAddr>,
    pid: AtomicU32,
    /// Token of the innocent client, with the scopes `ingest` and `read`.
    pub(super) innocent_token: String,
    /// Token of the attacker, with the same scopes.
    pub(super) hostile_token: String,
    /// Token of a third client, which does nothing.
    pub(super) other_token: String,
    /// Tokens with one scope each.
    pub(super) ingest_token: String,
    pub(super) read_token: String,
    pub(super) admin_token: String,
}

impl AttackTarget {
    /// `store` and `limits` are settings of the tables `[store]` and `[http.limits]`.
    pub(super) fn new(
        program: &Path,
        dir: &Path,
        store: &str,
        limits: &str,
    ) -> Result<AttackTarget> {
        fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let data = dir.join("data");
        let token = |name: &str, scopes: &[&str]| {
            let mut command = Command::new(program);
            let output = command.arg("token").arg(&data).args(["add", name]).args(scopes).output();
            let output = output.with_context(|| format!("cannot start {}", program.display()))?;
            ensure!(output.status.success(), "no token in the output: {output:?}");
            Ok(String::from_utf8(output.stdout)?.trim().to_owned())
        };
        let both = ["ingest", "read"];
        let (innocent, hostile) = (token("innocent", &both)?, token("hostile", &both)?);
        let (other, ingest) = (token("other", &both)?, token("sender", &["ingest"])?);
        let (read, admin) = (token("reader", &["read"])?, token("admin", &["admin"])?);
        let settings = format!(
            "tokens_required = true\n[http.limits]\n{LIMITS}{limits}[store]\n{STORE}{store}"
        );
        let deck = TopdeckServer::start(program, dir, &settings)?;
        let address = deck.http().parse().context("the server did not log its address")?;
        let pid = AtomicU32::new(deck.pid());
        Ok(AttackTarget {
            program: program.to_owned(),
            dir: dir.to_owned(),
            server: Mutex::new(deck),
            address: Mutex::new(address),
            pid,
            innocent_token: innocent,
            hostile_token: hostile,
            other_token: other,
            ingest_token: ingest,
            read_token: read,
            admin_token: admin,
        })
    }

    /// Address of the server; a restart changes it.
    pub(super) fn address(&self) -> SocketAddr {
        *self.address.lock().expect("BUG: an attack panicked")
    }

    /// PID; 0 without a process.
    pub(super) fn pid(&self) -> u32 {
        self.pid.load(Ordering::SeqCst)
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn statsd(&self) -> String {
        self.server.lock().expect("BUG: an attack panicked").udp()
    }

    /// The end of the server's log.
    pub(super) fn log(&self) -> String {
        self.server.lock().expect("BUG: an attack panicked").log()
    }

    /// Stops the server, runs `action` on its store, and starts it again. Returns the duration of
    /// the stop.
    pub(super) fn restart_with(&self, action: impl FnOnce(&str) -> Result<()>) -> Result<Duration> {
        let mut deck = self.server.lock().expect("BUG: an attack panicked");
        let began = Instant::now();
        deck.stop()?;
        let time = began.elapsed();
        self.pid.store(0, Ordering::SeqCst);
        let store = self.dir.join("data/store");
        let outcome = action(store.to_str().context("the directory name is not UTF-8")?);
        deck.spawn()?;
        *self.address.lock().expect("BUG: an attack panicked") = deck.http().parse()?;
        self.pid.store(deck.pid(), Ordering::SeqCst);
        outcome.map(|()| time)
    }

    /// Runs a topdeck command; a failure is an error.
    pub(super) fn command(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new(&self.program).args(arguments).output()?;
        ensure!(
            output.status.success(),
            "topdeck {} exited with {}: {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// The Authorization header with a token.
    pub(super) fn authorization_header(token: &str) -> String {
        format!("Bearer {token}")
    }

    /// Sends a request of the attacker on its own connection.
    pub(super) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<AttackResponse> {
        self.request_as(&self.hostile_token, method, path, headers, body)
    }

    pub(super) fn request_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<AttackResponse> {
        let shown = AttackTarget::authorization_header(token);
        let mut all = vec![("Authorization", shown.as_str())];
        all.extend_from_slice(headers);
        KeepAliveConnection::open(self.address())?.request(method, path, &all, body)
    }

    /// Polls until the value equals the expected one, for at most [`SILENCE_TIMEOUT`].
    pub(super) fn wait_until<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        expected: &T,
        found: impl Fn() -> Result<T>,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let found = found();
            if found.as_ref().is_ok_and(|found| found == expected) {
                return Ok(());
            }
            ensure!(began.elapsed() < SILENCE_TIMEOUT, "{what}: {found:?}, not {expected:?}");
            sleep(PAUSE);
        }
    }

    /// Waits until exactly this many values of a metric are stored.
    pub(super) fn wait_until_stored(&self, metric: &str, values: u64) -> Result<()> {
        let path = format!("/v1/histogram?selector={metric}");
        self.wait_until(&format!("values of {metric}"), &values, || {
            let answer = self.request_as(&self.other_token, "GET", &path, &[], b"")?;
            Ok(innocent_client::count(&answer)?)
        })
    }

    /// Waits until the selector matches this many series.
    pub(super) fn wait_until_series(&self, selector: &str, series: u64) -> Result<()> {
        let path = format!("/v1/series?selector={selector}&limit=1");
        self.wait_until(&format!("series of {selector}"), &Some(series), || {
            Ok(self.request_as(&self.other_token, "GET", &path, &[], b"")?.json()?["total"]
                .as_u64())
        })
    }

    /// Sends lines of Influx line protocol in requests of moderate size; all must be accepted.
    pub(super) fn send_lines(&self, lines: &[String]) -> Result<()> {
        for lines in lines.chunks(50_000) {
            let answer =
                self.request("POST", "/write?precision=ms", &[], lines.concat().as_bytes())?;
            ensure!(answer.status == 204, "{}: {}", answer.status, answer.text());
        }
        Ok(())
    }
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Fails unless the server rejected the request (4xx or 503) or closed the connection.
pub(super) fn ensure_rejected(what: &str, answer: &io::Result<AttackResponse>) -> Result<()> {
    match answer {
        Ok(answer) => ensure!(
            matches!(answer.status, 400..500 | 503),
            "response to {what}: {}: {}",
            answer.status,
            answer.text()
        ),
        // The server may close the connection while data arrives, but it must respond before the
        // timeout.
        Err(error) => ensure!(error.kind() != io::ErrorKind::WouldBlock, "{what}: no answer"),
    }
    Ok(())
}
