//! Scrapes and checks on an open-loop schedule.
//!
//! An attempt starts at each scheduled time, `offset + k × interval`, whether or not the previous
//! one has ended: slow targets are probed as often as fast ones, and durations are measured from
//! the scheduled start. The hash of a job's name spreads the jobs over their interval.
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
mod target_state;

pub use crate::check::CheckTrial;
pub use crate::role::{CheckTable, PullRole, PullTables, ScrapeTable};
pub use error::{Error, Result};
pub use probe::{
    AnyProbe, Attempt, CommandProbe, DnsProbe, DnsTransport, GrpcProbe, HttpProbe, JsonProbe,
    NtpProbe, PingProbe, Probe, RecordType, SnmpProbe, SqlProbe, StartTls, Statuses, TcpProbe,
    WebsocketProbe,
};
pub use pull::Pull;
pub use settings::{CheckJobSettings, ScrapeJobSettings, Settings};
