//! The HTTP face: ingest, query, the API of Prometheus, the live stream.
//!
//! [`Server::start`] listens; what is asked goes through limits and tokens to a handler, one file for each noun.
#![forbid(unsafe_code)]

mod access;
mod context;
mod problem;
mod token;

pub use context::Context;
pub use problem::Problem;
pub use token::{Proof, Scope, Token, TokenError, Tokens};
