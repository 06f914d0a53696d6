//! Metrics in shared memory: a program counts with a few plain instructions, and anyone on the host reads whole distributions at
//! any moment, without a call, a lock or a socket, also after the program has died.
//!
//! ```
//! shm::metrics! {
//!     /// How long an answer took.
//!     static TOOK: shm::Histogram = "answer_duration", unit "ns";
//! }
//! TOOK.time(|| { /* answer */ });
//! ```
//!
//! Each process has a file in memory (tmpfs), and each thread a lane of it, in which it alone writes: a counter is one addition.
//! The file is made when the first metric is used; [`status`] says where it is, or why there is none. `TOPDECK_SHM` names another
//! folder, or says `off`. [`processes`] finds the files of a host, [`Reader`] reads one.
//!
//! A process that is forked off has a file of its own from its first record on. One made by a bare `clone` without `fork` writes
//! into its parent's: start such a process with `exec`.
#![deny(unsafe_code)]
// The model checker runs the protocols alone.
#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "only the protocols are built for loom")
)]

mod cells;
mod lanes;
pub mod layout;
mod sync;

#[cfg(not(loom))]
mod attached;
#[cfg(not(loom))]
mod counter;
#[cfg(not(loom))]
mod declared;
#[cfg(not(loom))]
mod description;
#[cfg(not(loom))]
mod entry;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod files;
#[cfg(not(loom))]
mod folder;
#[cfg(not(loom))]
mod foreign;
#[cfg(not(loom))]
mod gauge;
#[cfg(not(loom))]
mod heartbeat;
#[cfg(not(loom))]
mod here;
#[cfg(not(loom))]
mod histogram;
#[cfg(not(loom))]
pub mod hsperf;
#[cfg(not(loom))]
mod identity;
#[cfg(not(loom))]
mod in_flight;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod metric;
#[cfg(not(loom))]
pub mod mmv;
#[cfg(not(loom))]
mod processes;
#[cfg(not(loom))]
mod reader;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod shown;
#[cfg(not(loom))]
mod source;
#[cfg(not(loom))]
mod sweep;
#[cfg(not(loom))]
pub mod table;
#[cfg(not(loom))]
mod text;
#[cfg(not(loom))]
pub mod words;
#[cfg(not(loom))]
mod writer;

/// What of a process is read, and what it is called there.
#[cfg(not(loom))]
pub mod show {
    pub use crate::shown::{Heartbeat, InFlight, Metric, Number, Operation, Role, Value};
}

#[cfg(not(loom))]
pub use attached::Attached;
#[cfg(not(loom))]
pub use counter::{Counter, UpDown};
#[cfg(not(loom))]
pub use declared::{Declared, Label, Labelled, Static};
#[cfg(not(loom))]
pub use description::Description;
#[cfg(not(loom))]
pub use error::{Error, Result};
#[cfg(not(loom))]
pub use folder::{VARIABLE, folder};
#[cfg(not(loom))]
pub use gauge::{FloatGauge, Gauge};
#[cfg(not(loom))]
pub use heartbeat::Heartbeat;
#[cfg(not(loom))]
pub use histogram::{Histogram, Timer};
#[cfg(not(loom))]
pub use identity::Identity;
#[cfg(not(loom))]
pub use in_flight::{InFlight, Operation, Tag};
#[cfg(not(loom))]
pub use metric::Metric;
#[cfg(not(loom))]
pub use processes::{Fate, Format, Found, found_at, processes};
#[cfg(not(loom))]
pub use reader::{Process, Reader};
#[cfg(not(loom))]
pub use registry::SERIES_OF_A_NAME_MAX;
#[cfg(not(loom))]
pub use shown::Role;
#[cfg(not(loom))]
pub use sweep::{Limits, sweep};
#[cfg(not(loom))]
pub use text::Text;

/// Where this process's file is, which is made if need be; or why there is none.
#[cfg(not(loom))]
pub fn status() -> Result<std::path::PathBuf> {
    Ok(here::open()?.path().to_owned())
}

/// What the page shows compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/shm.md")]
mod page {}
