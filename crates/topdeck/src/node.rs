//! A running topdeck: data directory, intake, and roles. Roles start in one order and stop in the
//! reverse one.
//!
//! ```text
//! listen, pull, host, wire, postgres, api ─ intake ─ store ─ alerts ─ intake      (serve)
//!                                                  └ journal ─ forward ─ remotes
//! ```
//!
//! The node knows no role by name: [`ROLES`] is the table of them, and a role is added by a row.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use answers::store_dir::with_dir;
use anyhow::{Error, Result};
use client::{LOCK_FILE, STORE_DIR, private_dir};
use heap::HeapTrimmer;
use intake::{Intake, LogLevel, WriteTarget};
use journal::{Journal, Supervisor, supervisor};
use model::Gap;
use render::time::precise_time_text;
use role::{NodeMode, RoleContext, RoleEntry, RoleTable, RunningRoles};
use rustix::process::{Resource, getrlimit};
use store::{RetentionRule, Store};

use crate::data_dirs::{check_access, rename_old_dirs};
use crate::server_log::ServerLog;
use crate::settings::{NodeSettings, Settings};
use crate::store::disk;

/// All roles, in the order of data flow: the last one starts first and stops last, so that each
/// role can hand over its last measurements. `api` is not in the table: it answers for all roles,
/// starts last and stops first.
pub(crate) const ROLES: RoleTable = &[
    &RoleEntry::<listen::ListenRole>::ROW,
    &RoleEntry::<pull::PullRole>::ROW,
    &RoleEntry::<host::HostRole>::ROW,
    &RoleEntry::<observe::WireRole>::ROW,
    &RoleEntry::<postgres::PostgresRole>::ROW,
    &RoleEntry::<::alerts::AlertsRole>::ROW,
    &RoleEntry::<forward::ForwardRole>::ROW,
];

/// Duration within which a stop ends: requests in progress have [`STOP_TIMEOUT`], attempts of
/// scrapes and checks their own 5 s.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Timeout for requests in progress at a stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);
/// Time for which a stop waits for space on a full disk.
const STOP_SPACE_TIMEOUT: Duration = Duration::from_secs(5);
/// Segment size of the journal. A batch may have a quarter of it, which is the maximum of a
/// request.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Segment size of an agent's journal, which is smaller.
const SEGMENT_BYTES_AGENT: u64 = 32 << 20;
/// Size of the deduplication table in producers: agents, clients with their own identity, sources.
const DEDUP_PRODUCERS: u32 = 4096;

/// A running topdeck.
pub(crate) struct Node {
    mode: NodeMode,
    settings: Settings,
    data: PathBuf,
    intake: Arc<Intake>,
    context: api::Context,
    server: api::Server,
    roles: RunningRoles,
    log: ServerLog,
    _trimmer: Option<HeapTrimmer>,
}

impl Node {
    /// Opens the data directory and starts all roles. An invalid configuration is an error before
    /// anything is acknowledged.
    pub(crate) async fn start(mode: NodeMode, settings: Settings, data: &Path) -> Result<Node> {
        let (node, ()) = Node::start_with_history(mode, settings, data, |_| Ok(())).await?;
        Ok(node)
    }

    /// As [`Node::start`]. `write_history` writes data of the past before any role starts, so that
    /// roles find it as after a restart; its result is returned.
    pub(crate) async fn start_with_history<T>(
        mode: NodeMode,
        settings: Settings,
        data: &Path,
        write_history: impl FnOnce(&Arc<Intake>) -> Result<T>,
    ) -> Result<(Node, T)> {
        check_access(data)?;
        verify_settings(Some(mode), &settings, data)?;
        let log = settings.node.server_log();
        let home = open_target(mode, &settings.node, data)?;
        rename_old_dirs(data)?.iter().for_each(|line| log.info(line));
        let intake_settings = intake::Settings { log: log.function(), ..settings.node.intake() };
        let intake = Arc::new(Intake::new(home, intake_settings)?);
        reserve_first_segment(&intake, log);
        let written = write_history(&intake)?;
        // Before any role accepts data.
        begin_volatile_start(&settings, &intake, log);
        let role_context = role_context(&intake, &settings, data);
        let started = RunningRoles::start(&settings.roles, &role_context);
        // A start that fails is no kill: the next one would report that data may be missing.
        let roles = started.inspect_err(|_| intake.stop()).map_err(Error::from_boxed)?;
        finish_volatile_start(&settings, &intake);
        let context = api::Context::new(Arc::clone(&intake), settings.node.query_service(data))
            .with_routes(roles.routes())
            .with_write_routes(roles.write_routes());
        context.queries.set_sections(roles.status());
        context.queries.set_thresholds(roles.thresholds());
        let trimmer = trimmer(&intake, log);
        // Last: a client that sees a healthy server may use all roles.
        let server = match api::Server::start(settings.node.server(data), context.clone()).await {
            Ok(server) => server,
            Err(error) => {
                intake.begin_stop(STOP_SPACE_TIMEOUT);
                roles.stop().await.iter().for_each(|line| log.error(line));
                intake.stop();
                return Err(error.into());
            }
        };
        let data = data.to_owned();
        if mode == NodeMode::Serve {
            publish_address(&data, &address_lines(&settings, &server), log);
        }
        let node =
            Node { mode, settings, data, intake, context, server, roles, log, _trimmer: trimmer };
        Ok((node, written))
    }

