//! Agents and remotes: authentication, audit on both sides, and the time to drain a backlog.

use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use decode::SeriesSink as _;
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::{Intake, WriteTarget};
use model::{Sample, SampleValue as Measured, Series, SeriesKind};
use net::PublicKeyPin;
use net::tls::ServerTls;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;

use super::load_sender::LoadSender;
use super::server_process::{ServerProcess, TestDir, append, wait_until};

fn run_topdeck(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(arguments)
        .env_clear()
        .output()
        .expect("the binary starts");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test is text")
}

/// Certificate authority with certificates in a directory.
struct TestCa {
    dir: TestDir,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCa {
    fn new() -> TestCa {
        let dir = TestDir::new();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(dir.path("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        TestCa { dir, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: &str, hosts: &[&str]) {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.dir.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.dir.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn file(&self, name: &str) -> String {
        text(&self.dir.path(name)).to_owned()
    }

    /// Creates a token on the server, or grants a certificate; returns the token file.
    fn admit(&self, deck: &ServerProcess, name: &str, more: &[&str]) -> String {
        let data = deck.dir.path("data");
        let arguments = [&["token", text(&data), "add", name], more].concat();
        let (done, token) = run_topdeck(&arguments);
        assert!(done, "{arguments:?}");
        let file = self.dir.path(&format!("{name}.token"));
        std::fs::write(&file, token).unwrap();
        text(&file).to_owned()
    }
}

/// Remote with TLS that requires client certificates.
fn tls_remote(authority: &TestCa) -> ServerProcess {
    authority.issue("site", &["localhost", "127.0.0.1"]);
    let tls = format!(
        "[http.tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n",
        authority.file("site.pem"),
        authority.file("site.key"),
        authority.file("ca.pem")
    );
    let deck = ServerProcess::new("serve", &tls);
    let settings = std::fs::read_to_string(deck.settings()).unwrap();
    let settings = settings.replace("[http]\n", "[http]\ntokens_required = true\n");
    std::fs::write(deck.settings(), settings).unwrap();
    deck
}

fn agent_for(url: &str, more: &str) -> ServerProcess {
    let agent = ServerProcess::new("agent", "");
    append(&agent.settings(), &format!("[[remote]]\nname = \"north\"\nurl = {url:?}\n{more}"));
    agent
}

/// Values that a remote has according to the agent.
fn values_at_remote(audit: &Value) -> u64 {
    let lines = audit["producers"].as_array().unwrap().iter();
    let lines = lines.flat_map(|producer| producer["stages"].as_array().unwrap());
    let lines = lines.filter(|line| line["stage"] == "remote north");
    lines.map(|line| line["stored"]["values"].as_u64().unwrap()).sum()
}

/// Values of agents in the store of a remote.
fn values_from_agents(audit: &Value) -> u64 {
    let producers = audit["producers"].as_array().unwrap().iter();
    let agents = producers.filter(|it| it["name"].as_str().unwrap().starts_with("agent "));
    agents.map(|agent| agent["stages"][1]["stored"]["values"].as_u64().unwrap()).sum()
}

/// The sender's values at a remote according to the agent.
fn sender_stage(audit: &Value) -> Value {
    let producers = audit["producers"].as_array().unwrap();
    let sender =
        producers.iter().find(|it| it["name"].as_str().unwrap().starts_with("record")).unwrap();
    sender["stages"].as_array().unwrap().last().unwrap().clone()
}

/// Both sides have the same counts and report no losses. Agents keep sending self-metrics
/// meanwhile.
#[track_caller]
fn await_balance(agents: &[(&ServerProcess, u64)], site: impl Fn() -> Option<Value>) {
    let mut last = String::new();
    let balanced = || {
        let audits: Vec<Value> =
            agents.iter().map(|(agent, _)| agent.get("/v1/audit").json()).collect();
        let Some(site) = site() else { return false };
        let sent: u64 = audits.iter().map(values_at_remote).sum();
        last = format!("{audits:#?}\n{site:#?}");
        let are_explained = audits.iter().chain([&site]).all(|audit| audit["reconciled"] == true);
        let have_all = audits.iter().zip(agents).all(|(audit, &(_, sent))| {
            let line = sender_stage(audit);
            (line["stored"]["values"].as_u64(), line["discrepancy"].as_i64())
                == (Some(sent), Some(0))
        });
        are_explained && have_all && sent == values_from_agents(&site)
    };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_until("both ends balance", balanced)
    }));
    assert!(done.is_ok(), "both ends do not balance: {last}");
}

fn send(agent: &ServerProcess, values: u64) -> u64 {
    let sender = LoadSender::start(agent.port, 1);
    wait_until("the sender gets on", || sender.acknowledged() >= values);
    sender.stop()
}

