//! Role `forward`: `[[remote]]` of the settings file, and the status of each remote.

use std::path::PathBuf;
use std::sync::Arc;

use net::PublicKeyPin;
use net::tls::ClientTls;
use role::json::Json::{self, Integer, List, Null, Object, Text};
use role::json::integer;
use role::settings::{
    Document, FilePath, Problems, SettingsCheck, SettingsCount, TableRef, client_tls, read_token,
};
use role::{BoxError, NodeMode, Role, RoleContext, StatusSection};
use serde::Deserialize;

use crate::forward::{Forward, ForwardStatusHandle};
use crate::settings::{Remote, Settings};
use crate::status::{OrphanedSubscriber, RemoteStatus};

/// Settings tables of the role.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardTables {
    /// `[[remote]]`.
    #[serde(rename = "remote")]
    pub remotes: Vec<RemoteTable>,
}

/// `[[remote]]`: another topdeck, which gets everything that this node accepts.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RemoteTable {
    name: String,
    /// `http://` or `https://`.
    url: String,
    /// File with the bearer token.
    token_file: Option<FilePath>,
    /// PEM file with the CA certificate of the remote; default: the system's CAs.
    ca: Option<FilePath>,
    /// PEM file with the client certificate.
    certificate: Option<FilePath>,
    key: Option<FilePath>,
    /// Pins of public keys, one of which the remote must have; they replace the CA.
    #[serde(default)]
    pinned_public_keys: Vec<String>,
}

impl ForwardTables {
    fn read_remotes(&self) -> Result<Vec<Remote>, BoxError> {
        self.remotes.iter().map(RemoteTable::read).collect()
    }

    fn settings(&self, context: &RoleContext) -> Result<Settings, BoxError> {
        Ok(Settings {
            remotes: self.read_remotes()?,
            agent: context.host.clone(),
            dead_letter_dir: context.data.join("dead-letter"),
            ..Settings::default()
        })
    }
}

impl RemoteTable {
    fn read(&self) -> Result<Remote, BoxError> {
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        let pins = self.pinned_public_keys.iter().map(|pin| pin.parse()).collect::<Result<_, _>>();
        let pins = pins.map_err(|error| format!("remote {:?}: {error}", self.name))?;
        let tls = client_tls(ca.as_ref(), certificate.as_ref(), key.as_ref());
        Ok(Remote {
            name: self.name.clone(),
            url: self.url.clone(),
            token: read_token(&format!("remote {:?}", self.name), self.token_file.as_ref())?,
            tls: ClientTls { pins, ..tls },
        })
    }
}

/// Running forwarder and its settings.
#[derive(Debug)]
pub struct ForwardRole {
    settings: Settings,
    forward: Forward,
    journal_dir: PathBuf,
}

