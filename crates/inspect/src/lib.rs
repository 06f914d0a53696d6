//! Views of the programs on this host, from their metrics in shared memory and from their packets.
//!
//! [`find`] resolves a user's argument to a process; [`reference_time`] determines the time of its
//! values; [`values`], [`operations`], `derived` and `value_change` interpret them. Each command
//! has its file: [`ls`], [`cat`], [`watch`], [`diff`], [`in_flight`], [`post_mortem`], [`top`].
//! They return text and JSON; printing, signals and the terminal belong to the binary. Processes
//! are not contacted: only their files are read. [`capture`] is the report of their packets.
#![forbid(unsafe_code)]

pub mod capture;
pub mod cat;
mod derived;
pub mod diff;
mod error;
pub mod find;
pub mod in_flight;
pub mod last_state;
mod listing;
pub mod ls;
pub mod metric_patterns;
mod observed_requests;
pub mod operations;
pub mod post_mortem;
pub mod reference_time;
mod report;
pub mod top;
mod value_change;
pub mod values;
pub mod watch;

pub use error::{InspectError, Result};
pub use observed_requests::ObservedRequests;
