//! Settings of `topdeck serve` and `topdeck agent`: one TOML file. The node's own keys are here,
//! each with its default and unit; those of roles are in the crates of the roles.
//!
//! A file is checked as a whole before anything starts: [`Settings::read`] returns valid settings,
//! or all errors, each with its line.

mod node;
mod renamed_keys;
mod settings_checker;
mod value;

use std::net::SocketAddr;
use std::path::Path;

use intake::LogFn;
use role::settings::{
    Document, DurationSetting, FilePath, Problems, SettingsCheck, Size, TableRef,
};
use role::{RoleSettings, RoleTable};
use serde::Deserialize;

use crate::server_log::LogFormat;
pub(crate) use crate::settings::node::OTLP_PORTS;
use crate::settings::renamed_keys::RENAMED_KEYS;
pub(crate) use crate::settings::value::{AckLevelSetting, RetentionSetting};

/// All settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) node: NodeSettings,
    pub(crate) roles: RoleSettings,
    /// `name` of `[host]`: the table belongs to the role, but all roles use the name.
    host: Option<String>,
}

/// Top-level keys of the node.
const NODE_KEYS: [&str; 11] = [
    "data_dir",
    "durability",
    "collection_interval",
    "http",
    "install",
    "journal",
    "store",
    "exemplars",
    "traces",
    "absence",
    "log",
];

/// Settings of the node, which belong to no role.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeSettings {
    /// Data directory.
    pub(crate) data_dir: Option<FilePath>,
    /// Durability of a batch before it is acknowledged: `disk` (default), `process` or `memory`.
    pub(crate) durability: AckLevelSetting,
    /// Interval at which built-in sources write their aggregates: `10s`, from 1 s to 60 s.
    pub(crate) collection_interval: Option<DurationSetting>,
    pub(crate) http: HttpSettings,
    pub(crate) install: InstallTable,
    pub(crate) journal: JournalSettings,
    pub(crate) store: StoreSettings,
    pub(crate) exemplars: ExemplarTable,
    pub(crate) traces: TraceTable,
    pub(crate) absence: AbsenceTable,
    pub(crate) log: LogTable,
}

/// `[http]`: HTTP and gRPC on all addresses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpSettings {
    /// Listen addresses: `["127.0.0.1:7717", "127.0.0.1:4317", "127.0.0.1:4318"]`; `[]` for none.
    pub(crate) listen: Option<Vec<SocketAddr>>,
    /// Whether a token is required on loopback, too; on other addresses it always is.
    pub(crate) tokens_required: bool,
    /// Host names that are accepted without a token, besides localhost: for a proxy in front of it.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) limits: Limits,
}

/// `[install]`: what hosts get that install the agent from this server (docs/install.md).
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct InstallTable {
    /// Directory with `TARGET/topdeck`, as `make dist` writes it; without it, hosts of this
    /// architecture get this program.
    pub(crate) binaries: Option<FilePath>,
}

/// `[http.tls]`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSettings {
    /// Certificate chain (PEM), the server's first.
    pub(crate) certificate: FilePath,
    /// Private key (PEM).
    pub(crate) key: FilePath,
    /// CA certificates (PEM): client certificates that they signed replace tokens.
    pub(crate) client_ca: Option<FilePath>,
}

/// `[http.limits]`: see docs/serve.md.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Maximum body of a request, compressed and decompressed: `16MiB`.
    pub(crate) max_body_bytes: Option<Size>,
    /// Maximum memory of all bodies that are being received or processed: `256MiB`.
    pub(crate) max_buffered_body_bytes: Option<Size>,
    /// Maximum memory of all responses that clients have not read yet: `128MiB`.
    pub(crate) max_buffered_response_bytes: Option<Size>,
    /// Timeout to receive a body: `60s`.
    pub(crate) body_read_timeout: Option<DurationSetting>,
    /// Maximum size of the request line and headers: `64KiB`.
    pub(crate) max_header_bytes: Option<Size>,
    /// Timeout to receive the headers: `10s`.
    pub(crate) header_read_timeout: Option<DurationSetting>,
    /// Timeout until the response starts: `120s`.
    pub(crate) request_timeout: Option<DurationSetting>,
    /// Timeout of a client that reads nothing of its response: `60s`.
    pub(crate) write_timeout: Option<DurationSetting>,
    /// Timeout between requests of a connection: `300s`.
    pub(crate) idle_timeout: Option<DurationSetting>,
    /// Maximum number of connections: 16,384.
    pub(crate) max_connections: Option<usize>,
    /// Maximum number of heavy queries (docs/limits.md) that run at a time: 8.
    pub(crate) max_concurrent_queries: Option<usize>,
    /// Maximum memory of all queries together: `1GiB`.
    pub(crate) max_query_memory: Option<Size>,
}

