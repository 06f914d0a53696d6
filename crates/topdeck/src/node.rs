//! A running topdeck: its folder, the way in, and the roles around it, started in one order and stopped in the other.
//!
//! ```text
//! host, listen, pull, api ─ intake ─ store      (serve)
//!                                  └ journal ─ forward ─ sites
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use forward::Forward;
use heap::HeapTrimmer;
use host::Host;
use intake::{Home, Intake};
use journal::{Journal, Supervisor, supervisor};
use listen::Listener;
use pull::Pull;
use rustix::process::{Resource, getrlimit};
use store::{Keep, Store};

use crate::command::say;
use crate::settings::Settings;
use crate::status;
use crate::store::{disk, private_dir, told};

/// How long requests that are being answered are waited for at a stop.
const STOP_MAX: Duration = Duration::from_secs(20);
/// How large a segment of the journal is: a batch may take a quarter, which is what a request may have.
const SEGMENT_BYTES: u64 = 64 << 20;
/// The same of an agent, which is small.
const SEGMENT_BYTES_AGENT: u64 = 32 << 20;
/// Batches of how many producers are known again: agents, clients with numbers of their own, sources.
const PRODUCERS_MAX: u32 = 4096;

/// Which half of topdeck runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// All of it, with a store.
    Serve,
    /// Sources and a journal, forwarded to sites.
    Agent,
}

/// A running topdeck.
pub(crate) struct Node {
    role: Role,
    settings: Settings,
    data: PathBuf,
    intake: Arc<Intake>,
    context: api::Context,
    server: api::Server,
    forward: Forward,
    listeners: Vec<(&'static str, listen::Settings, Listener)>,
    pull: Pull,
    host: Option<(host::Settings, Host)>,
    _trimmer: Option<HeapTrimmer>,
}

impl Node {
    /// Opens the folder and starts everything. What cannot be is an error, before anything was acknowledged.
    pub(crate) async fn start(role: Role, settings: Settings, data: &Path) -> Result<Node> {
        if role == Role::Agent && settings.sites.is_empty() {
            bail!(
                "an agent hands all it takes to sites, and there is none: add a [[site]] to the settings"
            );
        }
        let pull = settings.pull()?;
        pull.check()?;
        let home = home(role, &settings, data)?;
        let log: intake::Log = Arc::new(|line| say(line));
        let intake = Arc::new(Intake::new(home, intake::Settings { log, ..settings.intake() })?);
        let context = api::Context::new(Arc::clone(&intake), settings.desk(data));
        let forward = Forward::start(settings.forward(data, &host_name())?, Arc::clone(&intake))?;
        // Before the first of them takes anything.
        mark_lossy(&settings, &intake);
        let mut listeners = Vec::new();
        for (name, wanted) in settings.listeners() {
            let listener = Listener::start(wanted.clone(), Arc::clone(&intake))
                .with_context(|| format!("{name} cannot be listened to"))?;
            listeners.push((name, wanted, listener));
        }
        let pull = Pull::start(&pull, &intake)?;
        let host = match settings.host(&host_name()) {
            Some(wanted) => Some((wanted.clone(), Host::start(wanted, Arc::clone(&intake))?)),
            None => None,
        };
        let trimmer = trimmer(&intake);
        // Last: who is told that it is well may send to all of it.
        let server = api::Server::start(settings.server(data), context.clone()).await?;
        let data = data.to_owned();
        let node = Node {
            role,
            settings,
            data,
            intake,
            context,
            server,
            forward,
            listeners,
            pull,
            host,
            _trimmer: trimmer,
        };
        node.tell_status();
        Ok(node)
    }

