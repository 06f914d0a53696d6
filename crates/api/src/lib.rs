//! The HTTP face: ingest, query, the API of Prometheus, the live stream.
//!
//! [`Server::start`] listens; what is asked goes through limits and tokens to a handler, one file for each noun.
#![forbid(unsafe_code)]

mod accept;
mod access;
mod admission;
mod annotations;
mod audit;
mod batches;
mod blocking;
mod boards;
mod body;
mod connection;
mod context;
mod desk;
pub mod document;
mod folder;
mod gate;
mod grpc;
mod health;
mod ingest;
mod limits;
pub mod maxima;
mod memory;
mod metrics;
pub mod moment;
mod openapi;
mod page;
mod parameters;
mod problem;
mod prometheus;
mod proto;
mod query;
mod recent;
mod refusal;
mod server;
mod snapshots;
mod status;
mod stream;
mod tag;
mod texts;
mod token;
#[cfg(test)]
mod trial;
mod unread;

pub use context::Context;
pub use desk::{Desk, DeskSettings};
pub use limits::Limits;
pub use openapi::document as openapi_document;
pub use role::json;
pub use server::{Listen, PORT, Server, ServerError, Settings};
pub use token::{Proof, Scope, Token, TokenError, Tokens};
