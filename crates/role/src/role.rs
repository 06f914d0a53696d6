//! The role trait: settings, lifecycle, status, routes.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use decode::Quantity;
use intake::{Intake, LogFn};
use tokio::task::{JoinError, JoinHandle};

use crate::json::Json;
use crate::route::{Route, RouteSpec};
use crate::settings::{Document, Problems, SettingsCheck, SettingsCount};
use crate::write_route::{WriteRoute, WriteRouteSpec};

/// Any error of a role. Its text is shown to users.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Operating mode of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMode {
    /// A node with a store.
    Serve,
    /// A node with a journal only; its batches are forwarded.
    Agent,
}

/// What a node passes to its roles.
#[derive(Clone)]
pub struct RoleContext {
    /// The intake; its supervisor restarts threads that panic, its meter has the own metrics.
    pub intake: Arc<Intake>,
    /// The data directory.
    pub data: PathBuf,
    /// The host name: `name` of `[host]`, default: the system's hostname.
    pub host: String,
    /// The log.
    pub log: LogFn,
}

impl fmt::Debug for RoleContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoleContext { data, host, .. } = self;
        f.debug_struct("RoleContext")
            .field("data", data)
            .field("host", host)
            .finish_non_exhaustive()
    }
}

/// A component of a node with its own settings and lifecycle.
///
/// A role is started even if its settings enable nothing: a reload may enable something.
pub trait Role: Sized + Send + 'static {
    /// The role's name in messages.
    const NAME: &'static str;
    /// Top-level keys of the settings file that belong to the role alone.
    const KEYS: &'static [&'static str];
    /// Its routes of the HTTP API.
    const ROUTES: &'static [&'static RouteSpec] = &[];
    /// Its routes that change something.
    const WRITE_ROUTES: &'static [&'static WriteRouteSpec] = &[];

    /// Its part of the settings file: a field for each of [`Role::KEYS`]. The attributes
    /// `#[serde(default, deny_unknown_fields)]` make keys optional and reject misspelled keys.
    type Settings: Default + fmt::Debug + Send + Sync + 'static;

    /// Reads the role's part of a settings file; usually [`Document::read`] of [`Role::KEYS`].
    fn read(document: &Document<'_>) -> Result<Self::Settings, Problems>;

    /// Settings of a node without a settings file; default: the default values.
    fn settings_without_file(_log: &LogFn) -> Self::Settings {
        Self::Settings::default()
    }

    /// Reports every problem of the parsed settings, with its line. Has no side effects and opens
    /// no connection.
    fn validate_settings(_settings: &Self::Settings, _check: &mut SettingsCheck<'_>) {}

    /// Returns the first reason why the role could not start with these settings, as far as this
    /// can be known before the start. This includes the contents of files that the settings name.
    /// Without a `mode`, the settings are verified for both modes.
    fn validate_files(_settings: &Self::Settings, _mode: Option<NodeMode>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Counts of what the settings configure, such as `2 remotes`, for `topdeck check-config`.
    fn summary(_settings: &Self::Settings) -> Vec<SettingsCount> {
        Vec::new()
    }

    /// What is valid, but probably not meant, for `topdeck check-config`.
    fn warnings(_settings: &Self::Settings) -> Vec<String> {
        Vec::new()
    }

    /// Whether the role buffers measurements in memory that are lost if the process is killed. The
    /// next start then records the loss as a gap.
    fn buffers_in_memory(_settings: &Self::Settings) -> bool {
        false
    }

    /// Starts the role inside a tokio runtime.
    fn start(settings: &Self::Settings, context: &RoleContext) -> Result<Self, BoxError>;

    /// Applies other settings and returns a log line for each change. Unchanged parts keep running.
    /// Files may have changed although the settings did not. After an error the role runs with the
    /// previous settings. A problem that does not affect other roles, such as a port in use, is a
    /// log line instead.
    fn reload(
        &mut self,
        settings: &Self::Settings,
        context: &RoleContext,
    ) -> impl Future<Output = Result<Vec<String>, BoxError>> + Send;

    /// Stops the role: writes its buffered data and ends its threads and tasks.
    fn stop(self) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Log lines after the start: addresses, limitations, warnings.
    fn log_lines(&self) -> Vec<String> {
        Vec::new()
    }

    /// Sections of `/v1/status`; requested again after each reload.
    fn status(&self) -> Vec<StatusSection> {
        Vec::new()
    }

    /// Thresholds of metrics that its settings state; requested again after each reload.
    fn thresholds(&self) -> Vec<MetricThreshold> {
        Vec::new()
    }

    /// Routes of the HTTP API, those of [`Role::ROUTES`]. They are requested once, after the start:
    /// a handler must keep working after reloads.
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    /// The same for [`Role::WRITE_ROUTES`].
    fn write_routes(&self) -> Vec<WriteRoute> {
        Vec::new()
    }
}

/// Largest good value of a metric, by an SLO.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricThreshold {
    /// Name of the metric.
    pub metric: String,
    /// Labels of the series that it applies to.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub limit: Quantity,
    /// Share of the values that may be above it.
    pub bad_share: f64,
    /// Name of the SLO.
    pub slo: String,
    /// Label that tells users apart.
    pub user_label: Option<String>,
}

/// A field of `/v1/status`.
#[derive(Clone)]
pub struct StatusSection {
    /// The field's name.
    pub name: &'static str,
    read: Arc<dyn Fn() -> Json + Send + Sync>,
}

impl StatusSection {
    /// A section that `read` produces per request, on a thread that may block. `read` should hold
    /// no reference to the role, which may have stopped by then.
    pub fn new(
        name: &'static str,
        read: impl Fn() -> Json + Send + Sync + 'static,
    ) -> StatusSection {
        StatusSection { name, read: Arc::new(read) }
    }

    /// The section's current value.
    pub fn read(&self) -> Json {
        (self.read)()
    }
}

impl fmt::Debug for StatusSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusSection").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs blocking work, such as joining a thread, outside the runtime's worker threads.
///
/// Tokio compiles 4 kB for each type of work; here all work has one.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let done = spawn_boxed(Box::new(move || Box::new(work()))).await?;
    Ok(*done.downcast().expect("BUG: work returned a value of another type"))
}

/// A value of any type, which work returned.
type AnyValue = Box<dyn Any + Send>;

fn spawn_boxed(work: Box<dyn FnOnce() -> AnyValue + Send>) -> JoinHandle<AnyValue> {
    tokio::task::spawn_blocking(work)
}
