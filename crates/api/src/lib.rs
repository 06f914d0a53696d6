//! The HTTP face: ingest, query, the API of Prometheus, the live stream.
//!
//! [`Server::start`] listens; what is asked goes through limits and tokens to a handler, one file for each noun.
#![forbid(unsafe_code)]

mod annotations;
mod audit;
mod context;
mod desk;
pub mod document;
mod health;
pub mod json;
pub mod maxima;
mod metrics;
mod moment;
mod openapi;
mod parameters;
mod problem;
mod prometheus;
mod query;
mod refusal;
mod snapshots;
mod status;
mod stream;
#[cfg(test)]
mod trial;

pub use audit::document as audit;
pub use context::Context;
pub use desk::{Desk, DeskSettings};
pub use openapi::{Scope as RouteScope, document as openapi, routes};
pub use problem::Problem;
