//! What an attack is made on: a server of its own, with tokens for everybody who comes.

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

use super::client::{Answer, Connection, SILENCE_MAX};
use super::innocent;
use crate::clients::deck::Deck;

/// Small limits, so that an attack reaches them soon. The budget of queries is the one of which the
/// bounds of this suite are said.
const STORE: &str = "head = \"16MiB\"\n";
const LIMITS: &str = "bodies_bytes = \"64MiB\"\nquery_bytes = \"256MiB\"\n";
/// Between one question and the same again.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Scene {
    program: PathBuf,
    folder: PathBuf,
    deck: Mutex<Deck>,
    address: Mutex<SocketAddr>,
    pid: AtomicU32,
    /// With the scopes `ingest` and `read`; nobody but the innocent client has it.
    pub(super) innocent: String,
    /// The same, of the attacker.
    pub(super) hostile: String,
    /// Of somebody else who has done nothing.
    pub(super) other: String,
    /// With one scope each.
    pub(super) ingest: String,
    pub(super) read: String,
    pub(super) admin: String,
}

impl Scene {
    /// `store` and `limits` are settings of the tables `[store]` and `[http.limits]`.
    pub(super) fn new(program: &Path, folder: &Path, store: &str, limits: &str) -> Result<Scene> {
        fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let data = folder.join("data");
        let token = |name: &str, scopes: &[&str]| {
            let mut command = Command::new(program);
            let output = command.arg("token").arg(&data).args(["add", name]).args(scopes).output();
            let output = output.with_context(|| format!("cannot start {}", program.display()))?;
            ensure!(output.status.success(), "there is no token: {output:?}");
            Ok(String::from_utf8(output.stdout)?.trim().to_owned())
        };
        let both = ["ingest", "read"];
        let (innocent, hostile) = (token("innocent", &both)?, token("hostile", &both)?);
        let (other, ingest) = (token("other", &both)?, token("sender", &["ingest"])?);
        let (read, admin) = (token("reader", &["read"])?, token("admin", &["admin"])?);
        let settings = format!(
            "tokens_required = true\n[http.limits]\n{LIMITS}{limits}[store]\n{STORE}{store}"
        );
        let deck = Deck::start(program, folder, &settings)?;
        let address = deck.http().parse().context("it does not say its address")?;
        let pid = AtomicU32::new(deck.pid());
        Ok(Scene {
            program: program.to_owned(),
            folder: folder.to_owned(),
            deck: Mutex::new(deck),
            address: Mutex::new(address),
            pid,
            innocent,
            hostile,
            other,
            ingest,
            read,
            admin,
        })
    }

    /// Where it is; it changes when it is started anew.
    pub(super) fn address(&self) -> SocketAddr {
        *self.address.lock().expect("BUG: an attack panicked")
    }

    /// The process; 0 while there is none.
    pub(super) fn pid(&self) -> u32 {
        self.pid.load(Ordering::SeqCst)
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn statsd(&self) -> String {
        self.deck.lock().expect("BUG: an attack panicked").udp()
    }

    /// The end of what the server said.
    pub(super) fn log(&self) -> String {
        self.deck.lock().expect("BUG: an attack panicked").log()
    }

    /// Stops the server, does something with its store, and starts it again; how long the stop
    /// took.
    pub(super) fn restart_with(&self, action: impl FnOnce(&str) -> Result<()>) -> Result<Duration> {
        let mut deck = self.deck.lock().expect("BUG: an attack panicked");
        let began = Instant::now();
        deck.stop()?;
        let time = began.elapsed();
        self.pid.store(0, Ordering::SeqCst);
        let store = self.folder.join("data/store");
        let outcome = action(store.to_str().context("the folder's name is not UTF-8")?);
        deck.spawn()?;
        *self.address.lock().expect("BUG: an attack panicked") = deck.http().parse()?;
        self.pid.store(deck.pid(), Ordering::SeqCst);
        outcome.map(|()| time)
    }

    /// A command of topdeck that has to succeed.
    pub(super) fn command(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new(&self.program).args(arguments).output()?;
        ensure!(
            output.status.success(),
            "topdeck {} ended with {}: {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// The header that shows a token.
    pub(super) fn shows(token: &str) -> String {
        format!("Bearer {token}")
    }

    /// The attacker asks, on a connection of its own.
    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.ask_as(&self.hostile, method, path, headers, body)
    }

    pub(super) fn ask_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let shown = Scene::shows(token);
        let mut all = vec![("Authorization", shown.as_str())];
        all.extend_from_slice(headers);
        Connection::open(self.address())?.request(method, path, &all, body)
    }

    /// Waits until something is so, as long as a server that does not hang can need.
    pub(super) fn until<T: PartialEq + std::fmt::Debug>(
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
            ensure!(began.elapsed() < SILENCE_MAX, "{what}: {found:?}, not {expected:?}");
            sleep(PAUSE);
        }
    }

    /// Waits until so many values of a metric are stored: not one less, not one more.
    pub(super) fn until_stored(&self, metric: &str, values: u64) -> Result<()> {
        let path = format!("/v1/histogram?selector={metric}");
        self.until(&format!("values of {metric}"), &values, || {
            let answer = self.ask_as(&self.other, "GET", &path, &[], b"")?;
            Ok(innocent::count(&answer)?)
        })
    }

    /// Waits until so many series of a selector are known.
    pub(super) fn until_series(&self, selector: &str, series: u64) -> Result<()> {
        let path = format!("/v1/series?selector={selector}&limit=1");
        self.until(&format!("series of {selector}"), &Some(series), || {
            Ok(self.ask_as(&self.other, "GET", &path, &[], b"")?.json()?["found"].as_u64())
        })
    }

    /// Lines of Influx, sent in requests that are not too large; all have to be taken.
    pub(super) fn send_lines(&self, lines: &[String]) -> Result<()> {
        for lines in lines.chunks(50_000) {
            let answer = self.ask("POST", "/write?precision=ms", &[], lines.concat().as_bytes())?;
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

/// What is hostile is refused for what it is: neither taken, nor a failure of the server.
pub(super) fn ensure_refused(what: &str, answer: &io::Result<Answer>) -> Result<()> {
    match answer {
        Ok(answer) => ensure!(
            matches!(answer.status, 400..500 | 503),
            "{what} is answered {}: {}",
            answer.status,
            answer.text()
        ),
        // It may close while more comes, but it answers within the time that is given to it.
        Err(error) => ensure!(error.kind() != io::ErrorKind::WouldBlock, "{what}: no answer"),
    }
    Ok(())
}
