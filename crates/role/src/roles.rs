//! All roles of a node: read, checked, started and stopped together, independent of their types.
//!
//! Two orders are used. *Data-flow order* is that of the table: roles that receive measurements
//! come first, roles that forward them last; roles stop in this order, so that each one can pass on
//! its last measurements. *Start order* is the reverse: consumers start before their sources.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use intake::LogFn;

use crate::role::{BoxError, MetricThreshold, NodeMode, Role, RoleContext, StatusSection};
use crate::route::{Route, RouteSpec};
use crate::settings::{Document, Problems, SettingsCheck, SettingsCount};
use crate::write_route::{WriteRoute, WriteRouteSpec};

/// Settings of one role; its [`Role::Settings`].
type AnySettings = dyn Any + Send + Sync;
type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The roles that a node can have.
pub type RoleTable = &'static [&'static dyn ErasedRole];

/// [`Role`] with its types erased, for the table. Implemented by [`RoleEntry`] only.
pub trait ErasedRole: Sync + fmt::Debug {
    /// [`Role::NAME`].
    fn name(&self) -> &'static str;
    /// [`Role::KEYS`].
    fn keys(&self) -> &'static [&'static str];
    /// [`Role::ROUTES`].
    fn routes(&self) -> &'static [&'static RouteSpec];
    /// [`Role::WRITE_ROUTES`].
    fn write_routes(&self) -> &'static [&'static WriteRouteSpec];
    #[doc(hidden)]
    fn read(&self, document: &Document<'_>) -> Result<Arc<AnySettings>, Problems>;
    #[doc(hidden)]
    fn settings_without_file(&self, log: &LogFn) -> Arc<AnySettings>;
    #[doc(hidden)]
    fn validate_settings(&self, settings: &AnySettings, check: &mut SettingsCheck<'_>);
    #[doc(hidden)]
    fn validate_files(
        &self,
        settings: &AnySettings,
        mode: Option<NodeMode>,
    ) -> Result<(), BoxError>;
    #[doc(hidden)]
    fn summary(&self, settings: &AnySettings) -> Vec<SettingsCount>;
    #[doc(hidden)]
    fn warnings(&self, settings: &AnySettings) -> Vec<String>;
    #[doc(hidden)]
    fn buffers_in_memory(&self, settings: &AnySettings) -> bool;
    #[doc(hidden)]
    fn start(
        &self,
        settings: &AnySettings,
        context: &RoleContext,
    ) -> Result<Box<dyn RunningRole>, BoxError>;
}

/// Row of the table for the role `R`: it has no data, only the functions of the type.
pub struct RoleEntry<R>(PhantomData<fn() -> R>);

impl<R> RoleEntry<R> {
    /// The only value of the type.
    pub const ROW: RoleEntry<R> = RoleEntry(PhantomData);
}

impl<R: Role> fmt::Debug for RoleEntry<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RoleEntry").field(&R::NAME).finish()
    }
}

fn typed<R: Role>(settings: &AnySettings) -> &R::Settings {
    settings.downcast_ref().expect("BUG: settings of another role")
}

impl<R: Role> ErasedRole for RoleEntry<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn keys(&self) -> &'static [&'static str] {
        R::KEYS
    }

    fn routes(&self) -> &'static [&'static RouteSpec] {
        R::ROUTES
    }

    fn write_routes(&self) -> &'static [&'static WriteRouteSpec] {
        R::WRITE_ROUTES
    }

    fn read(&self, document: &Document<'_>) -> Result<Arc<AnySettings>, Problems> {
        Ok(Arc::new(R::read(document)?))
    }

    fn settings_without_file(&self, log: &LogFn) -> Arc<AnySettings> {
        Arc::new(R::settings_without_file(log))
    }

    fn validate_settings(&self, settings: &AnySettings, check: &mut SettingsCheck<'_>) {
        R::validate_settings(typed::<R>(settings), check);
    }

    fn validate_files(
        &self,
        settings: &AnySettings,
        mode: Option<NodeMode>,
    ) -> Result<(), BoxError> {
        R::validate_files(typed::<R>(settings), mode)
    }

    fn summary(&self, settings: &AnySettings) -> Vec<SettingsCount> {
        R::summary(typed::<R>(settings))
    }

    fn warnings(&self, settings: &AnySettings) -> Vec<String> {
        R::warnings(typed::<R>(settings))
    }

    fn buffers_in_memory(&self, settings: &AnySettings) -> bool {
        R::buffers_in_memory(typed::<R>(settings))
    }

    fn start(
        &self,
        settings: &AnySettings,
        context: &RoleContext,
    ) -> Result<Box<dyn RunningRole>, BoxError> {
        Ok(Box::new(R::start(typed::<R>(settings), context)?))
    }
}

