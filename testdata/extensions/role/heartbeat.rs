//! Example of a role: it counts heartbeats. The file has a setting with its check, a metric, an
//! error, a status section, a route, log lines, and a test.

use std::fmt;
use std::time::Duration;

use intake::{EventCounter, Restartable, keep_running};
use role::json::integer;
use role::settings::{
    Document, DurationSetting, Problems, SettingsCheck, SettingsCount, TableRef, duration_or,
};
use role::{
    BoxError, NodeMode, Role, RoleContext, Route, RouteFormat, RouteQuery, RouteSpec, StatusSection,
};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Its top-level keys of the settings file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HeartbeatTables {
    heartbeat: HeartbeatTable,
}

/// `[heartbeat]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct HeartbeatTable {
    /// The time between two beats: `1s`, from 1 ms to 1 min.
    period: Option<DurationSetting>,
    /// A station that each beat is sent to. None can be reached: it shows how a role reports an
    /// error.
    station: Option<String>,
}

const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_secs(60);

impl HeartbeatTables {
    fn period(&self) -> Duration {
        duration_or(self.heartbeat.period, PERIOD)
    }
}

#[derive(Debug)]
struct StationError {
    station: String,
}

impl fmt::Display for StationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StationError { station } = self;
        write!(f, "cannot send heartbeats to {station}: no station is reachable; remove `station`")
    }
}

impl std::error::Error for StationError {}

static ROUTE: RouteSpec = RouteSpec {
    name: "heartbeat",
    path: "/v1/heartbeat",
    about: "Heartbeats since the start.",
    parameters: &[],
    format: RouteFormat::Json,
};

/// The role.
pub(crate) struct HeartbeatRole {
    settings: HeartbeatTables,
    beats: EventCounter,
    period: watch::Sender<Option<Duration>>,
    task: JoinHandle<()>,
}

impl Role for HeartbeatRole {
    const NAME: &'static str = "heartbeat";
    const KEYS: &'static [&'static str] = &["heartbeat"];
    const ROUTES: &'static [&'static RouteSpec] = &[&ROUTE];

    type Settings = HeartbeatTables;

    fn read(document: &Document<'_>) -> Result<HeartbeatTables, Problems> {
        document.read(Self::KEYS)
    }

    fn validate_settings(settings: &HeartbeatTables, check: &mut SettingsCheck<'_>) {
        let table = TableRef::named("heartbeat");
        check.range(table, "period", settings.heartbeat.period, PERIOD_MIN..=PERIOD_MAX);
    }

    fn validate_files(settings: &HeartbeatTables, _mode: Option<NodeMode>) -> Result<(), BoxError> {
        match settings.heartbeat.station.clone() {
            Some(station) => Err(StationError { station }.into()),
            None => Ok(()),
        }
    }

    fn summary(_: &HeartbeatTables) -> Vec<SettingsCount> {
        vec![SettingsCount { count: 1, one: "heart", many: "hearts" }]
    }

    fn start(settings: &HeartbeatTables, context: &RoleContext) -> Result<Self, BoxError> {
        let about = "Heartbeats since the start of the process";
        let beats = context.intake.meter().counter("topdeck_heartbeat_beats_total", about, &[]);
        let (period, seen) = watch::channel(Some(settings.period()));
        let heart = Heart { beats: beats.clone(), period: seen };
        // The supervisor restarts it after a panic.
        let supervised = context.intake.supervisor().thread("heartbeat");
        let task = tokio::spawn(keep_running(supervised, heart));
        Ok(HeartbeatRole { settings: settings.clone(), beats, period, task })
    }

    async fn reload(
        &mut self,
        settings: &HeartbeatTables,
        _context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        if self.settings == *settings {
            return Ok(Vec::new());
        }
        self.settings = settings.clone();
        self.period.send_replace(Some(settings.period()));
        Ok(vec![format!("heartbeat period {:?}", settings.period())])
    }

    async fn stop(self) -> Result<(), BoxError> {
        self.period.send_replace(None);
        Ok(self.task.await?)
    }

    fn log_lines(&self) -> Vec<String> {
        vec![format!("heartbeat period {:?}", self.settings.period())]
    }

    fn status(&self) -> Vec<StatusSection> {
        let beats = self.beats.clone();
        vec![StatusSection::new("heartbeats", move || integer(beats.get()))]
    }

    fn routes(&self) -> Vec<Route> {
        let beats = self.beats.clone();
        vec![Route::new(&ROUTE, move |_: &RouteQuery| Ok(integer(beats.get())))]
    }
}

struct Heart {
    beats: EventCounter,
    /// `None` stops the thread.
    period: watch::Receiver<Option<Duration>>,
}

impl Restartable for Heart {
    async fn run(&mut self) {
        loop {
            let period = *self.period.borrow_and_update();
            let Some(period) = period else { return };
            tokio::select! {
                () = tokio::time::sleep(period) => self.beats.add(1),
                _ = self.period.changed() => {}
            }
        }
    }

    async fn wait_for_stop(&mut self) {
        // An error means that the sender is gone: also a stop.
        let _ = self.period.wait_for(Option::is_none).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_is_refused() {
        let heartbeat = HeartbeatTable { station: Some("mir".to_owned()), period: None };
        let error =
            HeartbeatRole::validate_files(&HeartbeatTables { heartbeat }, None).unwrap_err();
        let expected = "cannot send heartbeats to mir: no station is reachable; remove `station`";
        assert_eq!(error.to_string(), expected);
        assert!(HeartbeatRole::validate_files(&HeartbeatTables::default(), None).is_ok());
    }
}
