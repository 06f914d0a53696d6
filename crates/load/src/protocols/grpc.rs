//! Unary gRPC calls, multiplexed on HTTP/2. The path of a request is `/package.Service/Method`, its
//! body the message.

use crate::load_protocol::{ProtocolRow, UrlScheme};
use crate::protocols::http2::{Http2Protocol, RequestKind};

/// The row of the table.
pub(super) const ROW: ProtocolRow = ProtocolRow {
    schemes: &[
        UrlScheme { name: "grpc", is_tls: false, default_port: Some(80), help: Some("grpc") },
        UrlScheme { name: "grpcs", is_tls: true, default_port: Some(443), help: Some("grpcs") },
    ],
    has_credentials: false,
    body: None,
    argument: None,
    open: |url| Ok(Http2Protocol::target(url, RequestKind::Grpc)),
};
