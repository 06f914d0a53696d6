//! Servers of a run, started on a directory that outlives them, so that a query can be asked of a
//! server that has just started.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::workload::{PathSet, WireFormat};
use crate::clock::wall_time;
use crate::journal::program;
use crate::store::http::BenchConnection;
use crate::store::prometheus;
use crate::store::server::PeerServer;

/// Kind of server. VictoriaMetrics is there twice: with the bytes that all get, which it converts,
/// and with those of its own clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathServerKind {
    Topdeck,
    Prometheus,
    Victoria,
    VictoriaOwn,
}

pub(crate) const KINDS: [PathServerKind; 4] = [
    PathServerKind::Topdeck,
    PathServerKind::Prometheus,
    PathServerKind::Victoria,
    PathServerKind::VictoriaOwn,
];

const START_TIMEOUT: Duration = Duration::from_secs(120);
const VICTORIA_MANIFEST: &str = include_str!("../../peers/victoriametrics/go.mod");
const VICTORIA_MODULE: &str = "github.com/VictoriaMetrics/VictoriaMetrics";

impl PathServerKind {
    pub(crate) fn is_victoria(self) -> bool {
        matches!(self, PathServerKind::Victoria | PathServerKind::VictoriaOwn)
    }

    /// Short name, for directories and progress.
    pub(crate) fn key(self) -> &'static str {
        match self {
            PathServerKind::Topdeck => "topdeck",
            PathServerKind::Prometheus => "prometheus",
            PathServerKind::Victoria => "victoria",
            PathServerKind::VictoriaOwn => "victoria-own",
        }
    }

    /// Name in the table.
    pub(crate) fn name(self) -> String {
        let victoria = || format!("VictoriaMetrics {}", victoria_version().trim_start_matches('v'));
        match self {
            PathServerKind::Topdeck => "topdeck".to_owned(),
            PathServerKind::Prometheus => prometheus::name(),
            PathServerKind::Victoria => format!("{}, same bytes", victoria()),
            PathServerKind::VictoriaOwn => format!("{}, own 18 a decade", victoria()),
        }
    }

    /// Functions that yield the growth within a window, a column each.
    pub(crate) fn functions(self) -> &'static [&'static str] {
        match self {
            PathServerKind::Topdeck => &["increase", "exact_increase"],
            _ => &["increase"],
        }
    }

    /// Format of a set for this server; `None` if it does not take part.
    pub(crate) fn format(self, set: PathSet) -> Option<WireFormat> {
        match (self, set) {
            (PathServerKind::VictoriaOwn, PathSet::A | PathSet::B) => Some(WireFormat::Vmrange),
            // It is the same server with the same bytes as the other.
            (PathServerKind::VictoriaOwn, _) => None,
            // 87 million counters for 1.44 million histograms: half an hour of its CPU time.
            (PathServerKind::Victoria, PathSet::B | PathSet::BOtlp) => None,
            _ => Some(set.format()),
        }
    }

    /// Factor by which its buckets are wider than those sent: it rounds bounds to four digits, and
    /// its own are a 18th of a decade, into which a whole bucket is moved.
    pub(crate) fn bucket_width(self) -> f64 {
        match self {
            PathServerKind::Topdeck | PathServerKind::Prometheus => 1.0,
            PathServerKind::Victoria => 1.001,
            PathServerKind::VictoriaOwn => 10f64.powf(1.0 / 18.0) * 1.001,
        }
    }

    /// Path of ingest.
    pub(crate) fn ingest_path(self, format: WireFormat) -> &'static str {
        match (self, format) {
            (PathServerKind::Topdeck, WireFormat::Otlp) => "/v1/metrics",
            (PathServerKind::Prometheus, WireFormat::Otlp) => "/api/v1/otlp/v1/metrics",
            (_, WireFormat::Otlp) => "/opentelemetry/v1/metrics",
            _ => "/api/v1/write",
        }
    }

    /// The program, built if it does not exist; `given` instead of it if there is one.
    pub(crate) fn program(self, given: Option<&Path>) -> Result<PathBuf> {
        if let Some(program) = given {
            ensure!(program.exists(), "there is no program {}", program.display());
            return Ok(fs::canonicalize(program)?);
        }
        match self {
            PathServerKind::Topdeck => find_topdeck(),
            PathServerKind::Prometheus => prometheus::program(),
            _ => build_victoria(),
        }
    }

    /// `settings` are added to those of topdeck.
    fn command(self, program: &Path, data: &Path, port: u16, settings: &str) -> Result<Command> {
        let mut command = Command::new(program);
        match self {
            PathServerKind::Topdeck => {
                // The metrics of the host would be a load of their own.
                let config = data.join("topdeck.toml");
                let text = format!(
                    "[http]\nlisten = [\"127.0.0.1:{port}\"]\n[host]\nprocfs = false\nblock_io = \
                     false\nrun_queue = false\nprocesses = false\nhiccup = false\nshm_metrics = \
                     false\ncgroups = false\n{settings}"
                );
                fs::write(&config, text)?;
                command.arg("serve").arg("--config").arg(config);
                command.arg("--data-dir").arg(data.join("data"));
            }
            PathServerKind::Prometheus => {
                let config = data.join("prometheus.yml");
                fs::write(&config, "global: {}\n")?;
                command.arg(format!("--config.file={}", config.display()));
                command.arg(format!("--storage.tsdb.path={}", data.join("data").display()));
                command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
                command.args([
                    "--web.enable-remote-write-receiver",
                    "--web.enable-otlp-receiver",
                    "--enable-feature=promql-experimental-functions",
                    "--storage.tsdb.retention.time=10y",
                    "--log.level=error",
                ]);
            }
            PathServerKind::Victoria | PathServerKind::VictoriaOwn => {
                command.arg(format!("-storageDataPath={}", data.join("data").display()));
                command.arg(format!("-httpListenAddr=127.0.0.1:{port}"));
                command.args([
                    "-retentionPeriod=10y",
                    "-loggerLevel=ERROR",
                    "-search.maxUniqueTimeseries=3000000",
                ]);
            }
        }
        Ok(command)
    }
}