    /// Where it is reached, and what is not measured here, in lines.
    pub(crate) fn about(&self) -> Vec<String> {
        let scheme = if self.settings.http.tls.is_some() { "https" } else { "http" };
        let addresses: Vec<String> =
            self.server.addresses().iter().map(|it| format!("{scheme}://{it}")).collect();
        let mut lines = vec![format!("HTTP and OTLP at {}", addresses.join(", "))];
        for (name, _, listener) in &self.listeners {
            let addresses: Vec<String> =
                listener.addresses().iter().map(ToString::to_string).collect();
            lines.push(format!("{name} at {}", addresses.join(", ")));
        }
        lines.push(format!("all is kept in {}", self.data.display()));
        if let Some((connections, wanted)) = self.server.connections_cut() {
            lines.push(format!(
                "{connections} connections at the most, not {wanted}: the limit of open files (`ulimit -Hn`, \
                 LimitNOFILE of systemd) leaves no more"
            ));
        }
        let limit = getrlimit(Resource::As);
        lines.extend(address_space(limit.current));
        lines.extend(self.host.iter().flat_map(|(_, host)| host.notes()));
        // What was found damaged, or lost, when the store was opened.
        let store = self.intake.home().store();
        let stat = store.and_then(|store| store.stat().ok());
        lines.extend(stat.into_iter().flat_map(|stat| stat.notes));
        for orphan in self.forward.orphans().unwrap_or_default() {
            lines.push(format!(
                "site {:?} is in the settings no more, and the journal keeps {} records for it: to give them \
                 up, stop topdeck and run `topdeck journal subscribers {} remove \"site {}\"`",
                orphan.name,
                orphan.lag,
                self.journal_dir().display(),
                orphan.name
            ));
        }
        lines
    }

    fn journal_dir(&self) -> PathBuf {
        match self.role {
            Role::Serve => self.data.join("store/journal"),
            Role::Agent => self.data.join("journal"),
        }
    }

    /// What counts now.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Goes over to other settings, as far as that goes without a restart; says what does not.
    pub(crate) async fn reload(&mut self, settings: Settings) -> Result<Vec<String>> {
        let mut notes = fixed(&self.settings, &settings);
        // Looked at as a whole before anything changes.
        let pull = settings.pull()?;
        pull.check()?;
        let forward = settings.forward(&self.data, &host_name())?;
        self.server.reload()?;
        if self.forward.is_changed_by(&forward) {
            if self.role == Role::Agent && settings.sites.is_empty() {
                bail!("an agent needs a [[site]]");
            }
            let started = self.replace_forward(forward).await;
            started.context("sites: as they were before, as far as they could be")?;
            notes.push(format!("forwards to {} sites", settings.sites.len()));
        }
        // Tokens and certificates may be other ones in files of the same names.
        self.pull.reload(&pull).await?;
        if settings.scrapes != self.settings.scrapes || settings.checks != self.settings.checks {
            notes.push("scrapes and checks are the new ones".to_owned());
        }
        mark_lossy(&settings, &self.intake);
        self.replace_listeners(&settings, &mut notes);
        self.replace_host(&settings, &mut notes);
        self.tell_status();
        self.keep(&settings)?;
        self.settings = settings;
        Ok(notes)
    }

    /// What the API cannot know of itself.
    fn tell_status(&self) {
        let watch = self.forward.watch();
        self.context.desk.tell("sites", move || status::sites(&watch));
        let watch = self.forward.watch();
        self.context.desk.tell("former_sites", move || status::former_sites(&watch));
        let notes = self.host.as_ref().map(|(_, host)| host.notes()).unwrap_or_default();
        self.context.desk.tell("host_notes", move || status::notes(&notes));
        let published =
            self.host.as_ref().filter(|(wanted, _)| wanted.processes).map(|(wanted, _)| {
                api::Published { host: wanted.host.clone(), folder: wanted.folder.clone() }
            });
        self.context.desk.publish(published);
    }

    async fn replace_forward(&mut self, wanted: forward::Settings) -> Result<()> {
        let none = forward::Settings { sites: Vec::new(), ..wanted.clone() };
        let empty = Forward::start(none, Arc::clone(&self.intake))?;
        std::mem::replace(&mut self.forward, empty).stop().await;
        let started = Forward::start(wanted, Arc::clone(&self.intake));
        match started {
            Ok(started) => {
                self.forward = started;
                Ok(())
            }
            Err(error) => {
                let before = self.settings.forward(&self.data, &host_name())?;
                self.forward = Forward::start(before, Arc::clone(&self.intake))?;
                Err(error.into())
            }
        }
    }

    /// A listener that stays the same goes on; one that cannot be started is told, and the others are.
    fn replace_listeners(&mut self, settings: &Settings, notes: &mut Vec<String>) {
        let wanted = settings.listeners();
        let before = std::mem::take(&mut self.listeners);
        for (name, was, listener) in before {
            match wanted.iter().any(|(_, wanted)| *wanted == was) {
                true => self.listeners.push((name, was, listener)),
                false => listener.stop(),
            }
        }
        for (name, wanted) in wanted {
            if self.listeners.iter().any(|(_, is, _)| *is == wanted) {
                continue;
            }
            match Listener::start(wanted.clone(), Arc::clone(&self.intake)) {
                Ok(listener) => {
                    notes.push(format!("{name} is listened to as the settings say"));
                    self.listeners.push((name, wanted, listener));
                }
                Err(error) => notes.push(format!("{name} cannot be listened to: {error}")),
            }
        }
    }

