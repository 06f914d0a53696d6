//! HTTP server: ingest, query, Prometheus API, live stream.
//!
//! [`Server::start`] listens; a request passes limits and authentication to a handler. Each noun
//! has a file.
#![forbid(unsafe_code)]

mod acceptor;
mod access;
mod active_query;
mod annotations;
mod api_error;
mod audit;
mod batches;
mod blocking;
mod body;
mod bounded_buffer;
mod config_reload;
mod connection;
mod context;
mod damage;
mod damage_report;
mod dashboards;
mod error_response;
mod etag;
mod foreign_routes;
mod grpc;
mod health;
mod ingest;
mod install;
mod limits;
mod memory_budget;
mod metrics;
mod middleware;
mod named_dir;
mod offered_routes;
mod openapi;
mod overview_cache;
mod parameters;
mod prometheus;
mod protobuf_writer;
mod query;
mod query_admission;
mod query_service;
mod request_line;
mod response_buffers;
mod role_events;
mod role_routes;
mod route;
mod routing;
mod rule_replay;
mod series_changes;
mod series_set_changes;
mod server;
mod snapshots;
mod status;
mod stream;
#[cfg(test)]
mod test_server;
mod texts;
mod token;
mod traces;
mod ttl_cache;
mod unitless;
mod web_files;

pub use annotations::ANNOTATION_METRIC;
pub use context::Context;
pub use error_response::ErrorResponse;
pub use ingest::ingest_format::{IngestFormat, IngestFormatRow};
pub use ingest::ingest_request::{IngestOutcome, IngestRequest, json_response};
pub use limits::Limits;
pub use openapi::document as openapi_document;
pub use query_service::{QueryService, QueryServiceSettings};
pub use role::json;
pub use route::ApiRoute;
pub use server::{ListenSettings, Server, ServerError, Settings};
pub use token::{Credential, EnrollmentTerms, Scope, Token, TokenError, TokenFile};
