//! The server, asked over real connections; what it took is read back from the store.

mod auth;
mod client;
mod endpoints;
mod fixture;
mod grpc;
mod hostile;
mod http2;
mod ingest_format;
mod panics;
mod stopping;
