//! The role `host`: table `[host]` of the settings, its status, and the process list over HTTP.

use std::sync::Arc;

use role::json::Json::{List, Text};
use role::settings::{Document, Problems, SettingsCheck};
use role::{BoxError, Role, RoleContext, Route, RouteSpec, StatusSection, run_blocking};

use crate::host::HostCollector;
use crate::process_list::{self, ProcessList, PublishedTable};
use crate::settings::{HostTable, Settings};

/// Host role.
#[derive(Debug)]
pub struct HostRole {
    running: Option<(Settings, HostCollector)>,
    processes: ProcessList,
}

impl Role for HostRole {
    const NAME: &'static str = "host";
    const KEYS: &'static [&'static str] = &["host"];
    const ROUTES: &'static [&'static RouteSpec] = &[&process_list::ROUTE];

    type Settings = HostTable;

    fn read(document: &Document<'_>) -> Result<HostTable, Problems> {
        HostTable::read(document)
    }

    fn validate_settings(settings: &HostTable, check: &mut SettingsCheck<'_>) {
        settings.check(check);
    }

    /// Scrapes that the journal has not accepted are in memory.
    fn buffers_in_memory(settings: &HostTable) -> bool {
        settings.settings("").is_some()
    }

    fn start(settings: &HostTable, context: &RoleContext) -> Result<HostRole, BoxError> {
        let running = match settings.settings(&context.host) {
            Some(enabled) => {
                Some((enabled.clone(), HostCollector::start(enabled, Arc::clone(&context.intake))?))
            }
            None => None,
        };
        let role = HostRole { running, processes: ProcessList::default() };
        role.publish();
        Ok(role)
    }

    async fn reload(
        &mut self,
        settings: &HostTable,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        let (new_settings, mut lines) = (settings.settings(&context.host), Vec::new());
        // Compared with the running settings, so that a failed start is retried.
        if new_settings.as_ref() == self.running.as_ref().map(|(is, _)| is) {
            return Ok(lines);
        }
        if let Some((_, host)) = self.running.take()
            && let Err(error) = run_blocking(move || host.stop()).await?
        {
            lines.push(format!("host: {error}"));
        }
        let started = new_settings.map(|new_settings| {
            HostCollector::start(new_settings.clone(), Arc::clone(&context.intake))
                .map(|host| (new_settings, host))
        });
        lines.push(match started.transpose() {
            Ok(running) => {
                self.running = running;
                "host metrics: settings applied".to_owned()
            }
            Err(error) => format!("host metrics are not collected: {error}"),
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
    /// Makes the HTTP route return this host's table, if it publishes one.
    fn publish(&self) {
        let published = self.running.as_ref().filter(|(settings, _)| settings.has_process_table());
        self.processes.publish(published.map(|(settings, host)| PublishedTable {
            host: settings.host.clone(),
            dir: settings.dir.clone(),
            live: host.running_processes(),
        }));
    }
}
