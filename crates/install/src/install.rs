//! `topdeck install`: enrolls this host at a server, and runs the agent.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use client::{print_message, print_stderr, print_stdout};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::agent_settings::{AgentSettings, POSTGRES, POSTGRES_ROLE_SQL, partition_ports};
use crate::changes::{FileOwner, HostChanges};
use crate::discovery::{DiscoveryReport, PullKind, discover};
use crate::host_root::HostRoot;
use crate::manifest::{InstallManifest, ManifestEntry};
use crate::server_api::{HostToken, ServerApi};
use crate::service::{AgentService, UnitState};
use crate::system_user::provide_user;

/// Environment variable with the enrollment token.
const TOKEN_VARIABLE: &str = "TOPDECK_ENROLLMENT_TOKEN";
/// The running program, which is installed.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Time for the first batch: the agent writes at boundaries of 10 s, and the first request may be
/// retried.
const FIRST_BATCH_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Options of an installation.
#[derive(Clone, Debug, Default)]
pub struct InstallOptions {
    /// URL of the server.
    pub server: String,
    /// Pins of the server's public key.
    pub pins: Vec<String>,
    /// Name of this host; default: that of the system.
    pub name: Option<String>,
    /// Directory instead of `/`.
    pub root: Option<PathBuf>,
    /// Whether the agent opens no port.
    pub no_listen: bool,
    /// Whether nothing is changed.
    pub is_dry_run: bool,
}

/// Installs the agent, or updates it. After an error nothing is left.
pub fn install(options: &InstallOptions) -> Result<()> {
    let root = HostRoot::new(options.root.as_deref())?;
    check_user(options, &root)?;
    let _lock = if options.is_dry_run { None } else { root.lock()? };
    let manifest = InstallManifest::read(&root.manifest())?;
    check_host(options, &root, manifest.as_ref())?;
    let server = ServerApi::new(&options.server, &options.pins)?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_interrupted))
            .context("cannot handle signals")?;
    }
    let is_first = manifest.is_none();
    let manifest = manifest.unwrap_or_default();
    let changes = HostChanges::new(options.is_dry_run, is_interrupted, root.manifest(), manifest);
    let service = AgentService::detect(&root);
    let mut installation =
        Installation { options, root, server, service, changes, is_first, last_batch: None };
    match installation.run() {
        Ok(address) => {
            installation.changes.commit();
            if let Some(address) = address {
                print_stdout(format!("{address}\n").as_bytes())?;
            }
            Ok(())
        }
        Err(error) => {
            print_message("the installation failed; its changes are undone");
            installation.changes.roll_back();
            Err(error)
        }
    }
}

fn check_user(options: &InstallOptions, root: &HostRoot) -> Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    if root.is_system() && !is_root && !options.is_dry_run {
        bail!("cannot install without root; run the command with sudo");
    }
    Ok(())
}

/// Reasons why nothing is begun.
fn check_host(
    options: &InstallOptions,
    root: &HostRoot,
    manifest: Option<&InstallManifest>,
) -> Result<()> {
    let packaged = root.packaged_program();
    if packaged.exists() {
        bail!(
            "cannot install: {} is of a package; set the server in {} instead, or remove the \
             package",
            packaged.display(),
            root.settings().display()
        );
    }
    let Some(manifest) = manifest else {
        let found = [root.program(), root.settings(), root.unit(), root.data()];
        return match found.iter().find(|path| path.exists()) {
            Some(path) => bail!(
                "cannot install: {} exists, and `topdeck install` did not make it; move it away",
                path.display()
            ),
            None => Ok(()),
        };
    };
    match manifest.server() {
        Some((url, _)) if url != options.server.trim_end_matches('/') => bail!(
            "cannot install: the agent of this host sends to {url}; to change that, run `topdeck \
             uninstall` first, or edit {}",
            root.settings().display()
        ),
        _ => Ok(()),
    }
}

/// An installation in progress.
struct Installation<'a> {
    options: &'a InstallOptions,
    root: HostRoot,
    server: ServerApi,
    service: AgentService,
    changes: HostChanges,
    /// Whether there was none before.
    is_first: bool,
    /// Last batch that the server had received when an agent was stopped.
    last_batch: Option<i64>,
}

