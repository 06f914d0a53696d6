//! The HTTP face: ingest, query, the API of Prometheus, the live stream.
//!
//! [`Server::start`] listens; what is asked goes through limits and tokens to a handler, one file for each noun.
#![forbid(unsafe_code)]

mod accept;
mod access;
mod batches;
mod body;
mod connection;
mod context;
mod gate;
mod grpc;
mod ingest;
mod limits;
mod problem;
mod proto;
mod server;
mod token;

pub use context::Context;
pub use limits::Limits;
pub use problem::Problem;
pub use server::{Listen, PORT, Server, ServerError, Settings};
pub use token::{Proof, Scope, Token, TokenError, Tokens};
