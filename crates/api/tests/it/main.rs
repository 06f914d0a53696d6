//! The server over real connections; tests read the stored data back.

mod auth;
mod client;
mod endpoints;
mod fixture;
mod grpc;
mod hostile;
mod http2;
mod ingest_format;
mod otel_defaults;
mod panics;
mod stopping;
