//! OTLP over gRPC, with tonic's client.

use std::net::SocketAddr;

use bytes::{Buf as _, BufMut as _};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

use crate::fixture::{RECEIVED, ServerFixture, TestDir, local_settings};

const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// `ExportMetricsServiceRequest` with one gauge and this many points.
pub(crate) fn request(name: &str, points: u8) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let point = |at: u8| {
        let time = 1_794_906_565_000_000_000_u64 + u64::from(at);
        [&[0x19][..], &time.to_le_bytes(), &[0x21], &1.5f64.to_le_bytes()].concat()
    };
    let points: Vec<u8> = (0..points).flat_map(|at| field(1, &point(at))).collect();
    let metric = [field(1, name.as_bytes()), field(5, &points)].concat();
    field(1, &field(2, &field(2, &metric)))
}

/// Messages as bytes.
#[derive(Clone, Copy, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> RawCodec {
        RawCodec
    }

    fn decoder(&mut self) -> RawCodec {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}

async fn call(
    address: SocketAddr,
    path: &'static str,
    encoding: Option<CompressionEncoding>,
    token: Option<&str>,
    message: Vec<u8>,
) -> Result<Vec<u8>, Status> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let service = tower::service_fn(move |request| {
        let mut sender = sender.clone();
        async move { sender.send_request(request).await }
    });
    let origin = format!("http://localhost:{}", address.port()).parse().unwrap();
    let mut client = Grpc::with_origin(service, origin);
    if let Some(encoding) = encoding {
        client = client.send_compressed(encoding);
    }
    client.ready().await.unwrap();
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let path = http::uri::PathAndQuery::from_static(path);
    let answer = client.unary(request, path, RawCodec).await.map(tonic::Response::into_inner);
    drop(client);
    connection.abort();
    answer
}

#[test]
fn tonic_client_works_with_each_encoding() {
    let it = ServerFixture::new();
    let encodings = [None, Some(CompressionEncoding::Gzip), Some(CompressionEncoding::Zstd)];
    for (encoding, name) in encodings.into_iter().zip(["plain", "gzip", "zstd"]) {
        let message = request(name, 3);
        let answer = it.runtime.block_on(call(it.address, EXPORT, encoding, None, message));
        assert_eq!(answer.unwrap(), [0; 0]);
        assert_eq!(it.count(name), 3);
    }
}

#[test]
fn spans_are_measured() {
    let it = ServerFixture::new();
    for (encoding, kind) in [(None, 2), (Some(CompressionEncoding::Gzip), 3)] {
        // The second one is a duplicate, the third has no id.
        let field = |number: u8, bytes: &[u8]| {
            let length = [bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8];
            [&[number << 3 | 2][..], &length, bytes].concat()
        };
        let span = |id: u8| {
            let times = [7 << 3 | 1_u8, 8 << 3 | 1].map(|tag| {
                let time = 1_794_906_565_000_000_000_u64 + u64::from(tag) * 1_000_000;
                [&[tag][..], &time.to_le_bytes()].concat()
            });
            let ids = [field(1, &[id; 16]), field(2, &[id; 8])].concat();
            field(2, &[ids, field(5, b"GET /"), vec![6 << 3, kind], times.concat()].concat())
        };
        let message = field(1, &field(2, &[span(1), span(1), span(0), span(2)].concat()));
        let call = call(it.address, TRACES, encoding, None, message);
        let answer = it.runtime.block_on(call).unwrap();
        // `partial_success`, of more than 127 bytes, with `rejected_spans`.
        assert_eq!((answer[0], &answer[3..5]), (0x0a, &[0x08, 2][..]));
        assert!(String::from_utf8_lossy(&answer).contains("another span with these ids"));
        let series = format!(
            "{{\"traces.span.metrics.duration\",\"span.kind\"=\"SPAN_KIND_{}\"}}",
            if kind == 2 { "SERVER" } else { "CLIENT" }
        );
        assert_eq!(it.count(&series), 2);
    }
}

#[test]
fn errors_are_grpc_statuses() {
    let dir = TestDir::new();
    let path = dir.0.join("tokens");
    let mut tokens = api::TokenFile::open(&path).unwrap();
    let ingest = tokens.add("in", &[api::Scope::Ingest], 1).unwrap();
    let read = tokens.add("out", &[api::Scope::Read], 1).unwrap();
    let mut settings = local_settings(None);
    settings.tokens = Some(path);
    settings.tokens_required = true;
    settings.limits.max_body_bytes = 200;
    let it = ServerFixture::with(settings);
    let (ingest, read) = (Some(ingest.as_str()), Some(read.as_str()));
    let check = |path, token, message: &[u8], code, part: &str| {
        let answer = it.runtime.block_on(call(it.address, path, None, token, message.to_vec()));
        let status = answer.unwrap_err();
        assert!(status.code() == code && status.message().contains(part), "{status:?}");
    };
    let message = request("seen", 1);
    check(EXPORT, None, &message, Code::Unauthenticated, "token with scope ingest");
    check(EXPORT, read, &message, Code::PermissionDenied, "token out lacks scope");
    check(EXPORT, ingest, b"\xff", Code::InvalidArgument, "invalid OTLP request");
    check(EXPORT, ingest, &[0; 201], Code::ResourceExhausted, "body size limit (200 bytes");
    let logs = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
    check(logs, ingest, &message, Code::Unimplemented, "topdeck accepts metrics and traces");
    check(TRACES, None, b"", Code::Unauthenticated, "token with scope ingest");
    check(TRACES, ingest, b"\xff", Code::InvalidArgument, "invalid OTLP request");
    check("/other.Service/Call", ingest, &message, Code::Unimplemented, "no route");
    assert_eq!(it.rows(RECEIVED).len(), 0);
    let answer = it.runtime.block_on(call(it.address, EXPORT, None, ingest, message));
    assert!(answer.is_ok() && it.count("seen") == 1, "{answer:?}");
}

#[test]
fn full_server_returns_retry_info() {
    let mut settings = local_settings(None);
    settings.limits.max_buffered_body_bytes = 10;
    let it = ServerFixture::with(settings);
    let answer = it.runtime.block_on(call(it.address, EXPORT, None, None, request("seen", 1)));
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let retry = b"\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x01";
    assert!(status.details().ends_with(retry), "{:?}", status.details());
    assert_eq!(it.rejected("max_buffered_body_bytes"), 1);
}
