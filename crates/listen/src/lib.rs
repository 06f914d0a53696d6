//! Listeners for StatsD, Graphite and collectd over UDP, TCP and Unix sockets. A format is a file
//! and a row in `formats.rs`.
//!
//! ```text
//! socket ─ thread ─ LineFormat ─ LineSink ─ MetricAggregator ─┐
//! socket ─ thread ─ …                       MetricAggregator ─┼─ IntervalFlusher ─ intake
//! all connections ─ one thread ─ …          MetricAggregator ─┘  each interval
//! ```
//!
//! An aggregator aggregates the values of an interval: times and distributions to histograms,
//! counters to sums, gauges to their last value, sets to the number of distinct members. The
//! flusher merges the aggregators' intervals and writes them to the intake. While the intake is
//! full, intervals are retained, and merged if there are too many. When memory is full too,
//! connections get backpressure and datagrams are dropped. Every loss is counted with a reason and
//! leaves a gap.
//!
//! The senders get no response, so nothing waits for durability: a crash of the machine loses the
//! interval in memory and the unsynced end of the journal.
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
pub use formats::{Collectd, Graphite, Statsd};
pub use line_format::{AnyLineFormat, LineFormat, LineFormatRow, SocketAddresses};
pub use line_sink::{LineSink, LineValue};
pub use listen_address::ListenAddress;
pub use listener::Listener;
pub use series_aggregate::AggregateKind;
pub use settings::{Limits, Settings};
