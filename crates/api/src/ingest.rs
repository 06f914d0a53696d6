//! Ingest over HTTP: the table of formats, one file for each.
//!
//! Their common part is in `ingest_request.rs`: the body is decompressed and decoded outside the
//! runtime, the result is one batch, and the sender is acknowledged when the batch is durable.

mod decompress;
mod hlog;
mod httptrap;
mod import;
mod influx;
pub(crate) mod ingest_format;
pub(crate) mod ingest_request;
mod otlp;
mod otlp_traces;
mod record;
mod remote_write;
mod zipkin;

use axum::Router;

use crate::access::require_scope;
use crate::context::Context;
use crate::ingest::ingest_format::IngestFormatRow;
use crate::token::Scope;

pub(crate) use decompress::decompress_zstd;

/// All formats: a format is added by its file and its row.
pub(crate) const FORMATS: &[IngestFormatRow] = &[
    IngestFormatRow::of::<record::NumbersFormat>(),
    IngestFormatRow::of::<httptrap::HttpTrapFormat>(),
    IngestFormatRow::of::<hlog::HlogFormat>(),
    IngestFormatRow::of::<otlp::OtlpFormat>(),
    IngestFormatRow::of::<otlp_traces::TracesFormat>(),
    IngestFormatRow::of::<zipkin::ZipkinFormat>(),
    IngestFormatRow::of::<remote_write::RemoteWriteFormat>(),
    IngestFormatRow::of::<influx::InfluxFormat>(),
    IngestFormatRow::of::<import::ImportFormat>(),
];

/// Handlers of all formats, including those added to the table.
pub(crate) fn routes(added: &[IngestFormatRow]) -> Router<Context> {
    let all = FORMATS.iter().chain(added);
    let router = all.map(IngestFormatRow::router).fold(Router::new(), Router::merge);
    require_scope(router, Scope::Ingest)
}