/// The log of an agent says once that its site is away, and once that it is back.
#[test]
fn log_says_that_a_site_is_away_and_back() {
    let mut site = ServerProcess::new("serve", "");
    let mut agent = agent_for(&format!("http://{}", site.address()), "");
    agent.start();
    let lines = |all: &[&str]| {
        let log = agent.log();
        log.lines().filter(|line| all.iter().all(|part| line.contains(part))).count()
    };
    let away = ["warn  remote \"north\" (http://", ") does not accept data: "];
    wait_until("the log says that the site is away", || lines(&away) == 1);
    site.start();
    let back = ["info  remote \"north\" accepts data again after "];
    wait_until("the log says that the site is back", || lines(&back) == 1);
    assert_eq!(lines(&away), 1, "{}", agent.log());
}

#[test]
fn remote_accepts_a_token_or_a_certificate() {
    let authority = TestCa::new();
    authority.issue("web-1", &[]);
    let mut site = tls_remote(&authority);
    // The certificate has both names; one of them does not resolve without /etc/hosts and a name
    // server.
    let found = ("localhost", site.port).to_socket_addrs();
    let is_known = found.is_ok_and(|mut all| all.any(|it| it == site.address()));
    let url = format!("https://{}:{}", if is_known { "localhost" } else { "127.0.0.1" }, site.port);
    let token = authority.admit(&site, "agent", &["ingest"]);
    authority.admit(&site, "web-1", &["ingest", "--client-cert-name", "web-1"]);
    let admin = authority.admit(&site, "admin", &["read", "admin"]);
    let wrong = authority.file("wrong.token");
    std::fs::write(&wrong, "no-such-token\n").unwrap();
    let ca = authority.file("ca.pem");
    let ask = || {
        let (_, json) = run_topdeck(&[
            "audit",
            "--json",
            "--server",
            &url,
            "--token-file",
            &admin,
            "--ca",
            &ca,
        ]);
        serde_json::from_str::<Value>(&json).ok()
    };
    site.spawn();
    wait_until("the site answers", || ask().is_some());
    let mut by_token = agent_for(&url, &format!("ca = {ca:?}\ntoken_file = {token:?}\n"));
    let (certificate, key) = (authority.file("web-1.pem"), authority.file("web-1.key"));
    let shown = format!("ca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let mut by_certificate = agent_for(&url, &shown);
    let mut late = agent_for(&url, &format!("ca = {ca:?}\ntoken_file = {wrong:?}\n"));
    by_token.start();
    by_certificate.start();
    late.start();
    let sent = [send(&by_token, 50), send(&by_certificate, 50), send(&late, 50)];
    // A rejected agent reports it and retains its data.
    wait_until("the status has the error", || {
        let status = late.get("/v1/status").json();
        let error = &status["remotes"][0]["last_error"]["reason"];
        error.as_str().is_some_and(|why| why.starts_with("401"))
    });
    assert_eq!(late.get("/v1/status").json()["remotes"][0]["position"], 0);
    std::fs::copy(&token, &wrong).unwrap();
    late.reload();
    await_balance(&[(&by_token, sent[0]), (&by_certificate, sent[1]), (&late, sent[2])], ask);
    assert_eq!(late.get("/v1/status").json()["remotes"][0]["last_error"], Value::Null);
}

/// A remote without a CA that its agents know: the key is enough, and another key is not.
#[test]
fn remote_is_trusted_by_a_pinned_public_key() {
    let authority = TestCa::new();
    let mut site = tls_remote(&authority);
    let token = authority.admit(&site, "agent", &["ingest"]);
    let tls = ServerTls {
        certificate: authority.file("site.pem").into(),
        key: authority.file("site.key").into(),
        client_ca: None,
    };
    let pin = tls.public_key_pin().unwrap().to_string();
    let other = CertificateParams::new(Vec::new()).unwrap();
    let other = other.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let other = PublicKeyPin::of_certificate(other.der()).unwrap().to_string();
    site.spawn();
    let more = format!("token_file = {token:?}\npinned_public_keys = [{other:?}]\n");
    let mut agent = agent_for(&format!("https://127.0.0.1:{}", site.port), &more);
    agent.start();
    let remote = || agent.get("/v1/status").json()["remotes"][0].clone();
    let reason = format!("the server's public key is {pin}, expected {other}");
    wait_until("the status has the error", || {
        remote()["last_error"]["reason"].as_str().is_some_and(|why| why.contains(&reason))
    });
    assert_eq!(remote()["acknowledged_ns"], Value::Null);
    let settings = std::fs::read_to_string(agent.settings()).unwrap();
    std::fs::write(agent.settings(), settings.replace(&other, &pin)).unwrap();
    agent.reload();
    wait_until("the remote acknowledges", || remote()["acknowledged_ns"].is_i64());
}

#[test]
fn audit_reconciles_after_kills() {
    let mut site = ServerProcess::new("serve", "");
    let mut agent = agent_for(&format!("http://127.0.0.1:{}", site.port), "");
    site.start();
    agent.start();
    let sender = LoadSender::start(agent.port, 1);
    for round in 1..=3 {
        wait_until("the sender gets on", || sender.acknowledged() >= round * 60);
        agent.kill();
        agent.start();
        wait_until("the sender gets on", || sender.acknowledged() >= round * 60 + 30);
        site.kill();
        site.start();
    }
    let sent = sender.stop();
    await_balance(&[(&agent, sent)], || Some(site.get("/v1/audit").json()));
    // After an orderly stop the counts are the same, and the ledger is read again.
    agent.stop();
    agent.start();
    await_balance(&[(&agent, sent)], || Some(site.get("/v1/audit").json()));
    let (explained, table) =
        run_topdeck(&["audit", "--server", &format!("http://127.0.0.1:{}", agent.port)]);
    assert!(explained, "{table}");
    let line = table.lines().find(|line| line.contains("remote north")).expect(&table);
    assert!(line.ends_with("the remote has all records of the journal"), "{table}");
}

/// Rows per batch.
const ROWS: u64 = 1_000;

/// Fills the journal of a stopped agent: rows of interval histograms, 100 values each. Returns the
/// number of rows.
fn fill(agent: &ServerProcess, bytes: u64) -> u64 {
    let disk: Arc<dyn disk::Disk> = Arc::new(disk::OsDisk);
    let dir = agent.dir.path("data/journal");
    let journal = journal::Journal::open(disk, &dir, &journal::Options::default()).unwrap();
    let intake =
        Intake::new(WriteTarget::Journal(Arc::new(journal)), intake::Settings::default()).unwrap();
    let series: Vec<(String, Series)> = (0..ROWS)
        .map(|n| {
            let name = format!("request_{}", n % 20);
            let kind = SeriesKind::Histogram(Temporality::Delta);
            let series =
                Series::new(&name, kind).with_unit("ns").with_label("path", format!("/{n}"));
            (format!("{n}"), series.validate().unwrap())
        })
        .collect();
    let (producer, mut dice) = (intake.producer("test"), 1u64);
    let (mut rows, mut time, mut pending_ack) = (0, 0, None);
    while intake.write_target().journal().stat().unwrap().segment_bytes < bytes {
        for _ in 0..10 {
            let mut writer = intake.writer(intake::SeriesKeyEncoding::GENERIC);
            for (key, series) in &series {
                let mut histogram = Histogram::default();
                for _ in 0..100 {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    histogram.record(((dice >> 40) as f64 / 1e6).exp());
                }
                writer.series(key.as_bytes(), &mut || Ok(series.clone())).unwrap();
                let value = Measured::Histogram(Box::new(histogram));
                writer.sample(&Sample { start: time, end: time + 1_000_000_000, value }).unwrap();
            }
            time += 1_000_000_000;
            rows += ROWS;
            pending_ack = Some(intake.append(&producer, writer).unwrap());
        }
        pending_ack.as_ref().unwrap().wait_durable().unwrap();
    }
    intake.stop();
    rows
}

/// `TOPDECK_BACKLOG_MB` is the size, 1000 by default; use `--release --nocapture` to measure.
#[test]
#[ignore = "a gigabyte; `make soak` runs it"]
fn soak_backlog_is_drained_in_bounded_memory() {
    let megabytes = std::env::var("TOPDECK_BACKLOG_MB").map_or(1_000, |text| text.parse().unwrap());
    let mut site = ServerProcess::new("serve", "");
    let mut agent =
        agent_for(&format!("http://127.0.0.1:{}", site.port), "[journal]\nmax_size = \"100GiB\"\n");
    // Creates the journal with the remote's subscriber.
    agent.start();
    agent.stop();
    let rows = fill(&agent, megabytes << 20);
    site.start();
    agent.start();
    let (began, mut most, mut last) = (Instant::now(), 0, 0);
    loop {
        most = most.max(agent.resident_bytes());
        let status = agent.get("/v1/status").json();
        let site = &status["remotes"][0];
        let (position, lag) = (site["position"].as_u64().unwrap(), site["lag"].as_u64().unwrap());
        if position > last {
            last = position;
        }
        // The agent's self-metrics arrive every second.
        if lag < 10 {
            break;
        }
        assert!(began.elapsed().as_secs() < 3_600, "{status:#?}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{megabytes} MB, {rows} rows in {seconds:.1} s: {:.0} rows/s, {:.1} MB/s of journal, \
         agent's memory {} MB at the most, site's {} MB",
        rows as f64 / seconds,
        megabytes as f64 / seconds,
        most >> 20,
        site.resident_bytes() >> 20,
    );
    assert!(most < 200 << 20, "{most} bytes of memory");
    let audit = agent.get("/v1/audit").json();
    assert_eq!(audit["reconciled"], true, "{audit:#?}");
    let producers = audit["producers"].as_array().unwrap();
    let test = producers.iter().find(|it| it["name"] == "test").unwrap();
    let line = test["stages"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (line["stored"]["values"].as_u64(), line["discrepancy"].as_i64()),
        (Some(rows * 100), Some(0))
    );
}
