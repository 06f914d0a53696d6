//! What a role is: settings, life, and what it shows of itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use intake::{Intake, LogFn};

use crate::json::Json;
use crate::route::{Route, RouteSpec};
use crate::settings::{Document, Problems, SettingsCheck, SettingsCount};

/// Any error of a role. Its text is for people.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Which half of topdeck a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMode {
    /// With a store.
    Serve,
    /// With a journal alone, whose batches are forwarded.
    Agent,
}

/// What roles get from their node.
#[derive(Clone)]
pub struct RoleContext {
    /// The intake; its supervisor restarts threads that panic, and its meter counts.
    pub intake: Arc<Intake>,
    /// The data directory.
    pub data: PathBuf,
    /// The host's name: `name` of `[host]`, or what the system calls it.
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

/// A part of a node with its own settings and its own life.
///
/// A role whose settings ask for nothing is started all the same and does nothing: a reload may
/// give it work.
pub trait Role: Sized + Send + 'static {
    /// The role's name in messages.
    const NAME: &'static str;
    /// Its top-level keys of the settings file. No other role has them.
    const KEYS: &'static [&'static str];
    /// Its routes of the HTTP API.
    const ROUTES: &'static [&'static RouteSpec] = &[];

    /// Its part of the settings file: a field for each of [`Role::KEYS`]. Attributes
    /// `#[serde(default, deny_unknown_fields)]` make keys optional and refuse misspelled ones.
    type Settings: Default + fmt::Debug + Send + Sync + 'static;

    /// Reads its part of a settings file; most often [`Document::read`] of [`Role::KEYS`].
    fn read(document: &Document<'_>) -> Result<Self::Settings, Problems>;

    /// The settings of a node without a settings file: the defaults.
    fn settings_without_file(_log: &LogFn) -> Self::Settings {
        Self::Settings::default()
    }

    /// Reports every problem of settings that were read, with its line. Changes nothing and
    /// connects to nothing.
    fn check(_settings: &Self::Settings, _check: &mut SettingsCheck<'_>) {}

    /// The first reason why the role could not start with these settings, as far as that is known
    /// before: what is in files that the settings name, among others. Without a `mode`, settings
    /// are verified for both.
    fn verify(_settings: &Self::Settings, _mode: Option<NodeMode>) -> Result<(), BoxError> {
        Ok(())
    }

    /// What the settings ask for, counted, such as `2 sites`: for `topdeck check-config`.
    fn summary(_settings: &Self::Settings) -> Vec<SettingsCount> {
        Vec::new()
    }

    /// Whether the role holds measurements in memory that are lost when the process is killed. The
    /// next start then reports the loss.
    fn is_lossy(_settings: &Self::Settings) -> bool {
        false
    }

    /// Starts the role, in a runtime of tokio.
    fn start(settings: &Self::Settings, context: &RoleContext) -> Result<Self, BoxError>;

    /// Goes over to other settings, and returns a line for the log for each change. What stays the
    /// same goes on undisturbed. Files may have changed although the settings did not. An error
    /// means that the role runs as before; what other roles can do without, such as a port that is
    /// in use, is a line instead.
    fn reload(
        &mut self,
        settings: &Self::Settings,
        context: &RoleContext,
    ) -> impl Future<Output = Result<Vec<String>, BoxError>> + Send;

    /// Stops the role: writes what it holds, and ends its threads and tasks.
    fn stop(self) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Lines for the log after the start: addresses, limitations, what needs attention.
    fn log_lines(&self) -> Vec<String> {
        Vec::new()
    }

    /// Its sections of `/v1/status`; asked for anew after each reload.
    fn status(&self) -> Vec<StatusSection> {
        Vec::new()
    }

    /// Its routes of the HTTP API, those of [`Role::ROUTES`]. They are asked for once, after the
    /// start, so that a handler must go on working after reloads.
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }
}

/// A field of `/v1/status`.
#[derive(Clone)]
pub struct StatusSection {
    /// The field's name.
    pub name: &'static str,
    read: Arc<dyn Fn() -> Json + Send + Sync>,
}

impl StatusSection {
    /// A section that is read by `read` when somebody asks, on a thread that may block. It should
    /// hold no role, which may have stopped by then.
    pub fn new(
        name: &'static str,
        read: impl Fn() -> Json + Send + Sync + 'static,
    ) -> StatusSection {
        StatusSection { name, read: Arc::new(read) }
    }

    /// The section as it is now.
    pub fn read(&self) -> Json {
        (self.read)()
    }
}

impl fmt::Debug for StatusSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusSection").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs blocking work, such as the end of a thread, outside the runtime's own threads.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BoxError> {
    Ok(tokio::task::spawn_blocking(work).await?)
}