fn victoria_version() -> &'static str {
    program::version(VICTORIA_MANIFEST, &format!("{VICTORIA_MODULE} "), "\n")
}

fn build_victoria() -> Result<PathBuf> {
    let dir = program::build_dir("victoriametrics")?;
    let program = dir.join(format!("victoria-metrics-{}", victoria_version()));
    if !program.exists() {
        program::run_tool(Command::new("go").arg("version"))?;
        eprintln!("        building VictoriaMetrics {}, once …", victoria_version());
        let made = dir.join("made");
        let mut build = Command::new("go");
        build.current_dir(program::source_dir("victoriametrics"));
        build.args(["build", "-mod=readonly", "-o"]).arg(&made);
        build.arg(format!("{VICTORIA_MODULE}/app/victoria-metrics"));
        program::run_tool(&mut build)?;
        fs::rename(made, &program)?;
    }
    Ok(program)
}

/// The release program of this tree.
fn find_topdeck() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = root.join("target/release/topdeck");
    if !program.exists() {
        bail!(
            "cannot find target/release/topdeck: it is not built; run `cargo build --release -p \
             topdeck` or name a program with `--server topdeck=PROGRAM`"
        );
    }
    Ok(fs::canonicalize(program)?)
}

/// A running server.
pub(crate) struct PathServer {
    pub(crate) kind: PathServerKind,
    pub(crate) process: PeerServer,
    pub(crate) port: u16,
}

impl PathServer {
    /// Starts it on a directory and waits until it is ready.
    pub(crate) fn start(kind: PathServerKind, program: &Path, dir: &Path) -> Result<PathServer> {
        PathServer::start_with(kind, program, dir, "")
    }

    /// The same with further settings of topdeck.
    pub(crate) fn start_with(
        kind: PathServerKind,
        program: &Path,
        dir: &Path,
        settings: &str,
    ) -> Result<PathServer> {
        fs::create_dir_all(dir)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let log = dir.join("log");
        let process = PeerServer::start(&mut kind.command(program, dir, port, settings)?, &log)?;
        let mut started = PathServer { kind, process, port };
        let path = match kind {
            PathServerKind::Topdeck => "/metrics",
            PathServerKind::Prometheus => "/-/ready",
            _ => "/health",
        };
        let until = wall_time() + START_TIMEOUT;
        loop {
            let said = || fs::read_to_string(&log).unwrap_or_default();
            started.process.check_alive().with_context(said)?;
            let answer = BenchConnection::open(port).and_then(|mut one| one.get(path));
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(started);
            }
            ensure!(wall_time() < until, "{} did not become ready", kind.key());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn connect(&self) -> Result<BenchConnection> {
        BenchConnection::open(self.port)
    }

    /// Waits until ingest has no more consequences: the server is idle, and Prometheus has moved
    /// everything older than three hours to blocks.
    pub(crate) fn wait_until_settled(&mut self) -> Result<()> {
        let until = wall_time() + prometheus::COMPACTION_TIMEOUT;
        loop {
            self.process.wait_until_idle()?;
            if self.kind != PathServerKind::Prometheus {
                return Ok(());
            }
            let span = prometheus::head_span_ms(&mut self.connect()?)?;
            if span <= prometheus::HEAD_SPAN_MS {
                return Ok(());
            }
            ensure!(wall_time() < until, "compaction did not finish");
        }
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

/// Bytes that the files of a directory take on the disk, recursively.
pub(crate) fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for_each_file(dir, &mut |path| {
        // A block of `st_blocks` is 512 bytes, whatever that of the file system.
        sum += fs::metadata(path)?.blocks() * 512;
        Ok(())
    })?;
    Ok(sum)
}

/// Drops the files of a directory from the page cache.
pub(crate) fn drop_page_cache(dir: &Path) -> Result<()> {
    for_each_file(dir, &mut |path| {
        let file = File::open(path)?;
        // Only clean pages are dropped.
        file.sync_data()?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    })
}

fn for_each_file(dir: &Path, act: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            for_each_file(&entry.path(), act)?;
        } else if kind.is_file() {
            act(&entry.path()).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}
