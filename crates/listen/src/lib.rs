//! Listeners for StatsD and Graphite over UDP, TCP and Unix sockets.
//!
//! ```text
//! socket ─ thread ─ collect::{statsd, graphite} ─ Collector ─┐
//! socket ─ thread ─ …                              Collector ─┼─ Flusher ─ intake
//! all connections ─ one thread ─ …                 Collector ─┘   each interval
//! ```
//! A collector adds up what came in an interval: times and distributions become histograms, counters sums, gauges
//! their last value, sets the number of their members. The flusher merges the collectors' intervals and hands them
//! to the intake; while that is full, intervals are kept, and merged when there are too many. When memory is full too,
//! connections are not read, so that their senders wait, and datagrams are lost. Whatever is lost is counted with a
//! reason and leaves a gap.
//!
//! None of these senders is told anything, so nothing waits for the disk: what a crash of the machine loses is
//! the interval in memory, and the journal's last moments.
#![forbid(unsafe_code)]

mod datagram_reader;
mod drop_counts;
mod error;
mod flush_interval;
mod interval_flusher;
mod listen_address;
mod listener;
mod metric_aggregator;
mod recent_errors;
mod role;
mod rows;
mod sampling_rng;
mod series_aggregate;
mod settings;
mod socket_drops;
mod socket_file;
mod stream_reader;

pub use crate::role::{GraphiteTable, ListenRole, ListenTables, StatsdTable};
pub use error::{Error, Result};
pub use listen_address::ListenAddress;
pub use listener::Listener;
pub use settings::{Limits, LineProtocol, Settings};
