//! The server over real connections; tests read the stored data back.

mod auth;
mod client;
mod endpoints;
mod fixture;
mod grafana_requests;
mod grpc;
mod hostile;
mod http2;
mod ingest_format;
mod install;
#[path = "../../../../testdata/extensions/ingest_format/laps.rs"]
mod laps;
mod otel_defaults;
mod panics;
mod prometheus_names;
mod stopping;
mod traces;
mod whole_traces;

// The worked example `laps` imports them from `crate`, as a file of the crate `api`.
use api::{ApiRoute, ErrorResponse, IngestFormat, IngestOutcome, IngestRequest, json_response};
