//! Scrapes and checks on an open schedule.
//!
//! A job begins at its intended times, `offset + k × interval`, whether the one before has ended or
//! not: what is slow is tried as often as what is quick, and its time counts from the intended
//! beginning. Jobs are spread over their interval by their names.
#![forbid(unsafe_code)]

mod attempt_log;
mod check;
mod error;
mod probe;
mod pull;
mod role;
mod schedule;
mod scrape;
mod settings;
mod staleness;

pub use crate::role::{CheckTable, PullRole, PullTables, ScrapeTable};
pub use error::{Error, Result};
pub use probe::{AnyProbe, Attempt, HttpProbe, Probe, Statuses, TcpProbe};
pub use pull::Pull;
pub use settings::{CheckJobSettings, ScrapeJobSettings, Settings};
