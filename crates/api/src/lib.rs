//! The HTTP face: ingest, query, the API of Prometheus, the live stream.
//!
//! [`Server::start`] listens; what is asked goes through limits and tokens to a handler, one file for each noun.
#![forbid(unsafe_code)]

mod batches;
mod context;
mod problem;

pub use context::Context;
pub use problem::Problem;
