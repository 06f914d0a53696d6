//! Adapters for the `metrics` crate and `tracing` spans, recorded in shared memory.
//!
//! ```
//! facade::metrics::install()?;
//! facade::tracing::install()?;
//! # Ok::<(), facade::Error>(())
//! ```
//!
//! Where there is no shared memory, nothing is recorded and the program goes on; [`status`] says
//! why. Features `metrics` and `tracing` are on by default.
#![forbid(unsafe_code)]

mod error;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod lazy;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "tracing")]
pub mod tracing;

/// What the page shows compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/facade.md")]
mod page {}

pub use error::{Error, Result};
pub use shm::status;
