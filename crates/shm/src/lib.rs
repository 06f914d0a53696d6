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

mod attached;
mod cells;
mod counter;
mod declared;
mod description;
mod entry;
mod error;
pub mod files;
mod folder;
mod foreign;
mod gauge;
mod heartbeat;
mod here;
mod histogram;
pub mod hsperf;
mod identity;
mod in_flight;
mod lanes;
pub mod layout;
mod map;
mod metric;
pub mod mmv;
mod processes;
mod reader;
mod registry;
mod shown;
mod source;
mod sweep;
mod sync;
pub mod table;
mod text;
pub mod words;
mod writer;

/// What of a process is read, and what it is called there.
pub mod show {
    pub use crate::shown::{Heartbeat, InFlight, Metric, Number, Operation, Role, Value};
}

pub use attached::Attached;
pub use counter::{Counter, UpDown};
pub use declared::{Declared, Label, Labelled, Static};
pub use description::Description;
pub use error::{Error, Result};
pub use folder::{VARIABLE, folder};
pub use gauge::{FloatGauge, Gauge};
pub use heartbeat::Heartbeat;
pub use histogram::{Histogram, Timer};
pub use identity::Identity;
pub use in_flight::{InFlight, Operation, Tag};
pub use metric::Metric;
pub use processes::{Fate, Format, Found, found_at, processes};
pub use reader::{Process, Reader};
pub use registry::SERIES_OF_A_NAME_MAX;
pub use shown::Role;
pub use sweep::{Limits, sweep};
pub use text::Text;

/// Where this process's file is, which is made if need be; or why there is none.
pub fn status() -> Result<std::path::PathBuf> {
    Ok(here::open()?.path().to_owned())
}

/// What the page shows compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/shm.md")]
mod page {}
