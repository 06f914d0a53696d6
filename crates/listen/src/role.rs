//! The role `listen`: a table of the settings file for each format, a listener for each.

use std::sync::Arc;

use intake::LogFn;
use role::settings::{Document, Problems, SettingsCheck};
use role::{BoxError, Role, RoleContext, run_blocking};

use crate::formats::{FORMATS, TABLES};
use crate::line_format::{AnyLineFormat, LineFormatRow};
use crate::listener::Listener;
use crate::settings::Settings;

/// The tables of the settings file: that of each format, whether it is there or not.
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
    /// Reads the tables of these formats.
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

    /// Reports what is wrong with their keys.
    pub fn check(&self, check: &mut SettingsCheck<'_>) {
        self.formats.iter().for_each(|format| format.check(check));
    }

    /// Listeners that are asked for.
    pub fn listeners(&self) -> Vec<Settings> {
        let all = self.formats.iter().map(|format| Settings::new(format.clone()));
        all.filter(Settings::is_wanted).collect()
    }
}

/// The listeners of the settings.
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

    fn check(settings: &ListenTables, check: &mut SettingsCheck<'_>) {
        settings.check(check);
    }

    /// Intervals are put together in memory.
    fn is_lossy(settings: &ListenTables) -> bool {
        !settings.listeners().is_empty()
    }

    fn start(settings: &ListenTables, context: &RoleContext) -> Result<ListenRole, BoxError> {
        let mut listeners = Vec::new();
        for wanted in settings.listeners() {
            let listener = Listener::start(wanted.clone(), Arc::clone(&context.intake))
                .map_err(|error| cannot_listen(&wanted, &error))?;
            listeners.push((wanted, listener));
        }
        Ok(ListenRole { listeners })
    }

    async fn reload(
        &mut self,
        settings: &ListenTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        let (wanted, mut lines) = (settings.listeners(), Vec::new());
        // All that end do so before others start, which may have their addresses.
        for (is, listener) in std::mem::take(&mut self.listeners) {
            match wanted.contains(&is) {
                true => self.listeners.push((is, listener)),
                false => run_blocking(move || listener.stop()).await?,
            }
        }
        for wanted in wanted {
            if self.listeners.iter().any(|(is, _)| *is == wanted) {
                continue;
            }
            match Listener::start(wanted.clone(), Arc::clone(&context.intake)) {
                Ok(listener) => {
                    let title = wanted.format.title();
                    lines.push(format!("{title} is listened to as the settings say"));
                    self.listeners.push((wanted, listener));
                }
                Err(error) => lines.push(cannot_listen(&wanted, &error)),
            }
        }
        Ok(lines)
    }

    async fn stop(self) -> Result<(), BoxError> {
        let stop = move || self.listeners.into_iter().for_each(|(_, listener)| listener.stop());
        run_blocking(stop).await
    }

    fn log_lines(&self) -> Vec<String> {
        let line = |(settings, listener): &(Settings, Listener)| {
            let addresses: Vec<String> =
                listener.addresses().iter().map(ToString::to_string).collect();
            format!("{} at {}", settings.format.title(), addresses.join(", "))
        };
        self.listeners.iter().map(line).collect()
    }
}

fn cannot_listen(settings: &Settings, error: &crate::Error) -> String {
    format!("{} cannot be listened to: {error}", settings.format.title())
}
