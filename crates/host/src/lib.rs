//! This host: processors, memory, disks and networks, and the whole distributions of block I/O, of
//! waits for a processor, and of the stalls of the machine itself; and what its programs record
//! into shared memory.
//!
//! One thread reads at the boundaries of the intake's intervals and appends one batch; a second one
//! measures hiccups; a third one collects what programs record ([`programs`]). Files of the kernel
//! stay open ([`procfs`]). Programs in the kernel ([`bpf`]) count in buckets that `hist` knows, so
//! that nothing is converted; where they cannot be loaded that is said ([`Host::notes`]) and
//! nothing is made up. A reading that is not taken comes again within the next, whole but for
//! gauges, which become a gap.
//!
//! Processes are no rows: they are read once a second and published as a table in shared memory for
//! all who want to see them ([`Processes`], `shm::table`).
//!
//! What is told is listed in docs/host.md, which a test compares with the code.
#![deny(unsafe_code)]

mod block_io;
mod bpf;
mod error;
mod hiccup;
mod host;
mod metric;
mod metrics;
mod process_list;
mod process_table;
mod processes;
mod procfs;
mod role;
mod run_queue;
mod settings;
mod shm_metrics;
mod source;
mod sources;
mod thread;

pub use crate::role::HostRole;
pub use error::{Error, Result};
pub use hiccup::{WakeUp, run_periodic};
pub use host::HostCollector;
pub use processes::ProcessCollector;
pub use settings::{HostTables, Settings};
