//! Metrics in shared memory: a program counts with a few plain instructions, and anyone on the host reads whole distributions at
//! any moment, without a call, a lock or a socket, also after the program has died.
#![deny(unsafe_code)]

#[cfg(not(loom))]
mod folder;
#[cfg(not(loom))]
mod shown;
#[cfg(not(loom))]
pub mod table;

#[cfg(not(loom))]
pub use folder::folder;
#[cfg(not(loom))]
pub use shown::{Heartbeat, InFlight, Metric, Number, Operation, Role, Value};
