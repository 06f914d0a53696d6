//! Role `listen`: a settings table and a listener for each format.

use std::sync::Arc;

use intake::LogFn;
use role::json::Json;
use role::settings::{Document, Problems, SettingsCheck};
use role::{BoxError, Role, RoleContext, StatusSection, run_blocking};

use crate::formats::{FORMATS, TABLES};
use crate::line_format::{AnyLineFormat, LineFormatRow};
use crate::listener::Listener;
use crate::settings::Settings;

/// Settings tables of all formats, with defaults for missing ones.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenTables {
    formats: Vec<AnyLineFormat>,
}

impl Default for ListenTables {
    fn default() -> ListenTables {
        ListenTables { formats: FORMATS.iter().map(|row| (row.default)()).collect() }
    }
}

impl ListenTables {
    /// Reads the tables of the formats.
    pub fn read(formats: &[LineFormatRow], document: &Document<'_>) -> Result<Self, Problems> {
        let (mut read, mut problems) = (Vec::new(), Problems::default());
        for row in formats {
            match (row.read)(document) {
                Ok(format) => read.push(format),
                Err(more) => problems.extend(more),
            }
        }
        if problems.is_empty() { Ok(ListenTables { formats: read }) } else { Err(problems) }
    }

    /// Checks the settings of all formats.
    pub fn check(&self, check: &mut SettingsCheck<'_>) {
        self.formats.iter().for_each(|format| format.check(check));
    }

    /// Settings of the enabled listeners.
    pub fn listeners(&self) -> Vec<Settings> {
        let all = self.formats.iter().map(|format| Settings::new(format.clone()));
        all.filter(Settings::is_enabled).collect()
    }
}

/// Configured listeners.
#[derive(Debug)]
pub struct ListenRole {
    listeners: Vec<(Settings, Listener)>,
}

impl Role for ListenRole {
    const NAME: &'static str = "listen";
    const KEYS: &'static [&'static str] = &TABLES;

    type Settings = ListenTables;

    fn read(document: &Document<'_>) -> Result<ListenTables, Problems> {
        ListenTables::read(FORMATS, document)
    }

    fn settings_without_file(log: &LogFn) -> ListenTables {
        ListenTables { formats: FORMATS.iter().map(|row| (row.without_file)(log)).collect() }
    }

    fn validate_settings(settings: &ListenTables, check: &mut SettingsCheck<'_>) {
        settings.check(check);
    }

    /// Aggregation of intervals needs memory.
    fn buffers_in_memory(settings: &ListenTables) -> bool {
        !settings.listeners().is_empty()
    }

    fn start(settings: &ListenTables, context: &RoleContext) -> Result<ListenRole, BoxError> {
        let mut listeners = Vec::new();
        for requested in settings.listeners() {
            let listener = Listener::start(requested.clone(), Arc::clone(&context.intake))
                .map_err(|error| cannot_listen(&requested, &error))?;
            listeners.push((requested, listener));
        }
        Ok(ListenRole { listeners })
    }

    async fn reload(
        &mut self,
        settings: &ListenTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        let (requested, mut lines) = (settings.listeners(), Vec::new());
        // All removed listeners stop before new ones start, because a new one may use the same
        // address.
        for (is, listener) in std::mem::take(&mut self.listeners) {
            match requested.contains(&is) {
                true => self.listeners.push((is, listener)),
                false => run_blocking(move || listener.stop()).await?,
            }
        }
        for requested in requested {
            if self.listeners.iter().any(|(is, _)| *is == requested) {
                continue;
            }
            match Listener::start(requested.clone(), Arc::clone(&context.intake)) {
                Ok(listener) => {
                    let title = requested.format.title();
                    lines.push(format!("{title} listener restarted with the new settings"));
                    self.listeners.push((requested, listener));
                }
                Err(error) => lines.push(cannot_listen(&requested, &error)),
            }
        }
        Ok(lines)
    }

    async fn stop(self) -> Result<(), BoxError> {
        let stop = move || self.listeners.into_iter().for_each(|(_, listener)| listener.stop());
        Ok(run_blocking(stop).await?)
    }

    fn log_lines(&self) -> Vec<String> {
        let line = |(settings, listener): &(Settings, Listener)| {
            let addresses: Vec<String> =
                listener.addresses().iter().map(ToString::to_string).collect();
            format!("{} at {}", settings.format.title(), addresses.join(", "))
        };
        self.listeners.iter().map(line).collect()
    }

    fn status(&self) -> Vec<StatusSection> {
        let read: Vec<_> = self.listeners.iter().map(|(_, listener)| listener.status()).collect();
        let section = move || Json::List(read.iter().map(|status| status()).collect());
        vec![StatusSection::new("listeners", section)]
    }
}

fn cannot_listen(settings: &Settings, error: &crate::Error) -> String {
    format!("{} listener: {error}", settings.format.title())
}