/// A running role with its type erased.
#[doc(hidden)]
pub trait RunningRole: Send {
    fn reload<'a>(
        &'a mut self,
        settings: &'a AnySettings,
        context: &'a RoleContext,
    ) -> BoxFuture<'a, Result<Vec<String>, BoxError>>;
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), BoxError>>;
    fn log_lines(&self) -> Vec<String>;
    fn status(&self) -> Vec<StatusSection>;
    fn thresholds(&self) -> Vec<MetricThreshold>;
    fn routes(&self) -> Vec<Route>;
    fn write_routes(&self) -> Vec<WriteRoute>;
}

impl<R: Role> RunningRole for R {
    fn reload<'a>(
        &'a mut self,
        settings: &'a AnySettings,
        context: &'a RoleContext,
    ) -> BoxFuture<'a, Result<Vec<String>, BoxError>> {
        Box::pin(Role::reload(self, typed::<R>(settings), context))
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(Role::stop(*self))
    }

    fn log_lines(&self) -> Vec<String> {
        Role::log_lines(self)
    }

    fn status(&self) -> Vec<StatusSection> {
        Role::status(self)
    }

    fn thresholds(&self) -> Vec<MetricThreshold> {
        Role::thresholds(self)
    }

    fn routes(&self) -> Vec<Route> {
        Role::routes(self)
    }

    fn write_routes(&self) -> Vec<WriteRoute> {
        Role::write_routes(self)
    }
}

/// The settings of all roles of a table. Cheap to clone.
#[derive(Clone)]
pub struct RoleSettings(Vec<(&'static dyn ErasedRole, Arc<AnySettings>)>);

impl fmt::Debug for RoleSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(row, _)| row)).finish()
    }
}

impl RoleSettings {
    /// Reads the keys of all roles.
    pub fn read(table: RoleTable, document: &Document<'_>) -> Result<RoleSettings, Problems> {
        let (mut settings, mut problems) = (Vec::new(), Problems::default());
        for row in table {
            match row.read(document) {
                Ok(read) => settings.push((*row, read)),
                Err(found) => problems.extend(found),
            }
        }
        if problems.is_empty() { Ok(RoleSettings(settings)) } else { Err(problems) }
    }

    /// Settings of a node without a settings file: [`Role::settings_without_file`] of all roles.
    pub fn without_file(table: RoleTable, log: &LogFn) -> RoleSettings {
        RoleSettings(table.iter().map(|row| (*row, row.settings_without_file(log))).collect())
    }

    /// Reports the problems of all roles.
    pub fn validate_settings(&self, check: &mut SettingsCheck<'_>) {
        self.0.iter().for_each(|(row, settings)| row.validate_settings(&**settings, check));
    }

    /// [`Role::validate_files`] of all roles, until one fails.
    pub fn validate_files(&self, mode: Option<NodeMode>) -> Result<(), BoxError> {
        self.0.iter().try_for_each(|(row, settings)| row.validate_files(&**settings, mode))
    }

    /// [`Role::summary`] of all roles.
    pub fn summary(&self) -> Vec<SettingsCount> {
        self.0.iter().flat_map(|(row, settings)| row.summary(&**settings)).collect()
    }

    /// [`Role::warnings`] of all roles.
    pub fn warnings(&self) -> Vec<String> {
        self.0.iter().flat_map(|(row, settings)| row.warnings(&**settings)).collect()
    }