    /// Addresses, and measurements that are unavailable on this host, as log lines.
    pub(crate) fn startup_lines(&self) -> Vec<(LogLevel, String)> {
        let scheme = scheme(&self.settings);
        let addresses: Vec<String> =
            self.server.addresses().iter().map(|it| format!("{scheme}://{it}")).collect();
        let info = |line| (LogLevel::Info, line);
        let warn = |line| (LogLevel::Warn, line);
        let mut lines = vec![info(format!("HTTP and OTLP at {}", addresses.join(", ")))];
        lines.extend(missing_page_warning(page::IS_EMBEDDED, addresses.first()).map(warn));
        lines.push(info(format!("data in {}", self.data.display())));
        lines.extend(self.intake.unclean_stop().map(unclean_stop_text).map(info));
        if let Some((connections, configured)) = self.server.reduced_connection_limit() {
            lines.push(warn(format!(
                "connections limit is {connections}, not {configured}: the limit of open files \
                 (`ulimit -Hn`, LimitNOFILE of systemd) is too low"
            )));
        }
        let limit = getrlimit(Resource::As);
        lines.extend(address_space_warning(limit.current).map(warn));
        // Damage and losses found when the store was opened.
        let store = self.intake.write_target().store();
        let stat = store.and_then(|store| store.stat().ok());
        lines.extend(stat.into_iter().flat_map(|stat| stat.warnings).map(warn));
        lines.extend(self.roles.log_lines().into_iter().map(info));
        lines
    }

    /// The log.
    pub(crate) fn log(&self) -> ServerLog {
        self.log
    }

    /// URL of the server for programs on this host.
    pub(crate) fn url(&self) -> String {
        server_url(&self.settings, &self.server)
    }

    /// Current settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Applies new settings as far as possible without a restart; returns messages about those that
    /// need one.
    pub(crate) async fn reload(&mut self, settings: Settings) -> Result<Vec<String>> {
        let mut notes = restart_required(&self.settings.node, &settings.node);
        // Verified as a whole before any change.
        settings.roles.validate_files(Some(self.mode)).map_err(Error::from_boxed)?;
        self.server.reload()?;
        if self.mode == NodeMode::Serve {
            // The certificate may have another key.
            publish_address(&self.data, &address_lines(&self.settings, &self.server), self.log);
        }
        // Before any role accepts data.
        begin_volatile_start(&settings, &self.intake, self.log);
        let context = role_context(&self.intake, &settings, &self.data);
        let reloaded = self.roles.reload(&settings.roles, &context).await;
        finish_volatile_start(&settings, &self.intake);
        self.context.queries.set_sections(self.roles.status());
        self.context.queries.set_thresholds(self.roles.thresholds());
        notes.extend(reloaded.map_err(Error::from_boxed)?);
        self.keep(&settings.node)?;
        self.settings = settings;
        Ok(notes)
    }

    /// Publishes whether the settings were read again.
    pub(crate) fn note_reload(&self, outcome: Result<(), String>) {
        self.context.queries.note_config_reload(outcome);
    }

    fn keep(&self, settings: &NodeSettings) -> Result<()> {
        let (Some(store), Some(rules)) =
            (self.intake.write_target().store(), &settings.store.retention)
        else {
            return Ok(());
        };
        apply_retention(store, rules.iter().map(|rule| rule.0.clone()).collect(), &self.data)
    }

