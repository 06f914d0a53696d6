//! Servers under test, each with its own directory on the disk of the build directory.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::bodies::RequestFormat;
use crate::clock::wall_time;
use crate::journal::{program, scratch};
use crate::store::http::BenchConnection;
use crate::store::prometheus;
use crate::store::server::PeerServer;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Topdeck,
    Prometheus,
    VictoriaMetrics,
}

impl ServerKind {
    pub(crate) fn name(self) -> String {
        match self {
            ServerKind::Topdeck => "topdeck serve".to_owned(),
            ServerKind::Prometheus => prometheus::name(),
            ServerKind::VictoriaMetrics => match victoria_version() {
                Some(version) => format!("VictoriaMetrics {version}"),
                None => "VictoriaMetrics".to_owned(),
            },
        }
    }

    /// Meaning of its acknowledgement with the settings of this benchmark.
    pub(crate) fn promise(self) -> &'static str {
        match self {
            ServerKind::Topdeck => "on disk, synchronised",
            ServerKind::Prometheus => "written to its WAL, not synced",
            ServerKind::VictoriaMetrics => "in memory, written about one second later",
        }
    }

    /// Path of a format; `None` if the server does not support it.
    pub(crate) fn path(self, format: RequestFormat) -> Option<&'static str> {
        match (self, format) {
            (ServerKind::Topdeck, RequestFormat::OtlpHttp) => Some("/v1/metrics"),
            (ServerKind::Topdeck, RequestFormat::OtlpGrpc) => {
                Some("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
            }
            (ServerKind::Prometheus, RequestFormat::OtlpHttp) => Some("/api/v1/otlp/v1/metrics"),
            (
                ServerKind::Topdeck | ServerKind::Prometheus,
                RequestFormat::RemoteWrite1 | RequestFormat::RemoteWrite2,
            )
            | (ServerKind::VictoriaMetrics, RequestFormat::RemoteWrite1) => Some("/api/v1/write"),
            _ => None,
        }
    }
}

/// A running server.
pub(crate) struct ServerNode {
    pub(crate) server: PeerServer,
    pub(crate) port: u16,
    /// Port of StatsD, if enabled.
    pub(crate) statsd: u16,
    pub(crate) dir: TempDir,
}

/// Mode and settings of `topdeck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerRole {
    /// `serve` with ports only; host metrics are disabled.
    Serve,
    /// `serve` with host metrics: the default.
    ServeWithHost,
    Agent,
    AgentWithHost,
}

impl ServerNode {
    pub(crate) fn start(who: ServerKind, role: ServerRole) -> Result<ServerNode> {
        let dir = scratch::dir()?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let statsd = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let data = dir.path().join("data");
        let (mut command, ready) = match who {
            ServerKind::Topdeck => {
                let config = dir.path().join("topdeck.toml");
                fs::write(&config, settings(role, port, statsd))?;
                let mut command = Command::new(build_topdeck()?);
                let role = matches!(role, ServerRole::Serve | ServerRole::ServeWithHost);
                command.arg(if role { "serve" } else { "agent" });
                command.arg("--config").arg(config).arg("--data-dir").arg(data);
                (command, "/metrics")
            }
            ServerKind::Prometheus => {
                let config = dir.path().join("prometheus.yml");
                fs::write(&config, "global: {}\n")?;
                let mut command = Command::new(prometheus::program()?);
                command.arg(format!("--config.file={}", config.display()));
                command.arg(format!("--storage.tsdb.path={}", data.display()));
                command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
                command.args([
                    "--web.enable-remote-write-receiver",
                    "--web.enable-otlp-receiver",
                    "--log.level=error",
                ]);
                (command, "/-/ready")
            }
            ServerKind::VictoriaMetrics => {
                let mut command = Command::new(find_victoria()?);
                command.arg(format!("-storageDataPath={}", data.display()));
                command.arg(format!("-httpListenAddr=127.0.0.1:{port}"));
                command.args(["-loggerLevel=ERROR", "-retentionPeriod=100y"]);
                (command, "/health")
            }
        };
        command.current_dir(dir.path());
        let server = PeerServer::start(&mut command, &dir.path().join("log"))?;
        let mut started = ServerNode { server, port, statsd, dir };
        let until = wall_time() + START_TIMEOUT;
        loop {
            started.server.check_alive().with_context(|| started.log())?;
            let answer = BenchConnection::open(port).and_then(|mut one| one.get(ready));
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(started);
            }
            ensure!(wall_time() < until, "{} did not become ready", who.name());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The log.
    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The Unix socket of StatsD.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("statsd.sock")
    }

    /// A value of its metrics page: the sum of all lines with this prefix that contain all `parts`.
    pub(crate) fn metric(&self, name: &str, parts: &[&str]) -> Result<f64> {
        let page = BenchConnection::open(self.port)?.get("/metrics")?.into_body()?;
        let page = String::from_utf8_lossy(&page);
        let of = |line: &&str| line.starts_with(name) && parts.iter().all(|one| line.contains(one));
        let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
        Ok(page.lines().filter(of).filter_map(value).sum())
    }

    pub(crate) fn stop(self) -> Result<()> {
        let ServerNode { server, dir, .. } = self;
        server.stop()?;
        Ok(dir.close()?)
    }
}

fn settings(role: ServerRole, port: u16, statsd: u16) -> String {
    let mut text = format!("[http]\nlisten = [\"127.0.0.1:{port}\"]\n");
    text += &format!("[statsd]\nudp = [\"127.0.0.1:{statsd}\"]\nunix = \"statsd.sock\"\n");
    if matches!(role, ServerRole::Serve | ServerRole::Agent) {
        text += "[host]\nprocfs = false\nblock_io = false\nrun_queue = false\nprocesses = \
                 false\nhiccup = false\nshm_metrics = false\ncgroups = false\n";
    }
    if matches!(role, ServerRole::Agent | ServerRole::AgentWithHost) {
        // An unreachable remote: measures the cost of the agent itself.
        text += "[[remote]]\nname = \"north\"\nurl = \"http://127.0.0.1:9\"\n";
    }
    text
}

/// The program of this tree, with the release profile.
pub(crate) fn build_topdeck() -> Result<PathBuf> {
    let dir = program::build_dir("topdeck")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut build = Command::new("cargo");
    if !root.join("web/dist/index.html").exists() {
        build.env("TOPDECK_WITHOUT_PAGE", "1");
    }
    build.current_dir(root);
    build.args(["build", "--release", "--package", "topdeck", "--target-dir"]).arg(&dir);
    program::run_tool(&mut build)?;
    Ok(dir.join("release/topdeck"))
}

/// Debian's package, installed or unpacked into the peers directory.
fn find_victoria() -> Result<PathBuf> {
    let unpacked = program::build_dir("victoria-metrics")?.join("usr/bin/victoria-metrics");
    let found = [unpacked, PathBuf::from("/usr/bin/victoria-metrics")];
    let found = found.into_iter().find(|path| path.exists());
    found.context("not installed (Debian package victoria-metrics)")
}

/// From the file name of the package: the program does not report its version.
fn victoria_version() -> Option<String> {
    let dir = program::build_dir("victoria-metrics").ok()?;
    let mut names = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.file_name());
    let name = names.find_map(|name| name.into_string().ok().filter(|it| it.ends_with(".deb")))?;
    Some(name.split(['_', '+']).nth(1)?.to_owned())
}