/// `[journal]`: backlog for the store and for remotes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct JournalSettings {
    /// Maximum size: `10GiB`. When it is reached, senders are asked to retry later.
    pub(crate) max_size: Option<Size>,
}

/// `[store]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSettings {
    /// Retention rules, as for `topdeck store retention`: `["base 30d", "1m 90d"]`.
    pub(crate) retention: Option<Vec<RetentionSetting>>,
    /// Maximum number of series; the default is the store's.
    pub(crate) max_series: Option<u64>,
    /// Maximum number of series of a producer.
    pub(crate) max_producer_series: Option<u64>,
    /// Maximum number of series of a metric and producer.
    pub(crate) max_metric_series: Option<u64>,
    /// Maximum number of values of a label and producer.
    pub(crate) max_label_values: Option<u64>,
    /// Maximum memory of samples before a flush: `128MiB`.
    pub(crate) max_head_size: Option<Size>,
}

/// `[exemplars]`: which exemplars are stored, and how long (docs/exemplars.md).
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExemplarTable {
    /// Whether exemplars are stored: `true`.
    pub(crate) enabled: Option<bool>,
    /// How long they are kept: `1h`.
    pub(crate) retention: Option<DurationSetting>,
    /// Maximum memory: `32MiB`.
    pub(crate) max_memory: Option<Size>,
    /// Attributes that are stored; all by default.
    pub(crate) attributes: Option<Vec<String>>,
    /// Attributes of which a hash is stored.
    pub(crate) hash_attributes: Vec<String>,
    /// URL of a trace, with `{trace_id}` and `{span_id}`.
    pub(crate) trace_url: Option<String>,
}

/// `[traces]`: which whole traces are kept, and how long (docs/traces.md).
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TraceTable {
    /// Whether the spans of traces with an exemplar are kept: `true`.
    pub(crate) enabled: Option<bool>,
    /// How long spans wait for the decision: `30s`.
    pub(crate) buffer_time: Option<DurationSetting>,
    /// Maximum memory of these spans: `64MiB`.
    pub(crate) max_buffer: Option<Size>,
    /// Maximum size of the spans of a trace: `4MiB`.
    pub(crate) max_trace_size: Option<Size>,
    /// How long traces are kept: `7d`.
    pub(crate) retention: Option<DurationSetting>,
    /// Maximum size on disk: `1GiB`.
    pub(crate) max_size: Option<Size>,
}

/// `[absence]`: when a source that sent regularly is reported as absent.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AbsenceTable {
    /// Whether absent sources are reported: `true`.
    pub(crate) enabled: Option<bool>,
    /// Shortest absence that is reported: `30s`.
    pub(crate) min_duration: Option<DurationSetting>,
    /// Number of usual intervals without a batch: 5.
    pub(crate) intervals: Option<u32>,
    /// Absence after which a source is forgotten: `24h`.
    pub(crate) retire_after: Option<DurationSetting>,
}

/// `[log]`: log of the server, on standard error.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogTable {
    /// Format of the lines: `text` or `json`.
    pub(crate) format: LogFormat,
}

impl StoreSettings {
    /// Limits of the numbers of series and of label values.
    pub(crate) fn limits(&self) -> store::CardinalityLimits {
        let default = store::CardinalityLimits::default();
        store::CardinalityLimits {
            max_series: self.max_series.unwrap_or(default.max_series),
            max_producer_series: self.max_producer_series.unwrap_or(default.max_producer_series),
            max_metric_series: self.max_metric_series.unwrap_or(default.max_metric_series),
            max_label_values: self.max_label_values.unwrap_or(default.max_label_values),
        }
    }
}

