//! Protocols of `topdeck load`, one file each.
//!
//! A protocol is a file of `protocols/` with a [`ProtocolRow`], and a line of [`PROTOCOLS`]. URL
//! schemes, `--help`, errors and request checks use the row.

mod echo;
mod grpc;
mod http1;
mod http2;
mod postgres;
mod redis;

#[cfg(test)]
mod tests;

use crate::load_protocol::ProtocolRow;

// The calibration measures with these two.
pub(crate) use echo::EchoProtocol;
pub(crate) use http1::Http1Protocol;

/// All protocols.
pub static PROTOCOLS: &[ProtocolRow] = &[
    // A comment: rustfmt then writes one row per line.
    http1::ROW,
    http2::ROW,
    grpc::ROW,
    echo::ROW,
    postgres::ROW,
    redis::ROW,
];
