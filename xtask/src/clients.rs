//! The part `clients`: libraries that others wrote send known measurements to a running topdeck, which is then asked
//! for them. Counts have to be equal to the unit, and sums, least and greatest values to the last bit where the format
//! has them.
//!
//! The clients are in testdata/clients: a module of Go and a script of Python, with their versions pinned; what they
//! print is what topdeck has to answer (testdata/clients/go/main.go says how). A client for which there is no language,
//! no network or no Prometheus is skipped by itself, with the reason.

pub(crate) mod deck;
mod sent;
mod tools;

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use self::deck::Deck;
use self::sent::{Ask, Sent, table};
use self::tools::Tools;
use crate::line::Line;
use crate::log::Log;
use crate::part::Outcome;
use crate::report::{SkippedTest, TestReport};

/// How many numbers curl sends.
const NUMBERS: u64 = 5_000;
/// How long Prometheus may take to have sent everything, on a machine that is busy.
const SHARDS_WAIT: &str = "100ms";

pub(crate) fn run(log: &Log, topdeck: &Path) -> Result<Outcome> {
    if !Line::new("curl --version").succeeds() {
        let reason = "curl is not installed (Debian package curl)";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let tools = Tools::provide(log)?;
    let folder = Folder::new("clients")?;
    let skipped = tools.missing.clone();
    let mut sent = Vec::new();

    let mut exporter = tools.go.as_deref().map(Exporter::start).transpose()?;
    let scrapes = exporter.as_ref().map_or_else(String::new, |exporter| scrapes(&exporter.address));
    let mut deck = Deck::start(topdeck, &folder.0, &scrapes)?;
    let prometheus = match (&exporter, &tools.prometheus) {
        (Some(exporter), Some(program)) => {
            Some(prometheus(program, &folder.0, &exporter.address, &deck)?)
        }
        _ => None,
    };
    if let Some(go) = &tools.go {
        sent.extend(go_clients(go, &deck, &folder.0)?);
    }
    if let Some(python) = &tools.python {
        sent.extend(python_clients(python, &deck)?);
    }
    sent.extend(curl_clients(&deck)?);
    if let Some(exporter) = &mut exporter {
        sent.append(&mut exporter.sent);
    }
    if prometheus.is_none() {
        sent.retain(|sent| sent.client != "Prometheus");
    }
    sent.extend(as_grafana(&sent));

    let first = deck.wait_for(&sent)?;
    log.write(&table(&sent, &first));
    deck.grafana_starts()?;
    drop(prometheus);
    // What was only in memory is gone now, and what is read twice from the journal would count twice.
    deck.restart()?;
    let again = deck.wait_for(&sent)?;
    let wrong: Vec<String> =
        first.iter().chain(&again).filter_map(|answer| answer.wrong.clone()).collect();
    ensure!(
        wrong.is_empty(),
        "{} answers are wrong:\n  {}\n{}",
        wrong.len(),
        wrong.join("\n  "),
        deck.log()
    );
    let (series, names) = (sent.len(), clients(&sent));
    log.note(&format!("{series} series of {names} clients, before and after a restart"));
    deck.stop()?;
    let skipped = skipped.into_iter().map(|reason| {
        let (name, reason) = reason.split_once(": ").unwrap_or((&reason, "it is not here"));
        SkippedTest { name: name.to_owned(), reason: reason.to_owned() }
    });
    let (passed, skipped) = (clients(&sent) as u64, skipped.collect());
    Ok(Outcome::Tests(TestReport { passed, skipped, ..TestReport::default() }))
}

fn clients(sent: &[Sent]) -> usize {
    let mut names: Vec<&str> = sent.iter().map(|sent| sent.client.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn go_clients(go: &Path, deck: &Deck, folder: &Path) -> Result<Vec<Sent>> {
    let http = deck.http();
    let mut sent = lines(Command::new(go).args(["otlp", &http]))?;
    let socket = folder.join("statsd.sock");
    sent.extend(lines(Command::new(go).args(["statsd", &deck.udp()]).arg(socket))?);
    let trap = format!("http://{http}/module/httptrap/c640d8cb-7b9a-4f36-8b0e-6a2f0ad1e7a1/secret");
    sent.extend(lines(Command::new(go).args(["trap", &trap]))?);
    let log = folder.join("pauses.hlog");
    sent.extend(lines(Command::new(go).arg("hlog").arg(&log))?);
    let log = log.to_str().context("the folder's name is not UTF-8")?;
    deck.curl(&["--data-binary", &format!("@{log}")], "/v1/hlog?metric=hdr_pause")?;
    Ok(sent)
}

fn python_clients(python: &Path, deck: &Deck) -> Result<Vec<Sent>> {
    let script = crate::line::root().join("testdata/clients/python/send.py");
    let to = |arguments: &[&str]| lines(Command::new(python).arg(&script).args(arguments));
    let mut sent = to(&["otlp", &format!("http://{}/v1/metrics", deck.http())])?;
    sent.extend(to(&["statsd", "127.0.0.1", port(&deck.udp()), port(&deck.tcp())])?);
    Ok(sent)
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or_default()
}

/// The line of `topdeck serve --help`, and many numbers at once.
fn curl_clients(deck: &Deck) -> Result<Vec<Sent>> {
    deck.curl(&["-d", "1730"], "/v1/record?metric=took&unit=ms")?;
    // Each from 1 to 5,000 once, in an order that looks like none: 3,001 has no divisor with 5,000.
    let numbers = (0..NUMBERS).map(|i| format!("{}\n", i * 3_001 % NUMBERS + 1));
    let body: String = numbers.collect();
    deck.curl(&["--data-binary", &body], "/v1/record?metric=numbers&unit=ms&label.way=curl")?;
    let one = |what: &str, of: &str, count: u64, (sum, min, max): (u64, u64, u64)| {
        let ns = |ms: u64| Some((ms * 1_000_000) as f64);
        let (sum, min, max) = (ns(sum), ns(min), ns(max));
        let (what, of) = (what.to_owned(), of.to_owned());
        Sent {
            client: "curl".to_owned(),
            what,
            ask: Ask::Distribution,
            of,
            count,
            sum,
            min,
            max,
            within: Vec::new(),
        }
    };
    Ok(vec![
        one("one number", "took", 1, (1_730, 1_730, 1_730)),
        one("numbers", "numbers", NUMBERS, (NUMBERS * (NUMBERS + 1) / 2, 1, NUMBERS)),
    ])
}

/// The same histograms, asked for as a panel of Grafana does.
fn as_grafana(sent: &[Sent]) -> Vec<Sent> {
    let native = sent.iter().filter(|sent| sent.ask == Ask::Native);
    let range = native.map(|sent| Sent {
        client: "Grafana's query_range".to_owned(),
        what: sent.what.clone(),
        ask: Ask::Range,
        of: format!("histogram_count({})", sent.of),
        sum: Some(sent.count as f64),
        ..sent.clone()
    });
    range.collect()
}

fn scrapes(address: &str) -> String {
    let of = |form: &str, path: &str| {
        format!(
            "[[scrape]]\nname = \"{form}\"\nurl = \"http://{address}{path}\"\ninterval = \"1s\"\n\
             timeout = \"1s\"\nlabels = {{ form = \"{form}\" }}\n"
        )
    };
    [of("protobuf", "/metrics"), of("text", "/text"), of("openmetrics", "/openmetrics")].concat()
}

/// A Prometheus that scrapes the exporter and writes what it finds to topdeck, in both versions.
fn prometheus(program: &Path, folder: &Path, exporter: &str, deck: &Deck) -> Result<Running> {
    let write = |version: &str, message: &str| {
        format!(
            "- url: http://{}/api/v1/write\n  protobuf_message: {message}\n  send_native_histograms: true\n  \
             queue_config: {{batch_send_deadline: {SHARDS_WAIT}}}\n  write_relabel_configs:\n  \
             - {{target_label: sent, replacement: \"{version}\"}}\n",
            deck.http()
        )
    };
    let settings = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n- job_name: shop\n  \
         scrape_native_histograms: true\n  static_configs: [{{targets: [\"{exporter}\"]}}]\nremote_write:\n{}{}",
        write("1", "prometheus.WriteRequest"),
        write("2", "io.prometheus.write.v2.Request")
    );
    let path = folder.join("prometheus.yml");
    fs::write(&path, settings)?;
    let log = fs::File::create(folder.join("prometheus.log"))?;
    let child = Command::new(program)
        .arg(format!("--config.file={}", path.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg("--web.listen-address=127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start Prometheus")?;
    Ok(Running(child))
}

/// The exporter, until it is dropped, and what it says that it measures.
struct Exporter {
    address: String,
    sent: Vec<Sent>,
    _process: Running,
}

impl Exporter {
    fn start(go: &Path) -> Result<Exporter> {
        let mut child = Command::new(go)
            .arg("exporter")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the exporter")?;
        let stdout = child.stdout.take().context("BUG: stdout was asked for")?;
        let process = Running(child);
        let mut texts = BufReader::new(stdout).lines();
        let address = texts.next().context("the exporter ended at once")??;
        let mut sent = Vec::new();
        for text in texts {
            match text? {
                text if text.is_empty() => break,
                text => sent.push(Sent::read(&text)?),
            }
        }
        Ok(Exporter { address, sent, _process: process })
    }
}

/// A process that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a client says that it sent.
fn lines(command: &mut Command) -> Result<Vec<Sent>> {
    let named = format!("{command:?}");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {named}"))?;
    ensure!(output.status.success(), "{named} ended with {}", output.status);
    let text = String::from_utf8(output.stdout).context("a client prints what is no UTF-8")?;
    let sent: Vec<Sent> = text.lines().map(Sent::read).collect::<Result<_>>()?;
    ensure!(!sent.is_empty(), "{named} sent nothing");
    Ok(sent)
}

/// A folder that goes when the part ends.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// `of` whom it is stands in its name.
    pub(crate) fn new(of: &str) -> Result<Folder> {
        // Numbers of processes come again, and what one left that was killed would be in the way.
        let number = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("topdeck-{of}-{number:x}"));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
