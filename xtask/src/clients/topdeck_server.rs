//! A `topdeck serve` process, queried with curl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::series_expectation::{QueryMethod, SeriesCheck, SeriesExpectation};

/// Timeout of operations that take a moment on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two polls.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct TopdeckServer {
    program: PathBuf,
    dir: PathBuf,
    /// Length of the log before the last start.
    log_offset: usize,
    child: Option<Child>,
}

impl TopdeckServer {
    /// Starts a server with its files in `dir`. `more` is appended to the settings: keys of the
    /// table `[http]`, then further tables.
    pub(crate) fn start(program: &Path, dir: &Path, more: &str) -> Result<TopdeckServer> {
        // The kernel chooses the ports, after a restart others; topdeck logs them.
        let settings = format!(
            "collection_interval = \"1s\"\n[statsd]\nudp = [\"127.0.0.1:0\"]\ntcp = \
             [\"127.0.0.1:0\"]\nunix = \"statsd.sock\"\n[host]\nprocfs = false\nblock_io = \
             false\nrun_queue = false\nprocesses = false\nhiccup = false\nshm_metrics = \
             false\ncgroups = false\n[http]\nlisten = [\"127.0.0.1:0\"]\n{more}"
        );
        fs::write(dir.join("topdeck.toml"), settings)?;
        let (program, dir) = (program.to_owned(), dir.to_owned());
        let mut deck = TopdeckServer { program, dir, log_offset: 0, child: None };
        deck.spawn()?;
        Ok(deck)
    }

    pub(crate) fn http(&self) -> String {
        self.logged_address("http://")
    }

    pub(crate) fn udp(&self) -> String {
        self.logged_address("udp ")
    }

    pub(crate) fn tcp(&self) -> String {
        self.logged_address("tcp ")
    }

    /// The address that follows `word` in the log; empty before the server is ready.
    pub(crate) fn logged_address(&self, word: &str) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let log = log.get(self.log_offset..).unwrap_or_default();
        let mut addresses =
            log.split(word).skip(1).filter_map(|text| text.split([',', '\n']).next());
        // A message about an address says more than the address.
        addresses.find(|address| !address.contains(' ')).unwrap_or_default().to_owned()
    }

    /// The end of the log.
    pub(crate) fn log(&self) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let start = log.floor_char_boundary(log.len().saturating_sub(4_000));
        format!("topdeck said:\n{}", &log[start..])
    }

    /// PID; 0 without a process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub(crate) fn spawn(&mut self) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.dir.join("log"))?;
        self.log_offset = usize::try_from(log.metadata()?.len())?;
        let child = Command::new(&self.program)
            .arg("serve")
            .arg("--config")
            .arg(self.dir.join("topdeck.toml"))
            .arg("--data-dir")
            .arg(self.dir.join("data"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        let began = Instant::now();
        while self.curl(&[], "/health").is_err() {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok()?) {
                bail!("topdeck exited with {status}; {}", self.log());
            }
            ensure!(began.elapsed() < TIMEOUT, "topdeck does not respond; {}", self.log());
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let mut child = self.child.take().context("BUG: it runs")?;
        let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        ensure!(status.success(), "cannot send SIGTERM to topdeck");
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "topdeck exited with {status}; {}", self.log());
                return Ok(());
            }
            sleep(PAUSE);
        }
        self.child = Some(child);
        bail!("topdeck does not stop; {}", self.log())
    }

    pub(crate) fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.spawn()
    }

    /// Returns the body of a successful response.
    pub(crate) fn curl(&self, options: &[&str], path: &str) -> Result<String> {
        let url = format!("http://{}{path}", self.http());
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail-with-body", "--max-time", "30"]).args(options).arg(&url);
        let output = command.stdin(Stdio::null()).output().context("cannot start curl")?;
        let answer = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{url}: {answer}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(answer.into_owned())
    }

    /// Queries until the answers equal what was sent, or the timeout is over: some values arrive an
    /// interval later.
    pub(super) fn await_series(&self, sent: &[SeriesExpectation]) -> Result<Vec<SeriesCheck>> {
        let began = Instant::now();
        sent.iter().map(|sent| self.await_one(sent, began)).collect()
    }

    fn await_one(&self, sent: &SeriesExpectation, began: Instant) -> Result<SeriesCheck> {
        loop {
            // Some queries of a missing series return an error.
            let answer = match self.query(sent) {
                Ok(answer) => sent.compare(&serde_json::from_str::<Value>(&answer)?),
                Err(error) => sent.compare(&Value::String(format!("{error:#}"))),
            };
            if answer.mismatch.is_none() || began.elapsed() > TIMEOUT {
                return Ok(answer);
            }
            sleep(PAUSE);
        }
    }

    fn query(&self, sent: &SeriesExpectation) -> Result<String> {
        let (selector, query) =
            (format!("selector={}", sent.selector), format!("query={}", sent.selector));
        match sent.method {
            QueryMethod::Distribution => {
                self.curl(&["-G", "--data-urlencode", &selector], "/v1/histogram")
            }
            QueryMethod::Native | QueryMethod::Number => {
                self.curl(&["--data-urlencode", &query], "/api/v1/query")
            }
            QueryMethod::Range => {
                let now = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
                let [start, end] = [format!("start={}", now - 300), format!("end={}", now + 1)];
                let form = ["-d", &start, "-d", &end, "-d", "step=1", "--data-urlencode", &query];
                self.curl(&form, "/api/v1/query_range")
            }
        }
    }

    /// Sends the requests that Grafana sends before it shows a panel: "Save & test", the lists of
    /// its editor, and the build information.
    pub(super) fn check_grafana_requests(&self) -> Result<()> {
        let matching = ["--data-urlencode", "match[]={__name__=~\".+\"}"];
        let asked: [(&[&str], &str); 6] = [
            (&["-d", "query=1%2B1", "-d", "time=1794906565.123"], "/api/v1/query"),
            (&[], "/api/v1/status/buildinfo"),
            (&[], "/api/v1/metadata"),
            (&["-X", "GET"], "/api/v1/label/__name__/values"),
            (&matching, "/api/v1/labels"),
            (&matching, "/api/v1/series"),
        ];
        for (options, path) in asked {
            let answer = self.curl(options, path)?;
            let value: Value = serde_json::from_str(&answer)?;
            ensure!(value["status"] == "success" && !value["data"].is_null(), "{path}: {answer}");
        }
        Ok(())
    }
}

impl Drop for TopdeckServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
