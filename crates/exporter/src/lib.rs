//! Adapters for the `metrics` crate and `tracing` spans, recorded in shared memory.
//!
//! ```
//! exporter::metrics::install()?;
//! exporter::tracing::install()?;
//! # Ok::<(), exporter::Error>(())
//! ```
//!
//! Without shared memory nothing is recorded and the program continues; [`status`] returns the
//! reason. The features `metrics` and `tracing` are on by default.
#![forbid(unsafe_code)]

mod error;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod lazy;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "tracing")]
pub mod tracing;

/// The examples of the page compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/exporter.md")]
mod page {}

pub use error::{Error, Result};
pub use shm::status;
