//! The part `clients`: third-party client libraries send known measurements to a running topdeck,
//! and the part queries them. Counts must be equal. Sums, minima and maxima must be equal to the
//! last bit if the format contains them.
//!
//! The clients are in testdata/clients: a Go module, a Python script and a Node module with pinned
//! versions. Each client prints the expected answers (format: testdata/clients/go/main.go). A
//! client is skipped, with the reason, if its language, the network or Prometheus is missing. The
//! tests of examples/alert-bot run with a topdeck of their own.

mod client_tools;
mod series_expectation;
pub(crate) mod topdeck_server;

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use self::client_tools::ClientTools;
use self::series_expectation::{QueryMethod, SeriesExpectation, table};
use self::topdeck_server::TopdeckServer;
use crate::ci_part::PartOutcome;
use crate::command_line::CommandLine;
use crate::part_log::PartLog;
use crate::test_report::{SkippedTest, TestReport};

/// Number of values that curl sends.
const NUMBERS: u64 = 5_000;
/// Delay until Prometheus has sent everything on a busy machine.
const SHARDS_WAIT: &str = "100ms";

pub(crate) fn run(log: &PartLog, topdeck: &Path) -> Result<PartOutcome> {
    if !CommandLine::new("curl --version").succeeds() {
        let reason = "curl is not installed (Debian package curl)";
        return Ok(PartOutcome::Skipped(reason.to_owned()));
    }
    let tools = ClientTools::provide(log)?;
    let dir = TempDir::new("clients")?;
    let mut skipped = tools.missing.clone();
    match &tools.python {
        Some(python) => test_alert_bot(log, python, topdeck)?,
        None => skipped.push("examples/alert-bot: its packages are not installed".to_owned()),
    }
    let mut sent = Vec::new();

    let mut exporter = tools.go.as_deref().map(ClientExporter::start).transpose()?;
    let scrapes =
        exporter.as_ref().map_or_else(String::new, |exporter| scrape_settings(&exporter.address));
    let mut deck = TopdeckServer::start(topdeck, &dir.0, &scrapes)?;
    let prometheus = match (&exporter, &tools.prometheus) {
        (Some(exporter), Some(program)) => {
            Some(start_prometheus(program, &dir.0, &exporter.address, &deck)?)
        }
        _ => None,
    };
    if let Some(go) = &tools.go {
        sent.extend(go_clients(go, &deck, &dir.0)?);
    }
    if let Some(python) = &tools.python {
        sent.extend(python_clients(python, &deck)?);
    }
    if let Some(script) = &tools.node {
        let endpoint = format!("http://{}", deck.http());
        let mut node = Command::new("node");
        node.arg(script).env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
        sent.extend(read_sent(&mut node)?);
    }
    sent.extend(curl_clients(&deck)?);
    if let Some(exporter) = &mut exporter {
        sent.append(&mut exporter.sent);
    }
    if prometheus.is_none() {
        sent.retain(|sent| sent.client != "Prometheus");
    }
    sent.extend(grafana_queries(&sent));

    let first = deck.await_series(&sent)?;
    log.write(&table(&sent, &first));
    deck.check_grafana_requests()?;
    drop(prometheus);
    // After a restart, values that were only in memory are gone, and journal entries that are read
    // twice would count twice.
    deck.restart()?;
    let again = deck.await_series(&sent)?;
    let wrong: Vec<String> =
        first.iter().chain(&again).filter_map(|answer| answer.mismatch.clone()).collect();
    ensure!(
        wrong.is_empty(),
        "{} answers are wrong:\n  {}\n{}",
        wrong.len(),
        wrong.join("\n  "),
        deck.log()
    );
    let (series, names) = (sent.len(), client_count(&sent));
    log.note(&format!("{series} series of {names} clients, before and after a restart"));
    deck.stop()?;
    let skipped = skipped.into_iter().map(|reason| {
        let (name, reason) = reason.split_once(": ").unwrap_or((&reason, "not installed"));
        SkippedTest { name: name.to_owned(), reason: reason.to_owned() }
    });
    let bots = u64::from(tools.python.is_some());
    let (passed, skipped) = (client_count(&sent) as u64 + bots, skipped.collect());
    Ok(PartOutcome::Tests(TestReport { passed, skipped, ..TestReport::default() }))
}

