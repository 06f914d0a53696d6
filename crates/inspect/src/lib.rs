//! What a person sees of the programs on this host: the metrics that they show in shared memory.
//!
//! [`find`] gets from what a person types to a process; [`reference_time`] says as of when its
//! values are; [`values`], [`operations`], `derived` and `value_change` say what they mean. Each
//! view of a command has its file: [`ls`], [`cat`], [`watch`], [`diff`], [`in_flight`],
//! [`post_mortem`], [`top`]. They return text and JSON; printing, waiting for signals and the
//! terminal belong to the binary. Nothing is asked of the processes: their files are read.
#![forbid(unsafe_code)]

pub mod cat;
mod derived;
pub mod diff;
mod error;
pub mod find;
pub mod in_flight;
mod listing;
pub mod ls;
pub mod metric_patterns;
pub mod operations;
pub mod post_mortem;
pub mod reference_time;
mod report;
pub mod top;
mod value_change;
pub mod values;
pub mod watch;

pub use error::{InspectError, Result};
