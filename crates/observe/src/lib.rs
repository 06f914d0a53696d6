//! Role `wire`: latencies of other programs' operations, from the packets of this host, as stored
//! metrics.
//!
//! One or more threads read the packets of all interfaces (crate `wire`), and give up all
//! capabilities before the first one. At each boundary of the intake's interval it appends the
//! distributions of the interval, per service and statement, and counters of what was measured and
//! what was not. Operations belong to the interval in which the last packet of their response was
//! captured, by the time of the packet. A distribution that the journal does not accept is
//! merged into the next sample; nothing is lost at a stop.
//!
//! Statements with series of their own are bounded ([`series_slots`]); all others are one
//! series. docs/wire.md lists all metrics; a test compares it with the code.
#![forbid(unsafe_code)]

mod capture_rights;
mod capture_status;
mod capture_thread;
mod capture_worker;
mod end_queue;
mod end_receiver;
mod end_reporter;
mod end_series;
mod end_settings;
mod error;
mod interval_clock;
mod interval_composer;
mod interval_merger;
mod interval_observer;
mod interval_queue;
mod interval_writer;
mod local_addresses;
mod metrics;
mod operation_series;
mod packet_source;
mod pending_samples;
mod port_discovery;
mod role;
mod series_slots;
mod service_record;
mod settings;
mod shard_interval;
mod supervised_spawn;
mod wait_proposals;

pub use crate::role::WireRole;
pub use capture_rights::confine_capture_rights;
pub use capture_thread::WireCapture;
pub use error::Error;
pub use packet_source::PacketSource;
pub use settings::{CaptureSettings, WireTables};
