//! The settings of `topdeck serve` and `topdeck agent`: one TOML file. The node's own keys are
//! here, each with its default and unit; those of roles are in the roles' crates.
//!
//! A file is checked as a whole before anything starts: [`Settings::read`] gives settings that make
//! sense, or every reason why they do not, each with its line.

mod node;
mod renamed_keys;
mod settings_checker;
mod value;

use std::net::SocketAddr;
use std::path::Path;

use intake::LogFn;
use role::settings::{Document, FilePath, Length, Problems, SettingsCheck, Size, TableRef};
use role::{RoleSettings, RoleTable};
use serde::Deserialize;

pub(crate) use crate::settings::node::OTLP_PORTS;
use crate::settings::renamed_keys::RENAMED_KEYS;
pub(crate) use crate::settings::value::{AckLevelSetting, RetentionSetting};

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) node: NodeSettings,
    pub(crate) roles: RoleSettings,
    /// `name` of `[host]`: the table is the role's, and the name is for all.
    host: Option<String>,
}

/// Top-level keys of the node itself.
const NODE_KEYS: [&str; 6] =
    ["data_dir", "durability", "collection_interval", "http", "journal", "store"];

/// What belongs to no role.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeSettings {
    /// The folder of everything that topdeck keeps.
    pub(crate) data_dir: Option<FilePath>,
    /// What a batch has survived when its sender is told: `disk` (default), `process` or `memory`.
    pub(crate) durability: AckLevelSetting,
    /// How often sources write what they have put together: `10s`, from 1 s to 60 s.
    pub(crate) collection_interval: Option<Length>,
    pub(crate) http: HttpSettings,
    pub(crate) journal: JournalSettings,
    pub(crate) store: StoreSettings,
}

/// `[http]`: HTTP and gRPC on all addresses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpSettings {
    /// `["127.0.0.1:7717", "127.0.0.1:4317", "127.0.0.1:4318"]`; `[]` for none.
    pub(crate) listen: Option<Vec<SocketAddr>>,
    /// Whether a token is asked for on loopback too; on other addresses it always is.
    pub(crate) tokens_required: bool,
    /// Names under which it is asked for without a token, beside localhost: of a proxy before it.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) limits: Limits,
}

/// `[http.tls]`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSettings {
    /// PEM, the server's first.
    pub(crate) certificate: FilePath,
    /// PEM.
    pub(crate) key: FilePath,
    /// PEM: certificates of clients that these have signed stand for tokens.
    pub(crate) client_ca: Option<FilePath>,
}

/// `[http.limits]`: see docs/serve.md.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Of a request, as it comes and as it is unpacked: `16MiB`.
    pub(crate) max_body_bytes: Option<Size>,
    /// Of all bodies that are being read or worked on: `256MiB`.
    pub(crate) max_buffered_body_bytes: Option<Size>,
    /// Of all answers that clients have not taken yet: `128MiB`.
    pub(crate) max_buffered_response_bytes: Option<Size>,
    /// For a whole body to come: `60s`.
    pub(crate) body_read_timeout: Option<Length>,
    /// Of a request's line and headers: `64KiB`.
    pub(crate) max_header_bytes: Option<Size>,
    /// For these to come: `10s`.
    pub(crate) header_read_timeout: Option<Length>,
    /// Until the answer begins: `120s`.
    pub(crate) request_timeout: Option<Length>,
    /// In which the other end takes nothing of an answer: `60s`.
    pub(crate) write_timeout: Option<Length>,
    /// Between requests of a connection: `300s`.
    pub(crate) idle_timeout: Option<Length>,
    /// At a time: 16,384.
    pub(crate) max_connections: Option<usize>,
    /// Heavy queries that are worked on at a time: 8.
    pub(crate) max_concurrent_queries: Option<usize>,
    /// Memory of all queries together: `1GiB`.
    pub(crate) max_query_memory: Option<Size>,
}

/// `[journal]`: backlog for the store and for remotes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct JournalSettings {
    /// `10GiB`. At it, senders are asked to wait.
    pub(crate) max_size: Option<Size>,
}

/// `[store]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSettings {
    /// How long rows are kept, as `topdeck store retention` has it: `["base 30d", "1m 90d"]`.
    pub(crate) retention: Option<Vec<RetentionSetting>>,
    /// Series at the most: what the store says.
    pub(crate) max_series: Option<u64>,
    /// Series of one producer.
    pub(crate) max_producer_series: Option<u64>,
    /// Series that one producer has of one metric.
    pub(crate) max_metric_series: Option<u64>,
    /// Values that one producer brings of one label.
    pub(crate) max_label_values: Option<u64>,
    /// Rows in memory, in bytes, before they are sealed: `128MiB`.
    pub(crate) max_head_size: Option<Size>,
}

impl StoreSettings {
    /// How many series, and values of a label, are taken.
    pub(crate) fn limits(&self) -> store::CardinalityLimits {
        let default = store::CardinalityLimits::default();
        store::CardinalityLimits {
            series_max: self.max_series.unwrap_or(default.series_max),
            series_per_producer_max: self
                .max_producer_series
                .unwrap_or(default.series_per_producer_max),
            series_per_metric_max: self.max_metric_series.unwrap_or(default.series_per_metric_max),
            values_per_label_max: self.max_label_values.unwrap_or(default.values_per_label_max),
        }
    }
}

impl Settings {
    /// Reads and checks a file, with the keys of some roles.
    pub(crate) fn read(path: &Path, roles: RoleTable) -> Result<Settings, Problems> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Problems::of_file(path, format!("cannot read it: {error}")))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Settings::parse(&text, folder, roles).map_err(|problems| problems.in_file(path))
    }

    /// Reads and checks text; files are seen from `folder`.
    pub(crate) fn parse(text: &str, folder: &Path, roles: RoleTable) -> Result<Settings, Problems> {
        let mut document = Document::parse(text, folder)?;
        let mut problems = document.take_renamed_keys(RENAMED_KEYS);
        let of_roles = roles.iter().flat_map(|role| role.keys().iter().copied());
        let known: Vec<&str> = NODE_KEYS.into_iter().chain(of_roles).collect();
        problems.extend(document.unknown_keys(TableRef::ROOT, &known));
        let node = document.read::<NodeSettings>(&NODE_KEYS).map_err(|own| problems.extend(own));
        let roles = RoleSettings::read(roles, &document).map_err(|own| problems.extend(own));
        let (Ok(node), Ok(roles), true) = (node, roles, problems.is_empty()) else {
            return Err(problems.sorted());
        };
        let mut check = SettingsCheck::new(&document);
        node.check_check(&mut check);
        roles.check(&mut check);
        let problems = check.finish();
        let host = document.text_of(TableRef::named("host"), "name").map(str::to_owned);
        if problems.is_empty() { Ok(Settings { node, roles, host }) } else { Err(problems) }
    }

    /// Of a node without a file.
    pub(crate) fn without_file(roles: RoleTable, log: &LogFn) -> Settings {
        Settings {
            node: NodeSettings::default(),
            roles: RoleSettings::without_file(roles, log),
            host: None,
        }
    }

    /// This host's name: as it is set, or else as the system has it.
    pub(crate) fn host_name(&self) -> String {
        let system = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.host.clone().unwrap_or_else(system)
    }
}

#[cfg(test)]
mod tests;