impl Role for ForwardRole {
    const NAME: &'static str = "forward";
    const KEYS: &'static [&'static str] = &["remote"];

    type Settings = ForwardTables;

    fn read(document: &Document<'_>) -> Result<ForwardTables, Problems> {
        document.read(Self::KEYS)
    }

    fn validate_settings(settings: &ForwardTables, check: &mut SettingsCheck<'_>) {
        check.names("remote", settings.remotes.iter().map(|remote| &*remote.name));
        for (at, remote) in settings.remotes.iter().enumerate() {
            let table = TableRef::nth("remote", at);
            check.url(table, "url", &remote.url);
            check.file(table, "token_file", remote.token_file.as_ref());
            let (ca, certificate, key) = (&remote.ca, &remote.certificate, &remote.key);
            check.client_tls(table, ca.as_ref(), certificate.as_ref(), key.as_ref());
            for pin in &remote.pinned_public_keys {
                if let Err(error) = pin.parse::<PublicKeyPin>() {
                    check.problem(table, "pinned_public_keys", error);
                }
            }
            if remote.ca.is_some() && !remote.pinned_public_keys.is_empty() {
                let what = "`pinned_public_keys` replace `ca`; remove one of them";
                check.problem(table, "pinned_public_keys", what);
            }
            check.contents(table, "name", || Ok::<(), BoxError>(remote.read()?.check()?));
        }
    }

    fn validate_files(settings: &ForwardTables, mode: Option<NodeMode>) -> Result<(), BoxError> {
        if mode == Some(NodeMode::Agent) && settings.remotes.is_empty() {
            let what = "an agent needs a remote; add a [[remote]] to the settings";
            return Err(what.into());
        }
        Ok(Settings { remotes: settings.read_remotes()?, ..Settings::default() }.check()?)
    }

    fn summary(settings: &ForwardTables) -> Vec<SettingsCount> {
        vec![SettingsCount { count: settings.remotes.len(), one: "remote", many: "remotes" }]
    }

    fn start(settings: &ForwardTables, context: &RoleContext) -> Result<ForwardRole, BoxError> {
        let settings = settings.settings(context)?;
        let forward = Forward::start(settings.clone(), Arc::clone(&context.intake))?;
        let journal_dir = context.intake.write_target().journal().dir().to_owned();
        Ok(ForwardRole { settings, forward, journal_dir })
    }

    async fn reload(
        &mut self,
        settings: &ForwardTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        let new_settings = settings.settings(context)?;
        if !self.forward.needs_restart(&new_settings) {
            return Ok(Vec::new());
        }
        let intake = &context.intake;
        let none = Settings { remotes: Vec::new(), ..new_settings.clone() };
        let empty = Forward::start(none, Arc::clone(intake))?;
        std::mem::replace(&mut self.forward, empty).stop().await;
        match Forward::start(new_settings.clone(), Arc::clone(intake)) {
            Ok(started) => (self.forward, self.settings) = (started, new_settings),
            Err(error) => {
                self.forward = Forward::start(self.settings.clone(), Arc::clone(intake))?;
                let what = "cannot change the remotes; the previous ones run again";
                return Err(format!("{what}: {error}").into());
            }
        }
        Ok(vec![format!("forwarding to {} remotes", settings.remotes.len())])
    }

    async fn stop(self) -> Result<(), BoxError> {
        self.forward.stop().await;
        Ok(())
    }

    fn log_lines(&self) -> Vec<String> {
        let orphans = self.forward.orphaned_subscribers().unwrap_or_default();
        let line = |orphan: OrphanedSubscriber| {
            format!(
                "remote {:?} is no longer configured, and the journal retains {} records for it; \
                 to release them, stop topdeck and run `topdeck journal subscribers {} remove \
                 \"site {}\"`",
                orphan.name,
                orphan.lag,
                self.journal_dir.display(),
                orphan.name
            )
        };
        orphans.into_iter().map(line).collect()
    }

    fn status(&self) -> Vec<StatusSection> {
        let (remotes, orphans) = (self.forward.status_handle(), self.forward.status_handle());
        vec![
            StatusSection::new("remotes", move || {
                List(remotes.status().iter().map(remote_json).collect())
            }),
            StatusSection::new("orphaned_subscribers", move || orphans_json(&orphans)),
        ]
    }
}

fn remote_json(status: &RemoteStatus) -> Json {
    let time = |time: Option<i64>| time.map_or(Null, |time| Integer(time.into()));
    let last_error = |(at, reason): &(i64, String)| {
        Object(vec![("at_ns", Integer((*at).into())), ("reason", Text(reason.clone()))])
    };
    Object(vec![
        ("name", Text(status.name.clone())),
        ("url", Text(status.url.clone())),
        ("connected_ns", time(status.connected)),
        ("position", integer(status.position)),
        ("lag", integer(status.lag)),
        ("oldest_ns", time(status.oldest)),
        ("acknowledged_ns", time(status.acknowledged)),
        ("last_error", status.last_error.as_ref().map_or(Null, last_error)),
        ("sent_bytes", integer(status.sent_bytes)),
        ("records", integer(status.records)),
        ("missing", integer(status.missing)),
        ("dead_lettered", integer(status.dead_lettered)),
        ("message", status.warning.clone().map_or(Null, Text)),
    ])
}

/// Remotes that are no longer configured, for which the journal retains records.
fn orphans_json(watch: &ForwardStatusHandle) -> Json {
    // A read error is reported in the status section of the journal.
    List(watch.orphaned_subscribers().unwrap_or_default().iter().map(orphan_json).collect())
}

fn orphan_json(orphan: &OrphanedSubscriber) -> Json {
    Object(vec![
        ("name", Text(orphan.name.clone())),
        ("position", integer(orphan.position)),
        ("committed_ns", Integer(orphan.committed_at.into())),
        ("lag", integer(orphan.lag)),
    ])
}
