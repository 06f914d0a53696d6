//! Ingest endpoints, one file per format.
//!
//! What they share is in [`posted`]: the body is unpacked and decoded beside the runtime, what was decoded is one batch,
//! and the sender is told when the batch is durable.

mod decompress;
mod hlog;
mod httptrap;
mod import;
mod influx;
mod ingest_request;
mod otlp;
mod record;
mod remote_write;

use axum::Router;

use crate::access::require_scope;
use crate::context::Context;
use crate::openapi::{Parameter, Route};
use crate::token::Scope;

pub(crate) use decompress::unpack_zstd;
pub(crate) use ingest_request::{earlier_producer, scoped_producer};

/// What can be sent, for the table of routes.
pub(crate) const ROUTES: [&[Route]; 7] = [
    record::ROUTES,
    httptrap::ROUTES,
    hlog::ROUTES,
    otlp::ROUTES,
    remote_write::ROUTES,
    influx::ROUTES,
    import::ROUTES,
];

const METRIC: Parameter = Parameter::text("metric", "metric name");
const UNIT: Parameter = Parameter::text("unit", "unit of the values, such as ms");
const START: Parameter =
    Parameter::text("start", "start of a log with relative times, in seconds since 1970");
/// Stands for all parameters that begin as it does.
const LABELS: Parameter =
    Parameter::text("label.NAME", "label added to all series, such as label.host=web-1");

pub(crate) fn routes() -> Router<Context> {
    let router = record::routes()
        .merge(httptrap::routes())
        .merge(hlog::routes())
        .merge(import::routes())
        .merge(influx::routes())
        .merge(otlp::routes())
        .merge(remote_write::routes());
    require_scope(router, Scope::Ingest)
}
