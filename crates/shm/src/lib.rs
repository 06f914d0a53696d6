//! Metrics in shared memory: a program counts with a few plain instructions, and anyone on the host reads whole distributions at
//! any moment, without a call, a lock or a socket, also after the program has died.
#![deny(unsafe_code)]

#[cfg(not(loom))]
mod foreign;
#[cfg(not(loom))]
pub mod files;
#[cfg(not(loom))]
pub mod hsperf;
#[cfg(not(loom))]
pub mod mmv;
#[cfg(not(loom))]
mod shown;

#[cfg(not(loom))]
pub use shown::{Heartbeat, InFlight, Metric, Number, Operation, Role, Value};
