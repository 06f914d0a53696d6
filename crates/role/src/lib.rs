//! Roles: the components of a node that run concurrently around the intake, behind one trait.
//!
//! A role is a type with [`Role`] in a crate of its own and a row in the binary's table of roles.
//! Its crate contains everything about it: its keys of the settings file and their checks, start,
//! reload and stop, log lines, sections of `/v1/status`, routes of the HTTP API. The node and the
//! API see the roles of the table only as [`RoleSettings`] and [`RunningRoles`].
//! `testdata/extensions/role/heartbeat.rs` is a complete role in one file.
#![forbid(unsafe_code)]

mod role;
mod roles;
mod route;
mod route_events;
pub mod settings;
pub mod time_expr;
mod write_route;

pub use role::{
    BoxError, MetricThreshold, NodeMode, Role, RoleContext, StatusSection, run_blocking,
};
pub use roles::{ErasedRole, RoleEntry, RoleSettings, RoleTable, RunningRoles};
pub use route::{
    Parameter, PictureHandler, Route, RouteError, RouteFormat, RouteHandler, RouteQuery, RouteSpec,
    RouteWait,
};
pub use route_events::{EventBatch, RouteEvent, RouteEvents};
pub use write_route::{
    WriteHandler, WriteMethod, WriteRequest, WriteRoute, WriteRouteSpec, WriteScope,
};

pub use render::json;