impl Installation<'_> {
    /// Returns the address of the host's page, unless nothing was changed.
    fn run(&mut self) -> Result<Option<String>> {
        let verb = if self.is_first { "installing" } else { "updating" };
        let (version, url) = (env!("CARGO_PKG_VERSION"), self.server.url());
        print_stdout(format!("topdeck {version}: {verb} the agent, from {url}\n").as_bytes())?;
        let found = discover(Path::new("/proc"));
        print_report(&found)?;
        let etc = self.root.settings();
        self.changes.make_dir(etc.parent().expect("BUG: it has a directory"), 0o755)?;
        self.changes.record(ManifestEntry::Server(self.server.url().to_owned()))?;
        for pin in self.server.pins() {
            self.changes.record(ManifestEntry::Pin(pin))?;
        }
        let owner = match self.root.is_system() {
            true => provide_user(&mut self.changes)?,
            false => None,
        };
        let before = self.service.state();
        if !self.options.is_dry_run {
            let service = self.service.clone();
            // Taken back last: the previous program is in its place then.
            self.changes.on_undo("the stop of the agent", move || service.undo_stop(before, owner));
        }
        let is_program_new = self.install_program()?;
        let token = self.provide_token(owner)?;
        let is_settings_new = self.write_settings(&found)?;
        self.make_data_dir(owner)?;
        let is_unit_new = self.service.is_systemd() && self.write_unit()?;
        let is_new = is_program_new || is_settings_new || is_unit_new;
        if before.is_running && !is_new {
            self.changes.begin("keep the agent running: nothing changed")?;
            self.last_batch =
                token.as_ref().map(|token| self.received(token)).transpose()?.flatten();
        } else {
            self.start(before, owner, token.as_ref())?;
        }
        let is_begun = self.changes.begin("wait until the server has received a batch")?;
        let Some(token) = token.filter(|_| is_begun) else { return Ok(None) };
        self.await_batch(&token)?;
        if self.is_first {
            self.print_notes()?;
        }
        let host = self.host_name();
        Ok(Some(format!("{}/#/host?host={host}", self.server.url())))
    }

    fn host_name(&self) -> String {
        let system = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.options.name.clone().unwrap_or_else(system)
    }

    fn install_program(&mut self) -> Result<bool> {
        let path = self.root.program();
        self.changes.make_dir(path.parent().expect("BUG: it has a directory"), 0o755)?;
        let bytes = fs::read(OWN_PROGRAM).context("cannot read this program")?;
        self.changes.write(&path, &bytes, 0o755, None)
    }

    /// The token of this host: of its file, or by enrollment.
    fn provide_token(&mut self, owner: Option<FileOwner>) -> Result<Option<HostToken>> {
        let path = self.root.token();
        if let Ok(text) = fs::read_to_string(&path) {
            let secret = text.trim().to_owned();
            let (name, _) = self.server.enrollment(&secret)?;
            self.changes.begin(&format!("keep the token {name} of this host"))?;
            return Ok(Some(HostToken { name, secret }));
        }
        if !self.changes.begin("exchange the enrollment token for a token of this host")? {
            self.changes.begin(&format!("write {}", path.display()))?;
            return Ok(None);
        }
        let enrollment_token = read_enrollment_token()?;
        let token = self.server.enroll(&enrollment_token, &self.host_name())?;
        let (server, secret) = (self.server.clone(), token.secret.clone());
        self.changes.on_undo(&format!("token {} on the server", token.name), move || {
            server.unenroll(&secret)
        });
        let (mode, owner) = match owner {
            // The agent reads it, and cannot change it.
            Some(owner) => (0o640, Some(FileOwner { user: 0, ..owner })),
            None => (0o600, None),
        };
        self.changes.write(&path, format!("{}\n", token.secret).as_bytes(), mode, owner)?;
        Ok(Some(token))
    }

    fn write_settings(&mut self, found: &DiscoveryReport) -> Result<bool> {
        let path = self.root.settings();
        if path.exists() {
            self.changes.begin(&format!("keep {}", path.display()))?;
            return Ok(false);
        }
        let ports = if self.options.no_listen { Vec::new() } else { print_free_ports()? };
        let (data, pins) = (self.root.data(), self.server.pins());
        let settings = AgentSettings {
            data: &data,
            server: self.server.url(),
            pins: &pins,
            name: self.options.name.as_deref(),
            ports: &ports,
            sources: &found.sources,
        };
        self.changes.write(&path, settings.text().as_bytes(), 0o644, None)
    }

    fn make_data_dir(&mut self, owner: Option<FileOwner>) -> Result<()> {
        let data = self.root.data();
        if data.exists() {
            return Ok(());
        }
        self.changes.make_dir(data.parent().expect("BUG: it has a parent"), 0o755)?;
        if !self.changes.begin(&format!("make directory {}", data.display()))? {
            return Ok(());
        }
        self.changes.record(ManifestEntry::Tree(data.clone()))?;
        let made = data.clone();
        self.changes.on_undo(&data.display().to_string(), move || Ok(fs::remove_dir_all(made)?));
        fs::create_dir(&data).with_context(|| format!("cannot make {}", data.display()))?;
        fs::set_permissions(&data, fs::Permissions::from_mode(0o750))?;
        if let Some(owner) = owner {
            std::os::unix::fs::chown(&data, Some(owner.user), Some(owner.group))
                .with_context(|| format!("cannot change the owner of {}", data.display()))?;
        }
        Ok(())
    }

    fn write_unit(&mut self) -> Result<bool> {
        let text = AgentService::unit_text(&self.root);
        self.changes.write(&self.root.unit(), text.as_bytes(), 0o644, None)
    }

    fn start(
        &mut self,
        before: UnitState,
        owner: Option<FileOwner>,
        token: Option<&HostToken>,
    ) -> Result<()> {
        let how = if self.service.is_systemd() { "by systemd" } else { "by a shell loop" };
        let verb = if before.is_running { "restart" } else { "start" };
        if !self.service.is_systemd() {
            self.prepare_log(owner)?;
        }
        if !self.changes.begin(&format!("{verb} the agent {how}"))? {
            return Ok(());
        }
        let service = self.service.clone();
        if before.is_running {
            self.service.stop()?;
        }
        // Batches of a previous program do not count.
        self.last_batch = token.map(|token| self.received(token)).transpose()?.flatten();
        self.changes.on_undo("the start of the agent", move || service.undo_start(before));
        self.service.start(owner).inspect_err(|_| self.print_log())
    }

    /// The log of the loop, which the manifest lists.
    fn prepare_log(&mut self, owner: Option<FileOwner>) -> Result<()> {
        let log = self.root.log();
        self.changes.make_dir(log.parent().expect("BUG: it has a directory"), 0o755)?;
        match log.exists() {
            true => Ok(()),
            false => self.changes.write(&log, b"", 0o640, owner).map(drop),
        }
    }

    fn received(&self, token: &HostToken) -> Result<Option<i64>> {
        Ok(self.server.enrollment(&token.secret)?.1)
    }

    /// Waits for a batch of the agent that was started.
    fn await_batch(&self, token: &HostToken) -> Result<()> {
        let began = Instant::now();
        let mut last = Ok(None);
        while began.elapsed() < FIRST_BATCH_TIMEOUT {
            self.changes.check_interrupt()?;
            last = self.received(token);
            if last.as_ref().is_ok_and(|at| at.is_some() && *at > self.last_batch) {
                let seconds = began.elapsed().as_secs_f64();
                let line = format!("  the server received a batch after {seconds:.1} s\n");
                return print_stdout(line.as_bytes());
            }
            if !self.service.is_running() {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let why = match last {
            Err(error) => format!("{error:#}"),
            Ok(_) if self.service.is_running() => "the agent runs".to_owned(),
            Ok(_) => "the agent has ended".to_owned(),
        };
        self.print_log();
        bail!(
            "the server has received no batch of this host after {} s: {why}",
            began.elapsed().as_secs()
        )
    }

    /// Prints the end of the agent's log, which the undo removes.
    fn print_log(&self) {
        print_stderr(&format!("End of the agent's log:\n{}\n", self.service.last_lines()));
    }

    fn print_notes(&self) -> Result<()> {
        let mut text = format!("log: {}\n", self.service.log_hint());
        if !self.service.is_systemd() {
            let program = self.root.program();
            text.push_str(&format!(
                "This system has no systemd: the agent runs now, and does not start at boot. Make \
                 the init run, as the owner of {}:\n  {} agent --config {}\n",
                self.root.data().display(),
                program.display(),
                self.root.settings().display()
            ));
        }
        print_stdout(text.as_bytes())
    }
}

fn print_report(report: &DiscoveryReport) -> Result<()> {
    let mut text = String::new();
    for source in &report.sources {
        let usage = match source.kind {
            PullKind::Check => "a check connects to it",
            PullKind::Scrape => "its metrics are scraped",
        };
        let (program, pid, address) = (&source.program, source.pid, source.address);
        text.push_str(&format!("  found {program}, process {pid}, {address}: {usage}\n"));
        if program == POSTGRES {
            text.push_str(&format!(
                "    for its statistics, run there: {POSTGRES_ROLE_SQL}\n    then uncomment \
                 [[postgres]] in the settings\n"
            ));
        }
    }
    for (what, why) in &report.left_alone {
        text.push_str(&format!("  left alone {what}: {why}\n"));
    }
    print_stdout(text.as_bytes())
}

/// Ports for the agent. Those that it does not get are printed.
fn print_free_ports() -> Result<Vec<u16>> {
    let (free, used) = partition_ports();
    for port in used {
        let line = format!("  left alone port {port}: another program listens on it\n");
        print_stdout(line.as_bytes())?;
    }
    Ok(free)
}

/// The enrollment token, of the environment or typed in. It is never an argument, which other users
/// could read.
fn read_enrollment_token() -> Result<String> {
    if let Some(token) = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()) {
        return Ok(token);
    }
    let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/tty");
    let Ok(mut terminal) = terminal else {
        bail!(
            "enrollment token required: run the line that `topdeck token DIR enroll` prints on \
             the server, or set {TOKEN_VARIABLE}"
        );
    };
    terminal.write_all(b"Enrollment token (topdeck token DIR enroll on the server): ")?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line).context("cannot read the enrollment token")?;
    match line.trim() {
        "" => bail!("enrollment token required"),
        token => Ok(token.to_owned()),
    }
}