    /// Finishes requests, stops data sources, hands over buffered data, and closes the data
    /// directory.
    pub(crate) async fn stop(self) -> Result<()> {
        if self.mode == NodeMode::Serve {
            publish_address(&self.data, "", self.log);
        }
        self.context.queries.stop();
        self.intake.begin_stop(STOP_SPACE_TIMEOUT);
        if !self.server.stop(STOP_TIMEOUT).await {
            self.log.warn(format_args!("some requests did not finish within {STOP_TIMEOUT:?}"));
        }
        self.roles.stop().await.iter().for_each(|line| self.log.error(line));
        self.intake.stop();
        Ok(())
    }
}

/// Returns the first reason why a node could not start with these settings, as far as this can be
/// known before the start; without a mode, for both. `serve`, `agent` and `check-config` use it.
pub(crate) fn verify_settings(
    mode: Option<NodeMode>,
    settings: &Settings,
    data: &Path,
) -> Result<()> {
    settings.roles.validate_files(mode).map_err(Error::from_boxed)?;
    Ok(settings.node.server(data).verify()?)
}

/// Verifies the part of [`verify_settings`] that does not depend on the contents of settings other
/// than addresses: that tokens exist if an address needs them.
pub(crate) fn verify_tokens(settings: &Settings, data: &Path) -> Result<()> {
    let mut server = settings.node.server(data);
    server.listen.iter_mut().for_each(|listen| listen.tls = None);
    Ok(server.verify()?)
}

fn scheme(settings: &Settings) -> &'static str {
    if settings.node.http.tls.is_some() { "https" } else { "http" }
}

/// URL of the first address; loopback if the server listens on all addresses.
fn server_url(settings: &Settings, server: &api::Server) -> String {
    let Some(mut address) = server.addresses().into_iter().next() else { return String::new() };
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("{}://{address}", scheme(settings))
}

/// URL of the server, and with TLS the pin of its public key.
fn address_lines(settings: &Settings, server: &api::Server) -> String {
    let tls = settings.node.http.tls.as_ref();
    let pin = tls.and_then(|tls| tls.server_tls().public_key_pin().ok());
    let pin = pin.map_or_else(String::new, |pin| format!("\n{pin}"));
    server_url(settings, server) + &pin
}

/// Writes the address to the lock file of the store, which this process has locked: a command that
/// finds the store in use names the server, and the default server of commands is found by it.
fn publish_address(data: &Path, address: &str, log: ServerLog) {
    let path = data.join(STORE_DIR).join(LOCK_FILE);
    if let Err(error) = std::fs::write(&path, format!("{address}\n")) {
        log.warn(format_args!(
            "cannot write the address of the server to {}: {error}; commands need --server",
            path.display()
        ));
    }
}

fn role_context(intake: &Arc<Intake>, settings: &Settings, data: &Path) -> RoleContext {
    RoleContext {
        intake: Arc::clone(intake),
        data: data.to_owned(),
        host: settings.host_name(),
        log: settings.node.server_log().function(),
    }
}

/// Returns freed memory to the system after heavy queries, and counts it.
fn trimmer(intake: &Intake, log: ServerLog) -> Option<HeapTrimmer> {
    let meter = intake.meter();
    let counter = |name, about| meter.counter(name, about, &[]);
    let bytes = counter(
        "topdeck_heap_returned_bytes_total",
        "Resident memory returned to the system by malloc_trim, in bytes",
    );
    let times = meter.histogram("topdeck_heap_trim_duration", "Duration of malloc_trim", &[]);
    let trimmed = move |result: heap::TrimResult| {
        bytes.add(result.returned_bytes);
        times.record(result.duration);
    };
    let supervised = intake.supervisor().thread("heap trimmer");
    let supervise = move |is_stopping: &dyn Fn() -> bool, work: &mut dyn FnMut()| {
        let work = || {
            supervised.failpoint();
            work();
        };
        let _ = supervised.run(is_stopping, work);
    };
    match HeapTrimmer::start(supervise, trimmed) {
        Ok(trimmer) => trimmer,
        Err(error) => {
            log.warn(format_args!("cannot return free memory to the system: {error}"));
            None
        }
    }
}

/// A new data directory on a disk without space: the journal is full from the start, and the log,
/// `/health` and senders are told. The server starts: it stores once there is space.
fn reserve_first_segment(intake: &Intake, log: ServerLog) {
    if let Err(error) = intake.write_target().journal().reserve_first_segment() {
        let dir = intake.write_target().journal().dir().display().to_string();
        log.error(format_args!("cannot store new data in {dir} yet: {error}"));
    }
}