/// Runs the tests of the example with gpiozero's mock pins and a topdeck.
fn test_alert_bot(log: &PartLog, python: &Path, topdeck: &Path) -> Result<()> {
    let (stdout, stderr) = log.outputs()?;
    log.note("examples/alert-bot: python -m unittest");
    let status = Command::new(python)
        .args(["-m", "unittest", "-v", "test_alert_bot"])
        .current_dir(crate::command_line::root().join("examples/alert-bot"))
        .env("TOPDECK_BIN", topdeck)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .status()
        .context("cannot start Python")?;
    ensure!(status.success(), "the tests of examples/alert-bot failed: {status}");
    Ok(())
}

fn client_count(sent: &[SeriesExpectation]) -> usize {
    let mut names: Vec<&str> = sent.iter().map(|sent| sent.client.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn go_clients(go: &Path, deck: &TopdeckServer, dir: &Path) -> Result<Vec<SeriesExpectation>> {
    let http = deck.http();
    let mut sent = read_sent(Command::new(go).args(["otlp", &http]))?;
    let socket = dir.join("statsd.sock");
    sent.extend(read_sent(Command::new(go).args(["statsd", &deck.udp()]).arg(socket))?);
    let trap = format!("http://{http}/module/httptrap/c640d8cb-7b9a-4f36-8b0e-6a2f0ad1e7a1/secret");
    sent.extend(read_sent(Command::new(go).args(["trap", &trap]))?);
    let log = dir.join("pauses.hlog");
    sent.extend(read_sent(Command::new(go).arg("hlog").arg(&log))?);
    let log = log.to_str().context("the directory name is not UTF-8")?;
    deck.curl(&["--data-binary", &format!("@{log}")], "/v1/hlog?metric=hdr_pause")?;
    Ok(sent)
}

fn python_clients(python: &Path, deck: &TopdeckServer) -> Result<Vec<SeriesExpectation>> {
    let script = crate::command_line::root().join("testdata/clients/python/send.py");
    let to = |arguments: &[&str]| read_sent(Command::new(python).arg(&script).args(arguments));
    let mut sent = to(&["otlp", &format!("http://{}", deck.http())])?;
    sent.extend(to(&["statsd", "127.0.0.1", port(&deck.udp()), port(&deck.tcp())])?);
    Ok(sent)
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or_default()
}

/// The command line of `topdeck serve --help`, and many values in one request.
fn curl_clients(deck: &TopdeckServer) -> Result<Vec<SeriesExpectation>> {
    deck.curl(&["-d", "1730"], "/v1/record?metric=took&unit=ms")?;
    // Each of 1 to 5,000 once, in a scattered order: 3,001 and 5,000 are coprime.
    let numbers = (0..NUMBERS).map(|i| format!("{}\n", i * 3_001 % NUMBERS + 1));
    let body: String = numbers.collect();
    deck.curl(&["--data-binary", &body], "/v1/record?metric=numbers&unit=ms&label.way=curl")?;
    let one = |what: &str, of: &str, count: u64, (sum, min, max): (u64, u64, u64)| {
        let ns = |ms: u64| Some((ms * 1_000_000) as f64);
        let (sum, min, max) = (ns(sum), ns(min), ns(max));
        let (what, of) = (what.to_owned(), of.to_owned());
        SeriesExpectation {
            client: "curl".to_owned(),
            label: what,
            method: QueryMethod::Distribution,
            selector: of,
            count,
            sum,
            min,
            max,
            unit: Some("ns".to_owned()),
            unbounded_fields: Vec::new(),
        }
    };
    Ok(vec![
        one("one number", "took", 1, (1_730, 1_730, 1_730)),
        one("numbers", "numbers", NUMBERS, (NUMBERS * (NUMBERS + 1) / 2, 1, NUMBERS)),
    ])
}

/// Queries of the same histograms as a Grafana panel sends them.
fn grafana_queries(sent: &[SeriesExpectation]) -> Vec<SeriesExpectation> {
    let native = sent.iter().filter(|sent| sent.method == QueryMethod::Native);
    let range = native.map(|sent| SeriesExpectation {
        client: "Grafana's query_range".to_owned(),
        label: sent.label.clone(),
        method: QueryMethod::Range,
        selector: format!("histogram_count({})", sent.selector),
        sum: Some(sent.count as f64),
        ..sent.clone()
    });
    range.collect()
}

fn scrape_settings(address: &str) -> String {
    let of = |form: &str, path: &str| {
        format!(
            "[[scrape]]\nname = \"{form}\"\nurl = \"http://{address}{path}\"\ninterval = \"1s\"\n\
             timeout = \"1s\"\nlabels = {{ form = \"{form}\" }}\n"
        )
    };
    [of("protobuf", "/metrics"), of("text", "/text"), of("openmetrics", "/openmetrics")].concat()
}

/// Starts a Prometheus that scrapes the exporter and sends samples to topdeck by remote write, in
/// both protocol versions.
fn start_prometheus(
    program: &Path,
    dir: &Path,
    exporter: &str,
    deck: &TopdeckServer,
) -> Result<KillOnDropProcess> {
    let write = |version: &str, message: &str| {
        format!(
            "- url: http://{}/api/v1/write\n  protobuf_message: {message}\n  \
             send_native_histograms: true\n  queue_config: {{batch_send_deadline: \
             {SHARDS_WAIT}}}\n  write_relabel_configs:\n  - {{target_label: sent, replacement: \
             \"{version}\"}}\n",
            deck.http()
        )
    };
    let settings = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n- job_name: shop\n  \
         scrape_native_histograms: true\n  static_configs: [{{targets: \
         [\"{exporter}\"]}}]\nremote_write:\n{}{}",
        write("1", "prometheus.WriteRequest"),
        write("2", "io.prometheus.write.v2.Request")
    );
    let path = dir.join("prometheus.yml");
    fs::write(&path, settings)?;
    let log = fs::File::create(dir.join("prometheus.log"))?;
    let child = Command::new(program)
        .arg(format!("--config.file={}", path.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("prometheus").display()))
        .arg("--web.listen-address=127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start Prometheus")?;
    Ok(KillOnDropProcess(child))
}

/// Exporter process, killed on drop, with the measurements that it announces.
struct ClientExporter {
    address: String,
    sent: Vec<SeriesExpectation>,
    _process: KillOnDropProcess,
}

impl ClientExporter {
    fn start(go: &Path) -> Result<ClientExporter> {
        let mut child = Command::new(go)
            .arg("exporter")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the exporter")?;
        let stdout = child.stdout.take().context("BUG: stdout is a pipe")?;
        let process = KillOnDropProcess(child);
        let mut texts = BufReader::new(stdout).lines();
        let address = texts.next().context("the exporter ended at once")??;
        let mut sent = Vec::new();
        for text in texts {
            match text? {
                text if text.is_empty() => break,
                text => sent.push(SeriesExpectation::read(&text)?),
            }
        }
        Ok(ClientExporter { address, sent, _process: process })
    }
}

/// A process that is killed on drop.
struct KillOnDropProcess(Child);

impl Drop for KillOnDropProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a client and parses the measurements that it prints.
fn read_sent(command: &mut Command) -> Result<Vec<SeriesExpectation>> {
    let named = format!("{command:?}");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {named}"))?;
    ensure!(output.status.success(), "{named} exited with {}", output.status);
    let text = String::from_utf8(output.stdout).context("a client printed invalid UTF-8")?;
    let sent: Vec<SeriesExpectation> =
        text.lines().map(SeriesExpectation::read).collect::<Result<_>>()?;
    ensure!(!sent.is_empty(), "{named} sent no measurements");
    Ok(sent)
}

/// A temporary directory, deleted on drop.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    /// `of` is part of the directory name.
    pub(crate) fn new(of: &str) -> Result<TempDir> {
        // PIDs are reused, and a killed process may have left its directory.
        let number = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("topdeck-{of}-{number:x}"));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(TempDir(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
