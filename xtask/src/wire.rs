//! The part `wire`: `topdeck wire` observes real servers while real clients use them. Its counts
//! must be those of the clients.
//!
//! Servers run on loopback ports of their own. A load fails if operations are missing although the
//! kernel dropped no packet, if there are more than the client had, or if a quantile is outside of
//! what client or server measured. The table has the CPU time of the observer per operation; it
//! does not affect the outcome, because other programs may run on the machine.
//!
//! Then all of them run at once, first as fast as they can, and then with [`STEADY_RATE`]
//! operations per second for a minute. At last the cost for a server is measured. Targets for times
//! and cost need a machine that does nothing else: `TOPDECK_WIRE_TARGETS=1` makes a target that is
//! missed a failure.
//!
//! `TOPDECK_WIRE=NAME,NAME` runs the loads of some servers, `TOPDECK_WIRE=cost` the cost alone;
//! `TOPDECK_BIN=PATH` observes with another program than the one that `make run` builds.

mod capture_process;
mod cassandra;
mod go_tls;
mod http;
mod http_session;
mod java_server;
mod kafka;
mod load_pace;
mod load_result;
mod load_truth;
mod mysql;
mod mysql_session;
mod observer_cost;
mod postgres;
mod postgres_session;
mod redis;
mod server_process;
mod timed_server;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};

use self::capture_process::{CaptureProcess, ObserverReport};
use self::load_pace::LoadPace;
use self::load_result::{HEADER, LoadResult};
use self::load_truth::LoadTruth;
use self::server_process::ServerProcess;
use crate::ci_part::PartOutcome;
use crate::clients::TempDir;
use crate::command_line::CommandLine;
use crate::part_log::PartLog;
use crate::suite;
use crate::test_report::{SkippedTest, TestEnd, TestReport};

const VARIABLE: &str = "TOPDECK_WIRE";
const TARGETS_VARIABLE: &str = "TOPDECK_WIRE_TARGETS";
/// Operations per second of all servers together, and for how long.
const STEADY_RATE: u64 = 15_000;
const STEADY_SECONDS: u32 = 60;
/// Share of them that must be measured.
const STEADY_SHARE_MIN: f64 = 0.999;
/// Name of the measurement of the cost.
const COST: &str = "cost";

/// A server that the part starts. A further one is a file and a line in `PEERS`.
struct WirePeer {
    name: &'static str,
    start: fn(&PartLog, &Path) -> Result<ProvidedServer>,
}

/// A running server, or the reason why it is not available on this machine.
type ProvidedServer = std::result::Result<ObservedServer, String>;

/// A running server and its loads.
struct ObservedServer {
    /// Name of the protocol of the observer.
    protocol: &'static str,
    port: u16,
    /// Process at whose library TLS is read.
    tls: Option<u32>,
    loads: Vec<ServerLoad>,
    /// The load that runs together with those of other servers, as fast as it can.
    storm: Option<ServerLoad>,
    /// The load that runs together with those of other servers, at a rate.
    steady: Option<PacedLoad>,
    _process: Option<ServerProcess>,
}

/// A load of a server.
struct ServerLoad {
    name: &'static str,
    run: LoadFunction,
}

/// Runs a load to its end.
type LoadFunction = Box<dyn Fn() -> Result<LoadTruth> + Send + Sync>;

/// Runs a load at a rate.
type PacedLoad = Box<dyn Fn(LoadPace) -> Result<LoadTruth> + Send + Sync>;

const PEERS: [WirePeer; 10] = [
    WirePeer { name: "postgres", start: postgres::start },
    WirePeer { name: "redis", start: redis::start },
    WirePeer { name: "nginx", start: http::start },
    WirePeer { name: "nginx-tls", start: http::start_tls },
    WirePeer { name: "go-tls", start: go_tls::start },
    WirePeer { name: "go-tls-http2", start: go_tls::start_http2 },
    WirePeer { name: "timed-http", start: timed_server::start },
    WirePeer { name: "mariadb", start: mysql::start },
    WirePeer { name: "kafka", start: kafka::start },
    WirePeer { name: "cassandra", start: cassandra::start },
];

impl ServerLoad {
    fn new(
        name: &'static str,
        run: impl Fn() -> Result<LoadTruth> + Send + Sync + 'static,
    ) -> ServerLoad {
        ServerLoad { name, run: Box::new(run) }
    }
}

pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    let topdeck = match std::env::var_os("TOPDECK_BIN") {
        Some(path) => PathBuf::from(path),
        None => suite::build_topdeck(log)?,
    };
    let dir = TempDir::new("wire")?;
    // Rights and kernel are the same for all servers.
    let probe = CaptureProcess::start(&topdeck, &dir.0, &["1/http".to_owned()], None);
    if let Err(error) = probe {
        return Ok(PartOutcome::Skipped(format!("{error:#}")));
    }
    drop(probe);
    let mut part = WirePart { log, topdeck, dir, report: TestReport::default(), rows: Vec::new() };
    let named = std::env::var(VARIABLE).ok();
    let is_named =
        |name: &str| named.as_ref().is_none_or(|names| names.split(',').any(|named| named == name));
    log.note(HEADER);
    let mut servers = Vec::new();
    for peer in PEERS.iter().filter(|peer| is_named(peer.name)) {
        let began = Instant::now();
        match (peer.start)(log, &part.dir.0) {
            Ok(Ok(server)) => {
                for load in &server.loads {
                    part.run_load(peer.name, &server, load);
                }
                if server.storm.is_some() {
                    servers.push((peer.name, server));
                }
            }
            Ok(Err(reason)) => {
                log.note(&format!("{} is skipped: {reason}", peer.name));
                let skipped = SkippedTest { name: peer.name.to_owned(), reason };
                part.report.skipped.push(skipped);
            }
            Err(error) => part.add(peer.name, peer.name, Err(error), began),
        }
    }
    if servers.len() > 1 {
        part.run_storm(&servers)?;
        part.run_steady(&servers)?;
    }
    drop(servers);
    if is_named(COST) {
        observer_cost::MODES.iter().for_each(|mode| part.run_cost(mode));
    }
    ensure!(part.report.count() > 0, "unknown server {named:?}");
    log.write(&part.rows.join("\n"));
    Ok(PartOutcome::Tests(part.report))
}

/// A run of the part.
struct WirePart<'a> {
    log: &'a PartLog,
    topdeck: PathBuf,
    dir: TempDir,
    report: TestReport,
    rows: Vec<String>,
}

