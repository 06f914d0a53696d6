//! `topdeck serve` and `topdeck agent`: a node that runs until it receives a signal.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use client::default_data_dir;
use role::NodeMode;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::node::{Node, ROLES, STOP_LIMIT};
use crate::output::print_problems;
use crate::server_log::{LogFormat, ServerLog};
use crate::settings::{OTLP_PORTS, Settings};

/// Run the server: ingest, store and query
///
/// Without settings it listens on loopback only: HTTP, OTLP and the Prometheus API on
/// 127.0.0.1:7717 (OTLP also on 4317 and 4318), StatsD on 127.0.0.1:8125; and it collects block I/O
/// latency, hiccups and counters of this host. SIGHUP reloads the settings, SIGTERM stops without
/// data loss.
#[derive(clap::Args)]
#[command(after_long_help = SERVE)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    options: StartOptions,
}

const SERVE: &str = "\
Examples:
  topdeck serve
  topdeck serve --config /etc/topdeck.toml
  curl -d 1730 'http://127.0.0.1:7717/v1/record?metric=took&unit=ms'
  curl 'http://127.0.0.1:7717/v1/histogram?selector=took&above=1.5s'

docs/serve.md describes ingest, docs/api.md the HTTP API, docs/topdeck.toml all settings.

Exit status:
  0  stopped by a signal
  1  it could not start, or failed
  2  usage error";

/// Collect metrics on a host and forward them to remote topdeck servers
///
/// A batch is on disk before it is acknowledged, and is sent to each remote until that remote has
/// acknowledged it as durable. An unreachable remote does not delay others; it gets its backlog
/// when it is reachable again.
#[derive(clap::Args)]
#[command(after_long_help = AGENT)]
pub(crate) struct AgentOptions {
    #[command(flatten)]
    options: StartOptions,
}

const AGENT: &str = "\
Example:
  topdeck agent --config /etc/topdeck.toml

The settings need a [[remote]]; docs/agent.md has examples.

Exit status:
  0  stopped by a signal
  1  it could not start, or failed
  2  usage error";

/// Time for calls that still run when everything is stopped.
const RUNTIME_STOP_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(clap::Args)]
struct StartOptions {
    /// Settings file (TOML); docs/topdeck.toml lists all keys
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Data directory; overrides `data_dir` of the settings
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn serve(options: &ServeOptions) -> Result<ExitCode> {
    run(NodeMode::Serve, &options.options)
}

pub(crate) fn agent(options: &AgentOptions) -> Result<ExitCode> {
    run(NodeMode::Agent, &options.options)
}

fn run(mode: NodeMode, options: &StartOptions) -> Result<ExitCode> {
    let settings = match &options.config {
        Some(path) => match Settings::read(path, ROLES) {
            Ok(settings) => settings,
            Err(problems) => {
                print_problems(&problems);
                bail!("cannot start: invalid settings; topdeck check-config FILE checks them");
            }
        },
        None => {
            let log = ServerLog::new(LogFormat::default());
            without_ports_in_use(Settings::without_file(ROLES, &log.function()), log)
        }
    };
    let (log, format) = (settings.node.server_log(), settings.node.log.format);
    let data = data_dir(options.data_dir.as_deref(), &settings)?;
    heap::configure_allocator();
    // Before there are other threads, which have the rights of this one.
    if let Err(error) = observe::confine_capture_rights() {
        log.warn(format_args!("cannot take CAP_NET_RAW from all threads but one: {error}"));
    }
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let ended = runtime.block_on(run_until_stopped(mode, options, settings, &data));
    // Not longer: a blocked call must not keep a stopped server alive.
    runtime.shutdown_timeout(RUNTIME_STOP_TIMEOUT);
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Programs read the log, people the message of the command.
        Err(error) if format == LogFormat::Json => {
            log.error(format_args!("{error:#}"));
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

async fn run_until_stopped(
    mode: NodeMode,
    options: &StartOptions,
    settings: Settings,
    data: &Path,
) -> Result<()> {
    // Before anything is accepted, so that an early signal is handled, too.
    let mut signals = Signals::new()?;
    let mut node = Node::start(mode, settings, data).await?;
    let log = node.log();
    node.startup_lines().iter().for_each(|(level, line)| log.function()(*level, line));
    notify_service_manager("READY=1");
    loop {
        match signals.next().await {
            ServiceEvent::Stop => break,
            ServiceEvent::Reload => {
                notify_service_manager("RELOADING=1");
                let config_path = match &options.config {
                    Some(path) => read_settings(path),
                    // Settings are unchanged: the ports in use are those of this process. Tokens
                    // are read in any case.
                    None => Ok(node.settings().clone()),
                };
                let reloaded = match config_path {
                    Ok(settings) => match node.reload(settings).await {
                        Ok(notes) => Ok(notes),
                        Err(error) => Err(format!("cannot apply all new settings: {error:#}")),
                    },
                    Err(error) => Err(format!(
                        "cannot load the new settings, keeping the previous ones: {error:#}"
                    )),
                };
                match &reloaded {
                    Ok(notes) if notes.is_empty() => log.info("the settings are unchanged"),
                    Ok(notes) => notes.iter().for_each(|line| log.info(line)),
                    Err(problem) => log.error(format_args!("{problem}")),
                }
                node.note_reload(reloaded.map(drop));
                notify_service_manager("READY=1");
            }
        }
    }
    notify_service_manager("STOPPING=1");
    log.info(format_args!("stopping, within {} s", STOP_LIMIT.as_secs()));
    node.stop().await
}

/// Reads the settings file.
fn read_settings(path: &Path) -> Result<Settings> {
    match Settings::read(path, ROLES) {
        Ok(settings) => Ok(settings),
        // One line of the log.
        Err(problems) => bail!("{}", problems.to_string().replace('\n', "; ")),
    }
}

/// The default OTLP ports are optional: ports in use by other processes are skipped. Must run
/// before this process listens on them.
fn without_ports_in_use(mut settings: Settings, log: ServerLog) -> Settings {
    let mut addresses = settings.node.http_addresses();
    addresses.retain(|address| {
        let is_free =
            !OTLP_PORTS.contains(&address.port()) || std::net::TcpListener::bind(address).is_ok();
        if !is_free {
            log.warn(format_args!(
                "cannot listen for OTLP on {address}: in use; OTLP is available on the other \
                 addresses"
            ));
        }
        is_free
    });
    settings.node.http.listen = Some(addresses);
    settings
}

/// Data directory: given on the command line, in the settings, or by the environment.
pub(crate) fn data_dir(given: Option<&Path>, settings: &Settings) -> Result<PathBuf> {
    let configured = given
        .map(Path::to_owned)
        .or_else(|| settings.node.data_dir.as_ref().map(|path| path.to_path_buf()));
    configured.or_else(default_data_dir).context(
        "no data directory: set --data-dir, data_dir in the settings, STATE_DIRECTORY, \
             XDG_DATA_HOME or HOME",
    )
}

pub(crate) enum ServiceEvent {
    Stop,
    Reload,
}

pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals> {
        let of = |kind| signal(kind).context("cannot handle signals");
        Ok(Signals {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            hang_up: of(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> ServiceEvent {
        tokio::select! {
            _ = self.interrupt.recv() => ServiceEvent::Stop,
            _ = self.terminate.recv() => ServiceEvent::Stop,
            _ = self.hang_up.recv() => ServiceEvent::Reload,
        }
    }
}

/// Notifies the service manager, if there is one:
/// <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>. Its absence is not an
/// error.
fn notify_service_manager(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