    /// Goes on if it stays the same. Compared with what runs, so that one that could not be started is tried again.
    fn replace_host(&mut self, settings: &Settings, notes: &mut Vec<String>) {
        let wanted = settings.host(&host_name());
        if wanted.as_ref() == self.host.as_ref().map(|(is, _)| is) {
            return;
        }
        if let Some((_, host)) = self.host.take()
            && let Err(error) = host.stop()
        {
            notes.push(format!("host: {error}"));
        }
        if let Some(wanted) = wanted {
            match Host::start(wanted.clone(), Arc::clone(&self.intake)) {
                Ok(host) => self.host = Some((wanted, host)),
                Err(error) => return notes.push(format!("this host tells nothing: {error}")),
            }
        }
        notes.push("what this host tells is as the settings say".to_owned());
    }

    fn keep(&self, settings: &Settings) -> Result<()> {
        let (Some(store), Some(rules)) = (self.intake.home().store(), &settings.store.keep) else {
            return Ok(());
        };
        keep(store, rules.iter().map(|rule| rule.0.clone()).collect(), &self.data)
    }

    /// Stops what brings something in, answers what was asked, hands on what there is, and closes the folder.
    pub(crate) async fn stop(self) -> Result<()> {
        let stopped = tokio::task::spawn_blocking(move || {
            for (_, _, listener) in self.listeners {
                listener.stop();
            }
            self.host.map(|(_, host)| host.stop())
        });
        self.pull.stop().await;
        if let Some(Err(error)) = stopped.await.context("a thread ended before its time")? {
            say(format_args!("host: {error}"));
        }
        self.context.desk.stop();
        if !self.server.stop(STOP_MAX).await {
            say(format_args!("some requests were not answered within {STOP_MAX:?}"));
        }
        self.forward.stop().await;
        self.intake.stop();
        Ok(())
    }
}

/// Gives memory back that was freed after heavy queries and the like, and counts it.
fn trimmer(intake: &Intake) -> Option<HeapTrimmer> {
    let meter = intake.meter();
    let counter = |name, about| meter.counter(name, about, &[]);
    let bytes = counter(
        "topdeck_heap_returned_bytes_total",
        "resident bytes given back to the system by malloc_trim",
    );
    let times = meter.timer("topdeck_heap_trim", "how long malloc_trim took", &[]);
    let trimmed = move |result: heap::TrimResult| {
        bytes.add(result.returned_bytes);
        times.record(result.took);
    };
    let supervised = intake.supervisor().thread("heap trimmer");
    let supervise = move |is_stopping: &dyn Fn() -> bool, work: &mut dyn FnMut()| {
        let work = || {
            supervised.fault_point();
            work();
        };
        let _ = supervised.run(is_stopping, work);
    };
    match HeapTrimmer::start(supervise, trimmed) {
        Ok(trimmer) => trimmer,
        Err(error) => {
            say(format_args!("free memory is not given back to the system: {error}"));
            None
        }
    }
}

/// What listeners and this host's own sources put together is lost when the process is killed: the next start says so.
fn mark_lossy(settings: &Settings, intake: &Intake) {
    let is_lossy = !settings.listeners().is_empty() || settings.host("").is_some();
    // Without room on the disk it is written with the books, when there is.
    if is_lossy && let Err(error) = intake.mark_lossy() {
        say(format_args!("whether topdeck was killed may not be known at the next start: {error}"));
    }
}

/// What needs a restart, if it is another one now.
fn fixed(is: &Settings, wanted: &Settings) -> Vec<String> {
    let changed = [
        ("data", is.data != wanted.data),
        ("acknowledge", is.acknowledge != wanted.acknowledge),
        ("interval", is.interval != wanted.interval),
        ("[http] but tokens and certificates", is.http != wanted.http),
        ("[journal]", is.journal != wanted.journal),
        ("limits and head of [store]", {
            (is.store.limits(), is.store.head) != (wanted.store.limits(), wanted.store.head)
        }),
    ];
    let changed = changed.iter().filter(|(_, changed)| *changed);
    changed.map(|(what, _)| format!("{what}: the change counts after a restart")).collect()
}

fn home(role: Role, settings: &Settings, data: &Path) -> Result<Home> {
    let dir = data.join(if role == Role::Serve { "store" } else { "journal" });
    private_dir(&dir)?;
    let segment_bytes = if role == Role::Serve { SEGMENT_BYTES } else { SEGMENT_BYTES_AGENT };
    let limits = journal::Limits {
        bytes_max: Some(settings.journal_bytes().max(2 * segment_bytes)),
        ..journal::Settings::default().limits
    };
    let journal = journal::Settings {
        codec: journal::Codec::Lz4,
        segment_bytes,
        producers_max: PRODUCERS_MAX,
        limits,
        ..journal::Settings::default()
    };
    match role {
        Role::Serve => store_home(settings, &dir, &journal),
        Role::Agent => journal_home(&dir, &journal),
    }
}

fn store_home(settings: &Settings, dir: &Path, journal: &journal::Settings) -> Result<Home> {
    let told = told(dir);
    if !Store::exists(&disk(), dir).map_err(&told)? {
        Store::create(&disk(), dir, journal).map_err(&told)?;
    }
    let default = store::Options::default();
    let journal_options = journal::Options {
        settings: Some(*journal),
        supervisor: supervisor(),
        ..default.journal.clone()
    };
    let options = store::Options {
        head_bytes_max: settings
            .store
            .head
            .and_then(|head| usize::try_from(head.0).ok())
            .unwrap_or(default.head_bytes_max),
        limits: settings.store.limits(),
        journal: journal_options,
        ..default
    };
    let mut store = Store::open(disk(), dir, &options).map_err(&told)?;
    if store.journal().stat()?.settings.limits != journal.limits {
        // They count for those who open it from now on.
        store.journal().set_limits(journal.limits)?;
        drop(store);
        store = Store::open(disk(), dir, &options).map_err(&told)?;
    }
    if let Some(rules) = &settings.store.keep {
        keep(&store, rules.iter().map(|rule| rule.0.clone()).collect(), dir)?;
    }
    Ok(Home::Store(Arc::new(store)))
}

/// What a limit of address space means, if there is one.
fn address_space(bytes: Option<u64>) -> Option<String> {
    let mib = bytes? >> 20;
    Some(format!(
        "address space is limited to {mib} MiB (`ulimit -v`, LimitAS of systemd): mapped files and stacks of \
         threads count too, and beyond it topdeck is refused memory and aborts; remove the limit, and limit \
         memory with a cgroup (MemoryMax) instead"
    ))
}

/// What runs threads again that panic, and logs it.
fn supervisor() -> Supervisor {
    let log: supervisor::Log = Arc::new(|message: &str| say(message));
    Supervisor::new(supervisor::Settings { log: Some(log), ..supervisor::Settings::default() })
}

fn keep(store: &Store, rules: Vec<Keep>, dir: &Path) -> Result<()> {
    let told = told(dir);
    if store.stat().map_err(&told)?.keep != rules {
        store.set_keep(rules).map_err(&told)?;
    }
    Ok(())
}

fn journal_home(dir: &Path, settings: &journal::Settings) -> Result<Home> {
    let disk = disk();
    let now = journal::wall_clock()();
    let lost = Some(*settings);
    let options = journal::Options {
        alone: true,
        settings: lost,
        supervisor: supervisor(),
        ..journal::Options::default()
    };
    if !dir.join("journal").exists() {
        match Journal::create(&*disk, dir, journal::random_id(), now, settings) {
            // Its settings are missing, and opening it makes them anew.
            Ok(()) | Err(journal::Error::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut journal = Journal::open(Arc::clone(&disk), dir, &options)?;
    if journal.stat()?.settings.limits != settings.limits {
        // They count for those who open it from now on.
        journal.set_limits(settings.limits)?;
        drop(journal);
        journal = Journal::open(disk, dir, &options)?;
    }
    Ok(Home::Journal(Arc::new(journal)))
}

/// This host's name, as the system has it.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_address_space_is_said_with_what_to_do() {
        assert_eq!(address_space(None), None);
        let said = address_space(Some(4 << 30)).unwrap();
        assert!(said.starts_with("address space is limited to 4096 MiB (`ulimit -v`"), "{said}");
        assert!(said.ends_with("with a cgroup (MemoryMax) instead"), "{said}");
    }
}