    /// Whether any role is [`Role::buffers_in_memory`].
    pub fn buffers_in_memory(&self) -> bool {
        self.0.iter().any(|(row, settings)| row.buffers_in_memory(&**settings))
    }

    /// The settings of one role, if it is in the table.
    pub fn get<R: Role>(&self) -> Option<&R::Settings> {
        self.0.iter().find_map(|(_, settings)| settings.downcast_ref())
    }
}

/// The running roles of a table.
pub struct RunningRoles(Vec<(&'static dyn ErasedRole, Box<dyn RunningRole>)>);

impl fmt::Debug for RunningRoles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(row, _)| row)).finish()
    }
}

impl RunningRoles {
    /// Starts all roles inside a tokio runtime, in start order.
    pub fn start(settings: &RoleSettings, context: &RoleContext) -> Result<RunningRoles, BoxError> {
        let mut running = Vec::new();
        for (row, settings) in settings.0.iter().rev() {
            running.push((*row, row.start(&**settings, context)?));
        }
        running.reverse();
        Ok(RunningRoles(running))
    }

    /// Applies other settings of the same table, in start order, and returns log lines. After the
    /// first error the remaining roles keep their settings.
    pub async fn reload(
        &mut self,
        settings: &RoleSettings,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        assert_eq!(self.0.len(), settings.0.len(), "settings of another table");
        let mut lines = Vec::new();
        for ((_, role), (_, settings)) in self.0.iter_mut().zip(&settings.0).rev() {
            lines.extend(role.reload(&**settings, context).await?);
        }
        Ok(lines)
    }

    /// Stops all roles in data-flow order; returns a line for each role that could not write all
    /// its data.
    pub async fn stop(self) -> Vec<String> {
        let mut lines = Vec::new();
        for (row, role) in self.0 {
            if let Err(error) = role.stop().await {
                lines.push(format!("{}: {error}", row.name()));
            }
        }
        lines
    }

    /// [`Role::log_lines`] of all roles.
    pub fn log_lines(&self) -> Vec<String> {
        self.0.iter().flat_map(|(_, role)| role.log_lines()).collect()
    }

    /// [`Role::status`] of all roles, in start order.
    pub fn status(&self) -> Vec<StatusSection> {
        self.0.iter().rev().flat_map(|(_, role)| role.status()).collect()
    }

    /// [`Role::thresholds`] of all roles.
    pub fn thresholds(&self) -> Vec<MetricThreshold> {
        self.0.iter().flat_map(|(_, role)| role.thresholds()).collect()
    }

    /// [`Role::routes`] of all roles. Every route is described in [`Role::ROUTES`], and every
    /// description has a handler.
    pub fn routes(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        for (row, role) in &self.0 {
            let role_routes = role.routes();
            assert_described(
                row.name(),
                row.routes().iter().map(|spec| ("get", spec.path)),
                role_routes.iter().map(|route| ("get", route.spec.path)),
            );
            routes.extend(role_routes);
        }
        routes
    }

    /// The same for [`Role::write_routes`].
    pub fn write_routes(&self) -> Vec<WriteRoute> {
        let mut routes = Vec::new();
        for (row, role) in &self.0 {
            let role_routes = role.write_routes();
            assert_described(
                row.name(),
                row.write_routes().iter().map(|spec| (spec.method.name(), spec.path)),
                role_routes.iter().map(|route| (route.spec.method.name(), route.spec.path)),
            );
            routes.extend(role_routes);
        }
        routes
    }
}

/// Checks that the described routes, by method and path, are those that have handlers.
fn assert_described<'a>(
    role: &str,
    described: impl Iterator<Item = (&'a str, &'a str)>,
    answered: impl Iterator<Item = (&'a str, &'a str)>,
) {
    let (mut described, mut answered): (Vec<_>, Vec<_>) = (described.collect(), answered.collect());
    described.sort_unstable();
    answered.sort_unstable();
    assert_eq!(described, answered, "BUG: routes of the role {role}");
}