impl WirePart<'_> {
    /// Runs a load of a server with an observer of its own.
    fn run_load(&mut self, peer: &str, server: &ObservedServer, load: &ServerLoad) {
        let began = Instant::now();
        let name = format!("{peer}: {}", load.name);
        let made = self.observe(&[server], || (load.run)()).map(|(truth, report)| {
            let operations = report.service(server.port).measured();
            LoadResult::new(&name, server.port, truth, &report, operations)
        });
        self.add(&name, peer, made, began);
    }

    /// Runs the loads of all servers at once with one observer.
    fn run_storm(&mut self, servers: &[(&'static str, ObservedServer)]) -> Result<()> {
        let began = Instant::now();
        let observed: Vec<&ObservedServer> = servers.iter().map(|(_, server)| server).collect();
        let (truths, report) = self.observe(&observed, || {
            let loads = observed.iter().filter_map(|server| server.storm.as_ref());
            std::thread::scope(|scope| {
                let running: Vec<_> = loads.map(|load| scope.spawn(move || (load.run)())).collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    thread.join().expect("BUG: a load panicked")
                };
                Ok(running.into_iter().map(join).collect::<Vec<Result<LoadTruth>>>())
            })
        })?;
        let measured: u64 =
            observed.iter().map(|server| report.service(server.port).measured()).sum();
        for ((peer, server), truth) in servers.iter().zip(truths) {
            let load = server.storm.as_ref().map_or("", |load| load.name);
            let name = format!("all at once: {peer}: {load}");
            let made =
                truth.map(|truth| LoadResult::new(&name, server.port, truth, &report, measured));
            self.add(&name, peer, made, began);
        }
        Ok(())
    }

    /// Runs the loads of all servers at once, at a rate.
    fn run_steady(&mut self, servers: &[(&'static str, ObservedServer)]) -> Result<()> {
        let began = Instant::now();
        let observed: Vec<&ObservedServer> = servers.iter().map(|(_, server)| server).collect();
        let pace = LoadPace::new(STEADY_RATE / observed.len() as u64, STEADY_SECONDS);
        let ((truths, seconds), report) = self.observe(&observed, || {
            let sending = Instant::now();
            let loads = observed.iter().filter_map(|server| server.steady.as_ref());
            std::thread::scope(|scope| {
                let running: Vec<_> = loads.map(|load| scope.spawn(move || load(pace))).collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    thread.join().expect("BUG: a load panicked")
                };
                let truths = running.into_iter().map(join).collect::<Vec<Result<LoadTruth>>>();
                Ok((truths, sending.elapsed().as_secs_f64()))
            })
        })?;
        let measured_by = |server: &&ObservedServer| report.service(server.port).measured();
        let all: u64 = observed.iter().map(measured_by).sum();
        let (mut sent, mut found) = (0, 0);
        for ((peer, server), truth) in servers.iter().zip(truths) {
            let name = format!("at a rate: {peer}");
            let made = truth.map(|truth| {
                sent += *truth.operations.start();
                found += report.service(server.port).count(&truth.selector);
                LoadResult::new(&name, server.port, truth, &report, all)
            });
            self.add(&name, peer, made, began);
        }
        let share = found as f64 / sent.max(1) as f64;
        let row = format!(
            "at a rate: {} servers, {sent} operations in {seconds:.0} s ({:.0}/s): {found} \
             measured, {:.3} %; {} packets lost; {}",
            observed.len(),
            sent as f64 / seconds,
            share * 100.0,
            report.lost(),
            load_average()
        );
        let failure = (share < STEADY_SHARE_MIN).then(|| format!("{row}; less than 99.9 %"));
        self.add_row("at a rate: all", "all", row, failure, began);
        Ok(())
    }

    /// Measures what the observer costs a server.
    fn run_cost(&mut self, mode: &str) {
        let (began, name) = (Instant::now(), format!("{COST}: {mode}"));
        match observer_cost::run(&self.topdeck, &self.dir.0, mode) {
            Ok(Ok(result)) => self.add_row(&name, COST, result.row, result.failure, began),
            Ok(Err(reason)) => self.report.skipped.push(SkippedTest { name, reason }),
            Err(error) => self.add(&name, COST, Err(error), began),
        }
    }

    /// Runs `load` between start and end of an observer.
    fn observe<T>(
        &self,
        servers: &[&ObservedServer],
        load: impl FnOnce() -> Result<T>,
    ) -> Result<(T, ObserverReport)> {
        let service = |server: &&ObservedServer| format!("{}/{}", server.port, server.protocol);
        let services: Vec<String> = servers.iter().map(service).collect();
        let tls = servers.iter().find_map(|server| server.tls);
        let observer = CaptureProcess::start(&self.topdeck, &self.dir.0, &services, tls)?;
        let truth = load()?;
        Ok((truth, observer.stop()?))
    }

    fn add(&mut self, name: &str, peer: &str, made: Result<LoadResult>, began: Instant) {
        let (row, failures) = match made {
            Ok(made) => (made.row, made.failures),
            Err(error) => (format!("{name:40} FAILED: {error:#}"), vec![format!("{error:#}")]),
        };
        let failure = (!failures.is_empty()).then(|| failures.join("\n"));
        self.add_row(name, peer, row, failure, began);
    }

    fn add_row(
        &mut self,
        name: &str,
        peer: &str,
        row: String,
        failure: Option<String>,
        began: Instant,
    ) {
        self.log.note(&row);
        self.rows.push(row);
        let end = match failure.is_none() {
            true => TestEnd::Passed,
            false => {
                let repeat = format!("{VARIABLE}={peer} cargo xtask system wire");
                TestEnd::Failed { repeat }
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        self.report.add_test(name, end, seconds, &failure.unwrap_or_default());
    }
}

/// Whether a target that is missed is a failure.
fn has_targets() -> bool {
    std::env::var_os(TARGETS_VARIABLE).is_some()
}

/// Load of the machine over the last minute, beside measurements that other programs affect.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load average {}", text.split(' ').next().unwrap_or("unknown"))
}

/// Standard output of a client that must succeed.
fn client_output(line: CommandLine) -> Result<String> {
    Ok(String::from_utf8_lossy(&line.stdout()?).into_owned())
}
