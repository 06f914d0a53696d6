//! The role `postgres`: metrics of PostgreSQL servers, read by SQL over one connection each.
//!
//! A task per server samples its sessions on an open-loop schedule, ten times a second by default
//! (`activity`), and reads statistics views at the end of each interval (`collector`). Each view is
//! a row of a table with SQL per server version; a query that fails loses its own metrics only, and
//! its reason is stored and shown. The connection is read-only, holds no transaction between
//! queries, and cancels its queries by `statement_timeout`.
//!
//! docs/postgres.md lists all metrics; a test compares it with the code.
#![forbid(unsafe_code)]

mod activity;
mod blocking;
mod collector;
mod collectors;
mod connection_string;
mod diagnosis;
#[cfg(test)]
mod documentation;
mod metric;
mod password;
mod report;
mod rights;
mod role;
mod server_state;
mod server_task;
mod session;
mod settings;
mod statements;

pub use crate::role::PostgresRole;
pub use diagnosis::ServerDiagnosis;