/// Roles with data in memory lose it if the process is killed: the next start reports that.
fn begin_volatile_start(settings: &Settings, intake: &Intake, log: ServerLog) {
    let buffers_in_memory = settings.roles.buffers_in_memory();
    // If the disk is full, it is written with the ledger once there is space.
    if buffers_in_memory && let Err(error) = intake.begin_volatile_start() {
        log.warn(format_args!(
            "cannot record the start for the detection of unclean shutdowns: {error}"
        ));
    }
}

/// The roles have started, each with its producers: a kill concerns only their series.
fn finish_volatile_start(settings: &Settings, intake: &Intake) {
    if settings.roles.buffers_in_memory() {
        intake.finish_volatile_start();
    }
}

/// Log line of a start after a kill or a crash.
fn unclean_stop_text(gap: &Gap) -> String {
    format!(
        "the last stop was not clean; the journal is recovered: acknowledged data is complete, \
         StatsD, Graphite, host, wire and PostgreSQL data between {} and {} may be missing",
        precise_time_text(gap.start),
        precise_time_text(gap.end)
    )
}

/// Changed settings that need a restart.
fn restart_required(is: &NodeSettings, new_settings: &NodeSettings) -> Vec<String> {
    let changed = [
        ("data_dir", is.data_dir != new_settings.data_dir),
        ("durability", is.durability != new_settings.durability),
        ("collection_interval", is.collection_interval != new_settings.collection_interval),
        ("[http] except tokens and certificates", is.http != new_settings.http),
        ("[install]", is.install != new_settings.install),
        ("[journal]", is.journal != new_settings.journal),
        ("[exemplars]", is.exemplars != new_settings.exemplars),
        ("[traces]", is.traces != new_settings.traces),
        ("[absence]", is.absence != new_settings.absence),
        ("[log]", is.log != new_settings.log),
        ("limits and max_head_size of [store]", {
            (is.store.limits(), is.store.max_head_size)
                != (new_settings.store.limits(), new_settings.store.max_head_size)
        }),
    ];
    let changed = changed.iter().filter(|(_, changed)| *changed);
    changed.map(|(what, _)| format!("{what}: the change takes effect after a restart")).collect()
}

fn open_target(mode: NodeMode, settings: &NodeSettings, data: &Path) -> Result<WriteTarget> {
    let dir = data.join(if mode == NodeMode::Serve { STORE_DIR } else { "journal" });
    private_dir(&dir)?;
    let segment_bytes = if mode == NodeMode::Serve { SEGMENT_BYTES } else { SEGMENT_BYTES_AGENT };
    let limits = journal::Limits {
        bytes_max: Some(settings.journal_bytes().max(2 * segment_bytes)),
        ..journal::Settings::default().limits
    };
    let journal = journal::Settings {
        compression: journal::Compression::Lz4,
        segment_bytes,
        dedup_producers: DEDUP_PRODUCERS,
        limits,
        ..journal::Settings::default()
    };
    match mode {
        NodeMode::Serve => open_store_target(settings, &dir, &journal),
        NodeMode::Agent => open_journal_target(settings, &dir, &journal),
    }
}

fn open_store_target(
    settings: &NodeSettings,
    dir: &Path,
    journal: &journal::Settings,
) -> Result<WriteTarget> {
    let describe_error = with_dir(dir);
    if !Store::exists(&disk(), dir).map_err(&describe_error)? {
        Store::create(&disk(), dir, journal).map_err(&describe_error)?;
    }
    let default = store::Options::default();
    let journal_options = journal::Options {
        settings: Some(*journal),
        supervisor: supervisor(settings),
        ..default.journal.clone()
    };
    let options = store::Options {
        head_bytes_max: settings
            .store
            .max_head_size
            .and_then(|head| usize::try_from(head.0).ok())
            .unwrap_or(default.head_bytes_max),
        limits: settings.store.limits(),
        exemplars: settings.exemplars(),
        traces: settings.traces(),
        journal: journal_options,
        ..default
    };
    let mut store = Store::open(disk(), dir, &options).map_err(&describe_error)?;
    if store.journal().stat()?.settings.limits != journal.limits {
        // They apply to processes that open the journal from now on.
        store.journal().set_limits(journal.limits)?;
        drop(store);
        store = Store::open(disk(), dir, &options).map_err(&describe_error)?;
    }
    if let Some(rules) = &settings.store.retention {
        apply_retention(&store, rules.iter().map(|rule| rule.0.clone()).collect(), dir)?;
    }
    Ok(WriteTarget::Store(Arc::new(store)))
}

