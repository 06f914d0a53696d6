//! The role `host`: `[host]` of the settings file, what the status says of this host, and its
//! processes over HTTP.

use std::sync::Arc;

use role::json::Json::{List, Text};
use role::settings::{Document, Length, Problems, SettingsCheck, TableRef, length_or};
use role::{BoxError, Role, RoleContext, Route, RouteSpec, StatusSection, run_blocking};
use serde::Deserialize;

use crate::host::HostCollector;
use crate::process_list::{self, ProcessList};
use crate::settings::Settings;

const TABLE: TableRef<'static> = TableRef::named("host");

/// The keys of the settings file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct HostTables {
    /// `[host]`.
    pub host: HostTable,
}

/// `[host]`: what this host tells by itself.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct HostTable {
    /// The label `host`: the host's name. The node has it from here for all roles.
    name: Option<String>,
    /// Processors, memory, disks and network, from /proc: true.
    procfs: bool,
    /// Block I/O latency per device and operation, by BPF: true.
    block_io: bool,
    /// How long tasks wait for a processor, by BPF: true.
    run_queue: bool,
    /// The process table in shared memory, each second: true.
    processes: bool,
    /// How late a thread is woken: true.
    hiccup: bool,
    /// How often it asks to be woken: `10ms`.
    hiccup_period: Option<Length>,
    /// What programs record into shared memory: true.
    programs: bool,
    /// How often it is read: `1s`.
    programs_period: Option<Length>,
}

impl Default for HostTable {
    fn default() -> HostTable {
        HostTable {
            name: None,
            procfs: true,
            block_io: true,
            run_queue: true,
            processes: true,
            hiccup: true,
            hiccup_period: None,
            programs: true,
            programs_period: None,
        }
    }
}

impl HostTables {
    /// What the host of that name tells, if anything.
    pub fn settings(&self, host: &str) -> Option<Settings> {
        let HostTable { procfs, block_io, run_queue, processes, hiccup, programs, .. } = self.host;
        let default = Settings::for_host(host);
        let period =
            default.hiccup_interval.map(|period| length_or(self.host.hiccup_period, period));
        let every = default.shm_interval.map(|every| length_or(self.host.programs_period, every));
        let is_any = procfs || block_io || run_queue || processes || hiccup || programs;
        is_any.then(|| Settings {
            procfs,
            block_io,
            run_queue,
            processes,
            hiccup_interval: period.filter(|_| hiccup),
            shm_interval: every.filter(|_| programs),
            ..default
        })
    }
}

/// This host.
#[derive(Debug)]
pub struct HostRole {
    running: Option<(Settings, HostCollector)>,
    processes: ProcessList,
}

impl Role for HostRole {
    const NAME: &'static str = "host";
    const KEYS: &'static [&'static str] = &["host"];
    const ROUTES: &'static [&'static RouteSpec] = &[&process_list::ROUTE];

    type Settings = HostTables;

    fn read(document: &Document<'_>) -> Result<HostTables, Problems> {
        document.read(Self::KEYS)
    }

    fn check(settings: &HostTables, check: &mut SettingsCheck<'_>) {
        let HostTable { name, hiccup_period, programs_period, .. } = &settings.host;
        let hiccup = Settings::HICCUP_INTERVAL_MIN..=Settings::HICCUP_INTERVAL_MAX;
        check.range(TABLE, "hiccup_period", *hiccup_period, hiccup);
        let programs = Settings::SHM_INTERVAL_MIN..=Settings::SHM_INTERVAL_MAX;
        check.range(TABLE, "programs_period", *programs_period, programs);
        let bytes_max = Settings::HOST_BYTES_MAX;
        if let Some(name) = name
            && !(1..=bytes_max).contains(&name.len())
        {
            let what = format!("name has {} bytes, must have 1 to {bytes_max}", name.len());
            check.problem(TABLE, "name", what);
        }
    }

    /// What was read and did not find room in the journal is in memory.
    fn is_lossy(settings: &HostTables) -> bool {
        settings.settings("").is_some()
    }

    fn start(settings: &HostTables, context: &RoleContext) -> Result<HostRole, BoxError> {
        let running = match settings.settings(&context.host) {
            Some(wanted) => {
                Some((wanted.clone(), HostCollector::start(wanted, Arc::clone(&context.intake))?))
            }
            None => None,
        };
        let role = HostRole { running, processes: ProcessList::default() };
        role.publish();
        Ok(role)
    }

    async fn reload(
        &mut self,
        settings: &HostTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        let (wanted, mut lines) = (settings.settings(&context.host), Vec::new());
        // Compared with what runs, so that one that could not be started is tried again.
        if wanted.as_ref() == self.running.as_ref().map(|(is, _)| is) {
            return Ok(lines);
        }
        if let Some((_, host)) = self.running.take()
            && let Err(error) = run_blocking(move || host.stop()).await?
        {
            lines.push(format!("host: {error}"));
        }
        let started = wanted.map(|wanted| {
            HostCollector::start(wanted.clone(), Arc::clone(&context.intake))
                .map(|host| (wanted, host))
        });
        lines.push(match started.transpose() {
            Ok(running) => {
                self.running = running;
                "what this host tells is as the settings say".to_owned()
            }
            Err(error) => format!("this host tells nothing: {error}"),
        });
        self.publish();
        Ok(lines)
    }

    async fn stop(self) -> Result<(), BoxError> {
        let Some((_, host)) = self.running else { return Ok(()) };
        Ok(run_blocking(move || host.stop()).await??)
    }

    fn log_lines(&self) -> Vec<String> {
        self.running.iter().flat_map(|(_, host)| host.warnings()).collect()
    }

    fn status(&self) -> Vec<StatusSection> {
        let notes = Role::log_lines(self);
        let read = move || List(notes.iter().cloned().map(Text).collect());
        vec![StatusSection::new("host_warnings", read)]
    }

    fn routes(&self) -> Vec<Route> {
        vec![self.processes.route()]
    }
}

impl HostRole {
    /// Has the route tell the table of this host, if it publishes one.
    fn publish(&self) {
        let published = self.running.as_ref().filter(|(settings, _)| settings.processes);
        self.processes.publish(
            published.map(|(settings, _)| (settings.host.clone(), settings.folder.clone())),
        );
    }
}