impl Settings {
    /// Reads and checks a file, with the keys of the given roles.
    pub(crate) fn read(path: &Path, roles: RoleTable) -> Result<Settings, Problems> {
        let text = read_text(path)?;
        Settings::parse(&text, dir_of(path), roles).map_err(|problems| problems.in_file(path))
    }

    /// As [`Settings::read`], and checks the contents of the files that the settings name, and
    /// whether tokens exist, as far as the rest of the file permits.
    pub(crate) fn read_with_contents(
        path: &Path,
        roles: RoleTable,
    ) -> Result<(Settings, Problems), Problems> {
        let text = read_text(path)?;
        match Settings::check(&text, dir_of(path), roles, FileContents::Checked) {
            (Some(settings), problems) => Ok((settings, problems.in_file(path))),
            (None, problems) => Err(problems.in_file(path)),
        }
    }

    /// Parses and checks text; file names in it are relative to `dir`.
    pub(crate) fn parse(text: &str, dir: &Path, roles: RoleTable) -> Result<Settings, Problems> {
        match Settings::check(text, dir, roles, FileContents::Unchecked) {
            (Some(settings), problems) if problems.is_empty() => Ok(settings),
            (_, problems) => Err(problems),
        }
    }

    /// All problems of a text, and the settings, in which values that cannot be read are absent.
    /// There are no settings after a syntax
    /// error, and without a readable `data_dir`.
    fn check(
        text: &str,
        dir: &Path,
        roles: RoleTable,
        contents: FileContents,
    ) -> (Option<Settings>, Problems) {
        let (document, mut syntax) = Document::parse_recoverable(text, dir);
        let Some(mut document) = document else { return (None, syntax) };
        let mut problems = document.take_renamed_keys(RENAMED_KEYS);
        let of_roles = roles.iter().flat_map(|role| role.keys().iter().copied());
        let known: Vec<&str> = NODE_KEYS.into_iter().chain(of_roles).collect();
        problems.extend(document.unknown_keys(TableRef::ROOT, &known));
        let read = read_all(&mut document, roles, &mut problems);
        let mut settings = None;
        if let Some((node, roles)) = read {
            let mut check = match contents {
                FileContents::Checked => SettingsCheck::with_contents(&document),
                FileContents::Unchecked => SettingsCheck::new(&document),
            };
            node.validate_node(&mut check);
            roles.validate_settings(&mut check);
            problems.extend(check.finish());
            let host = document.text_of(TableRef::named("host"), "name").map(str::to_owned);
            let is_known = syntax.is_empty() && !document.is_unread(TableRef::ROOT, "data_dir");
            settings = is_known.then_some(Settings { node, roles, host });
        }
        syntax.extend_other_lines(problems);
        (settings, syntax.sorted())
    }

    /// Settings of a node without a file.
    pub(crate) fn without_file(roles: RoleTable, log: &LogFn) -> Settings {
        Settings {
            node: NodeSettings::default(),
            roles: RoleSettings::without_file(roles, log),
            host: None,
        }
    }

    /// Name of this host: from the settings, otherwise from the system.
    pub(crate) fn host_name(&self) -> String {
        let system = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.host.clone().unwrap_or_else(system)
    }
}

/// Whether the contents of the files that settings name are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileContents {
    Checked,
    Unchecked,
}

fn read_text(path: &Path) -> Result<String, Problems> {
    std::fs::read_to_string(path)
        .map_err(|error| Problems::of_file(path, format!("cannot read it: {error}")))
}

fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Reads all tables. A reader stops at its first error: values that cannot be read are replaced
/// until all readers succeed, so that the problems are complete.
fn read_all(
    document: &mut Document<'_>,
    table: RoleTable,
    problems: &mut Problems,
) -> Option<(NodeSettings, RoleSettings)> {
    loop {
        let mut found = Problems::default();
        let node = document.read::<NodeSettings>(&NODE_KEYS).map_err(|own| found.extend(own));
        let roles = RoleSettings::read(table, document).map_err(|own| found.extend(own));
        if let (Ok(node), Ok(roles)) = (node, roles) {
            return Some((node, roles));
        }
        let (new, is_repaired) = document.repair(found);
        problems.extend(new);
        if !is_repaired {
            return None;
        }
    }
}

#[cfg(test)]
mod tests;