/// Warning about a build without the web UI.
fn missing_page_warning(is_embedded: bool, address: Option<&String>) -> Option<String> {
    let address = address.filter(|_| !is_embedded)?;
    Some(format!(
        "this binary has no web UI: it was built without Node.js, or for tests; {address}/ says \
         how to get the page; ingest and the API work"
    ))
}

/// Warning about a limit of address space, if there is one.
fn address_space_warning(bytes: Option<u64>) -> Option<String> {
    let mib = bytes? >> 20;
    Some(format!(
        "address space is limited to {mib} MiB (`ulimit -v`, LimitAS of systemd): mapped files \
         and thread stacks count, too, and topdeck aborts when the limit is reached; remove it, \
         and limit memory with a cgroup (MemoryMax) instead"
    ))
}

/// Supervisor that restarts threads after a panic, and logs it.
fn supervisor(settings: &NodeSettings) -> Supervisor {
    Supervisor::new(supervisor::SupervisorSettings {
        log: Some(settings.server_log().function()),
        ..supervisor::SupervisorSettings::default()
    })
}

fn apply_retention(store: &Store, rules: Vec<RetentionRule>, dir: &Path) -> Result<()> {
    let describe_error = with_dir(dir);
    if store.stat().map_err(&describe_error)?.retention != rules {
        store.set_retention(rules).map_err(&describe_error)?;
    }
    Ok(())
}

fn open_journal_target(
    node: &NodeSettings,
    dir: &Path,
    settings: &journal::Settings,
) -> Result<WriteTarget> {
    let disk = disk();
    let now = journal::wall_clock()();
    let lost = Some(*settings);
    let options = journal::Options {
        is_exclusive: true,
        settings: lost,
        supervisor: supervisor(node),
        ..journal::Options::default()
    };
    if !dir.join("journal").exists() {
        match Journal::create(&*disk, dir, journal::random_id(), now, settings) {
            // Settings are missing; opening the journal recreates them.
            Ok(()) | Err(journal::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut journal = Journal::open(Arc::clone(&disk), dir, &options)?;
    if journal.stat()?.settings.limits != settings.limits {
        // They apply to processes that open the journal from now on.
        journal.set_limits(settings.limits)?;
        drop(journal);
        journal = Journal::open(disk, dir, &options)?;
    }
    Ok(WriteTarget::Journal(Arc::new(journal)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use expect_test::expect_file;

    use super::*;

    #[test]
    fn the_openapi_document_has_the_routes_of_all_roles() {
        let offered = ROLES.iter().flat_map(|role| role.routes().iter().copied());
        let writes = ROLES.iter().flat_map(|role| role.write_routes().iter().copied());
        let document = api::openapi_document(offered, writes);
        expect_file!["../../../docs/openapi.json"].assert_eq(&document);
    }

    #[test]
    fn roles_share_neither_names_nor_keys() {
        let names = ROLES.iter().map(|role| role.name());
        let keys = ROLES.iter().flat_map(|role| role.keys());
        assert_eq!(names.collect::<BTreeSet<_>>().len(), ROLES.len());
        assert_eq!(keys.clone().collect::<BTreeSet<_>>().len(), keys.count());
    }

    #[test]
    fn a_start_without_the_page_says_so() {
        let address = "http://127.0.0.1:7717".to_owned();
        assert_eq!(missing_page_warning(true, Some(&address)), None);
        let said = missing_page_warning(false, Some(&address)).unwrap();
        assert!(said.starts_with("this binary has no web UI"), "{said}");
        assert!(said.contains("http://127.0.0.1:7717/ says how to get the page"), "{said}");
    }

    #[test]
    fn address_space_limit_is_reported_with_a_remedy() {
        assert_eq!(address_space_warning(None), None);
        let said = address_space_warning(Some(4 << 30)).unwrap();
        assert!(said.starts_with("address space is limited to 4096 MiB (`ulimit -v`"), "{said}");
        assert!(said.ends_with("with a cgroup (MemoryMax) instead"), "{said}");
    }
}
