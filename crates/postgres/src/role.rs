//! Role `postgres`: `[[postgres]]` of the settings file.

use std::sync::Arc;

use role::json::Json;
use role::settings::{
    Document, DurationSetting, FilePath, Problems, SettingsCheck, SettingsCount, TableRef,
    client_tls, duration_or,
};
use role::{BoxError, NodeMode, Role, RoleContext, StatusSection};
use serde::Deserialize;

use crate::connection_string::{ConnectionString, SessionEncryption};
use crate::password::PasswordSource;
use crate::server_task::RunningServer;
use crate::session::{RESPONSE_TIMEOUT, SessionSettings};
use crate::settings::{INTERVAL, INTERVALS, PostgresServer, SAMPLE_INTERVAL, SAMPLE_INTERVALS};

/// Settings tables of the role.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresTables {
    /// `[[postgres]]`.
    #[serde(rename = "postgres")]
    servers: Vec<PostgresTable>,
}

/// `[[postgres]]`: a server whose statistics are read.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct PostgresTable {
    /// Value of the label `instance`.
    name: String,
    /// Connection string, without a password.
    #[serde(default)]
    dsn: String,
    /// File with the password.
    password_file: Option<FilePath>,
    /// Password file of libpq.
    pgpass_file: Option<FilePath>,
    /// PEM file with the CA certificate of the server; default: the system's CAs.
    ca: Option<FilePath>,
    certificate: Option<FilePath>,
    key: Option<FilePath>,
    /// `10s`.
    interval: Option<DurationSetting>,
    /// `100ms`.
    sample_interval: Option<DurationSetting>,
}

impl PostgresTable {
    fn read(&self) -> Result<PostgresServer, BoxError> {
        let server = ConnectionString::parse(&self.dsn)
            .map_err(|error| format!("postgres {:?}: dsn: {error}", self.name))?;
        let path = |path: &Option<FilePath>| path.as_ref().map(|path| path.to_path_buf());
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        Ok(PostgresServer {
            name: self.name.clone(),
            session: SessionSettings {
                server,
                password: PasswordSource {
                    file: path(&self.password_file),
                    pgpass: path(&self.pgpass_file),
                },
                tls: client_tls(ca.as_ref(), certificate.as_ref(), key.as_ref()),
                response_timeout: RESPONSE_TIMEOUT,
            },
            interval: duration_or(self.interval, INTERVAL),
            sample_interval: duration_or(self.sample_interval, SAMPLE_INTERVAL),
        })
    }

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        match ConnectionString::parse(&self.dsn) {
            Err(error) => check.problem(table, "dsn", format!("dsn: {error}")),
            Ok(server) if server.encryption() == SessionEncryption::Disable => {
                if ca.is_some() || certificate.is_some() {
                    let what = "the connection has no TLS; set sslmode=verify-full in `dsn`";
                    check.problem(table, if ca.is_some() { "ca" } else { "certificate" }, what);
                }
            }
            Ok(_) => {}
        }
        if self.password_file.is_some() && self.pgpass_file.is_some() {
            let what = "`password_file` and `pgpass_file` are both set; remove one of them";
            check.problem(table, "pgpass_file", what);
        }
        check.file(table, "password_file", self.password_file.as_ref());
        check.file(table, "pgpass_file", self.pgpass_file.as_ref());
        check.client_tls(table, ca.as_ref(), certificate.as_ref(), key.as_ref());
        check.range(table, "interval", self.interval, INTERVALS);
        check.range(table, "sample_interval", self.sample_interval, SAMPLE_INTERVALS);
        check.contents(table, "name", || check_files(&self.read()?));
    }
}

fn check_files(server: &PostgresServer) -> Result<(), BoxError> {
    let config = match server.session.server.encryption() {
        SessionEncryption::Disable => return Ok(()),
        SessionEncryption::Require => server.session.tls.unverified_config(),
        SessionEncryption::VerifyFull => server.session.tls.config(),
    };
    config.map_err(|error| format!("postgres {:?}: {error}", server.name))?;
    Ok(())
}

impl PostgresTables {
    fn read_servers(&self) -> Result<Vec<PostgresServer>, BoxError> {
        self.servers.iter().map(PostgresTable::read).collect()
    }
}

/// The servers that are read.
#[derive(Debug)]
pub struct PostgresRole {
    servers: Vec<RunningServer>,
}

impl PostgresRole {
    fn start_servers(servers: Vec<PostgresServer>, context: &RoleContext) -> Vec<RunningServer> {
        let start = |server| RunningServer::start(server, &context.host, &context.intake);
        servers.into_iter().map(start).collect()
    }
}

impl Role for PostgresRole {
    const NAME: &'static str = "postgres";
    const KEYS: &'static [&'static str] = &["postgres"];

    type Settings = PostgresTables;

    fn read(document: &Document<'_>) -> Result<PostgresTables, Problems> {
        document.read(Self::KEYS)
    }

    fn validate_settings(settings: &PostgresTables, check: &mut SettingsCheck<'_>) {
        check.names("postgres", settings.servers.iter().map(|server| &*server.name));
        for (at, server) in settings.servers.iter().enumerate() {
            server.check(TableRef::nth("postgres", at), check);
        }
    }

    fn validate_files(settings: &PostgresTables, _mode: Option<NodeMode>) -> Result<(), BoxError> {
        settings.read_servers()?.iter().try_for_each(check_files)
    }

    fn summary(settings: &PostgresTables) -> Vec<SettingsCount> {
        let count = settings.servers.len();
        vec![SettingsCount { count, one: "PostgreSQL server", many: "PostgreSQL servers" }]
    }

    fn buffers_in_memory(settings: &PostgresTables) -> bool {
        !settings.servers.is_empty()
    }

    fn start(settings: &PostgresTables, context: &RoleContext) -> Result<PostgresRole, BoxError> {
        let servers = PostgresRole::start_servers(settings.read_servers()?, context);
        Ok(PostgresRole { servers })
    }

    async fn reload(
        &mut self,
        settings: &PostgresTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        let mut new_servers = settings.read_servers()?;
        let before = std::mem::take(&mut self.servers);
        let (staying, ending): (Vec<_>, Vec<_>) = before
            .into_iter()
            .partition(|running| !running.has_files() && new_servers.contains(running.settings()));
        self.servers = staying;
        new_servers.retain(|new| !self.servers.iter().any(|running| running.settings() == new));
        let is_changed = new_servers.len() + ending.len() > 0;
        ending.iter().for_each(RunningServer::request_stop);
        for server in ending {
            let is_removed = !new_servers.iter().any(|new| new.name == server.settings().name);
            server.stop(is_removed).await;
        }
        self.servers.extend(PostgresRole::start_servers(new_servers, context));
        let count = self.servers.len();
        Ok(is_changed.then(|| format!("reading {count} PostgreSQL servers")).into_iter().collect())
    }

    async fn stop(self) -> Result<(), BoxError> {
        self.servers.iter().for_each(RunningServer::request_stop);
        for server in self.servers {
            server.stop(false).await;
        }
        Ok(())
    }

    fn status(&self) -> Vec<StatusSection> {
        let states: Vec<_> = self.servers.iter().map(|it| Arc::clone(it.state())).collect();
        vec![StatusSection::new("postgres", move || {
            Json::List(states.iter().map(|state| state.to_json()).collect())
        })]
    }
}
