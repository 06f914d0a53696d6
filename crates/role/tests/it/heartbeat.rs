//! A worked example: a role that counts a heartbeat. This file is the whole role: a setting with
//! its check, a metric, an error, a status section, a route, log lines, and tests. The row in
//! `main.rs` adds it to a node. CONTRIBUTING.md refers to this file.

use std::time::Duration;

use expect_test::{Expect, expect};
use intake::{EventCounter, Restartable, keep_running};
use role::json::integer;
use role::settings::{
    Document, Length, Problems, SettingsCheck, SettingsCount, TableRef, length_or,
};
use role::{
    BoxError, NodeMode, Role, RoleContext, Route, RouteQuery, RouteSpec, RunningRoles,
    StatusSection,
};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{ROLES, node};

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
    period: Option<Length>,
    /// A station that each beat is sent to. None can be reached: it shows how a role reports an
    /// error.
    station: Option<String>,
}

const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_secs(60);

impl HeartbeatTables {
    fn period(&self) -> Duration {
        length_or(self.heartbeat.period, PERIOD)
    }
}

#[derive(Debug, thiserror::Error)]
enum HeartbeatError {
    #[error("cannot send heartbeats to {station}: no station is reachable; remove `station`")]
    Station { station: String },
}

static ROUTE: RouteSpec = RouteSpec {
    name: "heartbeat",
    path: "/v1/heartbeat",
    about: "Heartbeats since the start.",
    parameters: &[],
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

    fn check(settings: &HeartbeatTables, check: &mut SettingsCheck<'_>) {
        let table = TableRef::named("heartbeat");
        check.range(table, "period", settings.heartbeat.period, PERIOD_MIN..=PERIOD_MAX);
    }

    fn verify(settings: &HeartbeatTables, _mode: Option<NodeMode>) -> Result<(), BoxError> {
        match settings.heartbeat.station.clone() {
            Some(station) => Err(HeartbeatError::Station { station }.into()),
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

#[track_caller]
fn check(text: &str, expected: Expect) {
    expected.assert_eq(&node::read(ROLES, text).unwrap_err().to_string());
}

#[test]
fn its_settings_are_checked() {
    check(
        "[heartbeat]\nperiod = \"1h\"\n",
        expect![[r#"
            line 2: period is 3600s, must be 1ms to 60s
              | period = "1h"
              | ^"#]],
    );
    check(
        "[heartbeat]\nperoid = \"1s\"\n",
        expect![[r#"
            line 2: unknown key "peroid"; did you mean "period"?
              | peroid = "1s"
              | ^"#]],
    );
    check(
        "[hartbeat]\n",
        expect![[r#"
            line 1: unknown key "hartbeat"; did you mean "heartbeat"?
              | [hartbeat]
              |  ^"#]],
    );
    let settings = node::read(ROLES, "[heartbeat]\nstation = \"mir\"\n").unwrap();
    let error = settings.verify(None).unwrap_err().to_string();
    expect!["cannot send heartbeats to mir: no station is reachable; remove `station`"]
        .assert_eq(&error);
    assert_eq!(settings.summary().len(), 1);
}

#[tokio::test]
async fn it_beats_until_it_is_stopped() {
    let (context, _) = node::context();
    let settings = node::read(ROLES, "[heartbeat]\nperiod = \"1ms\"\n").unwrap();
    let mut roles = RunningRoles::start(&settings, &context).unwrap();
    assert_eq!(roles.log_lines(), ["heartbeat period 1ms"]);
    let (status, route) = (roles.status().remove(0), roles.routes().remove(0));
    assert_eq!((status.name, route.spec.path), ("heartbeats", "/v1/heartbeat"));
    let beats = async {
        while status.read() == integer(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PERIOD_MAX, beats).await.expect("it beats");
    assert_ne!((route.handler)(&RouteQuery::default()), Ok(integer(0)));
    let measured = context.intake.meter().snapshot();
    assert!(measured.iter().any(|one| one.name == "topdeck_heartbeat_beats_total"));
    assert_eq!(roles.reload(&settings, &context).await.unwrap(), [""; 0]);
    let slow = node::read(ROLES, "").unwrap();
    let lines = roles.reload(&slow, &context).await.unwrap();
    assert_eq!(lines, ["heartbeat period 1s"]);
    assert_eq!(roles.stop().await, [""; 0]);
}
