//! A `topdeck serve` as a process, and questions to it by curl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::series_expectation::{QueryMethod, SeriesCheck, SeriesExpectation};

/// How long anything may take that should take a moment, on a machine that is busy.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between one question and the same again.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct TopdeckServer {
    program: PathBuf,
    folder: PathBuf,
    /// What it said before it was started last.
    log_offset: usize,
    child: Option<Child>,
}

impl TopdeckServer {
    /// Everything of it is in `folder`; `more` are settings beside the addresses: of the table
    /// `[http]`, and tables behind it.
    pub(crate) fn start(program: &Path, folder: &Path, more: &str) -> Result<TopdeckServer> {
        // The system chooses the ports, after a restart others; topdeck says which.
        let settings = format!(
            "collection_interval = \"1s\"\n[statsd]\nudp = [\"127.0.0.1:0\"]\ntcp = \
             [\"127.0.0.1:0\"]\nunix = \"statsd.sock\"\n[host]\nprocfs = false\nblock_io = \
             false\nrun_queue = false\nprocesses = false\nhiccup = false\nshm_metrics = \
             false\n[http]\nlisten = [\"127.0.0.1:0\"]\n{more}"
        );
        fs::write(folder.join("topdeck.toml"), settings)?;
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let mut deck = TopdeckServer { program, folder, log_offset: 0, child: None };
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

    /// What it says that stands behind a word; nothing before it is ready.
    fn logged_address(&self, word: &str) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let log = log.get(self.log_offset..).unwrap_or_default();
        let address = log.split(word).nth(1).unwrap_or_default();
        address.split([',', '\n']).next().unwrap_or_default().to_owned()
    }

    /// The end of what it said.
    pub(crate) fn log(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let start = log.floor_char_boundary(log.len().saturating_sub(4_000));
        format!("topdeck said:\n{}", &log[start..])
    }

    /// Its process; 0 while there is none.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub(crate) fn spawn(&mut self) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        self.log_offset = usize::try_from(log.metadata()?.len())?;
        let child = Command::new(&self.program)
            .arg("serve")
            .arg("--config")
            .arg(self.folder.join("topdeck.toml"))
            .arg("--data-dir")
            .arg(self.folder.join("data"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        let began = Instant::now();
        while self.curl(&[], "/health").is_err() {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok()?) {
                bail!("topdeck ended with {status}; {}", self.log());
            }
            ensure!(began.elapsed() < TIMEOUT, "topdeck does not answer; {}", self.log());
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let mut child = self.child.take().context("BUG: it runs")?;
        let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        ensure!(status.success(), "topdeck cannot be told to stop");
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "topdeck ended with {status}; {}", self.log());
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

    /// What is answered with a status of success.
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

    /// Asks until the answers are what was sent, for as long as patience goes: some are on their
    /// way for an interval.
    pub(super) fn await_series(&self, sent: &[SeriesExpectation]) -> Result<Vec<SeriesCheck>> {
        let began = Instant::now();
        sent.iter().map(|sent| self.await_one(sent, began)).collect()
    }

    fn await_one(&self, sent: &SeriesExpectation, began: Instant) -> Result<SeriesCheck> {
        loop {
            // A series that is not there yet is an error to some questions.
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

    /// What Grafana asks before it shows anything: "Save & test", the lists of its editor, and what
    /// it is that answers.
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
