//! Listeners for StatsD and Graphite over UDP, TCP and Unix sockets. A format is a file and a row
//! in `formats.rs`.
//!
//! ```text
//! socket ─ thread ─ LineFormat ─ LineSink ─ MetricAggregator ─┐
//! socket ─ thread ─ …                       MetricAggregator ─┼─ IntervalFlusher ─ intake
//! all connections ─ one thread ─ …          MetricAggregator ─┘  each interval
//! ```
//! An aggregator adds up what came in an interval: times and distributions become histograms,
//! counters sums, gauges their last value, sets the number of their members. The flusher merges the
//! aggregators' intervals and hands them to the intake; while that is full, intervals are kept, and
//! merged when there are too many. When memory is full too, connections are not read, so that their
//! senders wait, and datagrams are lost. Whatever is lost is counted with a reason and leaves a
//! gap.
//!
//! None of these senders is told anything, so nothing waits for the disk: what a crash of the
//! machine loses is the interval in memory, and the journal's last moments.
#![forbid(unsafe_code)]

mod datagram_reader;
mod drop_counts;
mod error;
mod flush_interval;
mod formats;
mod interval_flusher;
mod line_format;
mod line_sink;
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

pub use crate::role::{ListenRole, ListenTables};
pub use error::{Error, Result};
pub use formats::{Graphite, Statsd};
pub use line_format::{AnyLineFormat, LineFormat, LineFormatRow, SocketAddresses};
pub use line_sink::{LineSink, LineValue};
pub use listen_address::ListenAddress;
pub use listener::Listener;
pub use series_aggregate::AggregateKind;
pub use settings::{Limits, Settings};
