//! Host metrics: CPU, memory, disks, networks, block I/O latency, run queue latency, hiccups, and
//! the metrics that programs record into shared memory.
//!
//! One thread reads all sources at the boundaries of the intake's interval and appends one batch. A
//! second thread measures hiccups. A third thread collects shared-memory metrics (`shm_metrics`).
//! Files of /proc stay open (`procfs`). BPF programs (crate `bpf`) count in buckets of `hist`'s
//! grid, so counts need no conversion. If a program cannot be loaded, the reason is reported
//! ([`HostCollector::warnings`]) and no distribution is made up. Counters and distributions of a
//! scrape that the journal does not accept are part of the next scrape; gauges become a gap.
//!
//! Processes are not stored as series: they are read once a second and published as a table in
//! shared memory for any number of viewers ([`ProcessCollector`], `shm::process_table`).
//!
//! docs/host.md lists all metrics; a test compares it with the code.
#![forbid(unsafe_code)]

mod block_io;
mod bpf_grid;
#[cfg(test)]
mod bpf_interpreter;
mod cgroup_io;
mod cgroup_owner;
mod cgroups;
mod clock_cost;
mod crashes;
mod error;
#[cfg(test)]
#[path = "../../../testdata/extensions/host_source/entropy.rs"]
mod example;
mod hiccup;
mod host;
mod metric;
mod metrics;
pub mod overhead;
mod process_list;
mod process_table;
mod processes;
mod procfs;
mod role;
mod run_queue;
mod settings;
mod shm_metrics;
mod source;
mod source_table;
mod sources;
pub mod stalls;
pub mod table_readers;
mod thread;

pub use crate::role::HostRole;
pub use clock_cost::clock_table;
pub use error::{Error, Result};
pub use hiccup::{WakeUp, run_periodic};
pub use host::HostCollector;
pub use processes::ProcessCollector;
pub use settings::{HostTable, Settings};
