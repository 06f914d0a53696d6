//! Measurements come in: an endpoint for each format, one file each.
//!
//! What they share is in [`posted`]: the body is unpacked and decoded beside the runtime, what was decoded is one batch,
//! and the sender is told when the batch is durable.

mod hlog;
mod httptrap;
mod import;
mod influx;
mod otlp;
mod posted;
mod record;
mod remote_write;
mod unpack;

use axum::Router;

use crate::access::scoped;
use crate::context::Context;
use crate::token::Scope;

pub(crate) fn routes() -> Router<Context> {
    let router = record::routes()
        .merge(httptrap::routes())
        .merge(hlog::routes())
        .merge(import::routes())
        .merge(influx::routes())
        .merge(otlp::routes())
        .merge(remote_write::routes());
    scoped(router, Scope::Ingest)
}
