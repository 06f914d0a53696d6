//! Metrics in shared memory: a program records with a few plain instructions, and any process on
//! the host reads whole distributions at any time, without a call, a lock or a socket, also after
//! the program has died.
//!
//! ```
//! shm::metrics! {
//!     /// Response time.
//!     static TOOK: shm::Histogram = "answer_duration", unit "ns";
//! }
//! TOOK.time(|| { /* answer */ });
//! ```
//!
//! Each process has a file on tmpfs, and each thread a lane of it, of which it is the only writer:
//! a counter is one addition. The file is created when the first metric is used; [`status`] returns
//! its path, or why there is none. `TOPDECK_SHM` sets another directory, or disables recording with
//! `off`. [`processes`] finds the files of a host, [`MetricsFileReader`] reads one.
//!
//! A forked process gets a file of its own with its first record. A process created by a bare
//! `clone` without `fork` writes to the file of its parent: start such a process with `exec`.
#![deny(unsafe_code)]

mod attached_process;
mod cells;
mod cleanup;
mod counter;
mod endian;
mod entry;
mod error;
pub mod ffi_handles;
pub mod files;
mod gauge;
mod heartbeat;
mod histogram;
pub mod hsperf;
mod identity;
mod in_flight;
mod lanes;
pub mod layout;
mod map;
mod metric;
mod metric_builder;
mod metric_snapshot;
mod metrics_dir;
pub mod mmv;
pub mod process_table;
mod processes;
mod reader;
mod registry;
mod source;
mod static_metric;
mod sync;
mod text;
mod thread_lane;
mod writer;

/// Types of metrics as read from a process.
pub mod snapshot {
    pub use crate::metric_snapshot::{
        HeartbeatSnapshot, InFlightSnapshot, MetricRole, MetricValue, NumericValue,
        OperationSnapshot, ProcessSeries,
    };
}

pub use attached_process::AttachedProcess;
pub use cleanup::{FileRetention, remove_expired};
pub use counter::{Counter, UpDownCounter};
pub use error::{Error, Result};
pub use gauge::{FloatGauge, Gauge};
pub use heartbeat::Heartbeat;
pub use histogram::{Histogram, Timer};
pub use identity::ProcessIdentity;
pub use in_flight::{InFlight, Operation, Tag};
pub use metric::MetricHandle;
pub use metric_builder::MetricBuilder;
pub use metric_snapshot::MetricRole;
pub use metrics_dir::{ENV_VARIABLE, metrics_dir};
pub use processes::{
    MetricsFile, MetricsFormat, ProcessState, list_metrics_files, metrics_file_at,
};
pub use reader::{MetricsFileReader, ProcessInfo};
pub use registry::SERIES_PER_NAME_MAX;
pub use static_metric::{LabelValues, LabelledMetrics, LinkTarget, StaticMetric};
pub use text::TextMetric;

/// Path of this process' file, which is created if needed; or why there is none.
pub fn status() -> Result<std::path::PathBuf> {
    Ok(thread_lane::open()?.path().to_owned())
}

/// The examples of the page compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/shm.md")]
mod page {}
