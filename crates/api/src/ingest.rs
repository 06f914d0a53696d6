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

/// Numbers of the ways to make keys (see [`intake::Intake::writer`]).
const WAY_PLACED: u8 = 1;
const WAY_REMOTE_WRITE_1: u8 = 2;
const WAY_REMOTE_WRITE_2: u8 = 3;
const WAY_OTLP: u8 = 4;
/// Beyond those that other crates use.
const WAY_INFLUX: u8 = 9;

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
