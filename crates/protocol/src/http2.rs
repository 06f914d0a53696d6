//! Observer of connections with HTTP/2, and of gRPC on them.
//!
//! Source: RFC 9113 and 7541, and "gRPC over HTTP2". A request ends with END_STREAM of the client,
//! its response with END_STREAM of the server; times are by stream. The outcome is that of
//! `grpc-status`, or of the status. Pushed responses are not observed. A connection may start as
//! HTTP/1.1 with `Upgrade: h2c`.
//!
//! On a connection that is captured from its middle, or after a gap of headers, entries of the
//! HPACK table are unknown until they are sent again: the path is empty, and an error is not
//! recognised, if they are in such an entry. After a gap of responses the requests in flight are
//! not measured.

mod client_frames;
mod frame;
mod header_block;
mod hpack;
mod huffman;
mod server_frames;
mod streams;
mod upgrade;

use crate::message_position::MessagePosition;
use crate::message_reader::MessageStreamReader;
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime, StatementSyntax,
};
use crate::tls_record::is_tls_record;
use client_frames::{ClientFrames, FrameState};
use hpack::HeaderName;
use server_frames::ServerFrames;
use streams::Streams;
use upgrade::{HeadParse, UpgradeHead};

/// Stream of the request that asks for the upgrade.
const UPGRADED_STREAM: u32 = 1;

/// The protocol in the table of protocols.
pub(crate) const HTTP2: ObservedProtocol = ObservedProtocol {
    name: "http2",
    default_ports: &[50051],
    observer: |start| Box::new(Http2Observer::new(start)),
};

/// Observer of one connection.
struct Http2Observer {
    requests: MessageStreamReader,
    responses: MessageStreamReader,
    client: FrameState,
    server: FrameState,
    streams: Streams,
    start: Start,
}

/// How far the start of the connection was read.
enum Start {
    /// No byte of the client has arrived.
    Nothing,
    /// The head of the request of HTTP/1.1, with the time of its first byte.
    UpgradeRequest(UpgradeHead, PacketTime),
    /// The head of the response.
    UpgradeResponse(UpgradeHead),
    Frames,
    Encrypted,
    /// It is a connection of HTTP/1.1.
    NotHttp2,
}

impl Http2Observer {
    fn new(start: CaptureStart) -> Http2Observer {
        let has_first_byte = start == CaptureStart::FirstByte;
        let mut client = FrameState::new();
        let mut server = FrameState::new();
        if !has_first_byte {
            client.forget_table();
            server.forget_table();
        }
        Http2Observer {
            requests: MessageStreamReader::new(FlowDirection::ToServer, has_first_byte),
            responses: MessageStreamReader::new(FlowDirection::ToClient, has_first_byte),
            client,
            server,
            streams: Streams::default(),
            start: if has_first_byte { Start::Nothing } else { Start::Frames },
        }
    }

    /// Reads the start of a connection, and returns the number of bytes that belong to it.
    fn read_start(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) -> usize {
        let is_request = direction == FlowDirection::ToServer;
        match &mut self.start {
            Start::Nothing if is_request && !bytes.is_empty() => {
                self.start = match bytes[0] {
                    b'P' if bytes.starts_with(&b"PRI"[..bytes.len().min(3)]) => Start::Frames,
                    byte if byte.is_ascii_uppercase() => {
                        Start::UpgradeRequest(UpgradeHead::default(), time)
                    }
                    20..=23 => Start::Encrypted,
                    _ => Start::NotHttp2,
                };
                self.read_start(direction, time, bytes, sink)
            }
            Start::UpgradeRequest(head, start) if is_request => match head.read(bytes) {
                HeadParse::Complete(taken) => {
                    let (start, size) = (*start, head.bytes().len());
                    let streams = &mut self.streams;
                    streams.request_frame(UPGRADED_STREAM, true, start, size as u64, sink);
                    if let Some((method, path)) = head.request_line() {
                        streams.request_header(UPGRADED_STREAM, HeaderName::Method, method);
                        streams.request_header(UPGRADED_STREAM, HeaderName::Path, path);
                    }
                    streams.request_headers_end(UPGRADED_STREAM);
                    streams.request_frame_end(UPGRADED_STREAM, time, true, sink);
                    self.start = Start::UpgradeResponse(UpgradeHead::default());
                    taken
                }
                HeadParse::Incomplete => bytes.len(),
                HeadParse::TooLong => self.stop(sink, bytes),
            },
            Start::UpgradeResponse(head) if !is_request => match head.read(bytes) {
                HeadParse::Complete(taken) if head.bytes().starts_with(b"HTTP/1.1 101 ") => {
                    self.start = Start::Frames;
                    taken
                }
                HeadParse::Incomplete => bytes.len(),
                HeadParse::Complete(_) | HeadParse::TooLong => self.stop(sink, bytes),
            },
            _ => 0,
        }
    }

    /// The connection is not one of HTTP/2.
    fn stop(&mut self, sink: &mut dyn OperationSink, bytes: &[u8]) -> usize {
        self.start = Start::NotHttp2;
        self.end(sink);
        bytes.len()
    }
}

impl ConnectionObserver for Http2Observer {
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        let taken = self.read_start(direction, time, bytes, sink);
        let bytes = &bytes[taken..];
        if matches!(self.start, Start::Encrypted | Start::NotHttp2) {
            return sink.unparsed(direction, bytes.len() as u64);
        }
        let streams = &mut self.streams;
        match direction {
            FlowDirection::ToServer => {
                let mut handler = ClientFrames { state: &mut self.client, streams };
                self.requests.read_packet(time, bytes, &mut handler, sink);
            }
            FlowDirection::ToClient => {
                let mut handler = ServerFrames { state: &mut self.server, streams };
                self.responses.read_packet(time, bytes, &mut handler, sink);
            }
        }
        let is_lost = self.requests.position() == MessagePosition::Lost;
        if is_lost && self.streams.is_empty() && is_tls_record(bytes) {
            self.start = Start::Encrypted;
        }
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        if !matches!(self.start, Start::Encrypted | Start::NotHttp2) {
            self.start = Start::Frames;
        }
        let streams = &mut self.streams;
        match direction {
            FlowDirection::ToServer => {
                let mut handler = ClientFrames { state: &mut self.client, streams };
                self.requests.skip(missing, &mut handler, sink);
            }
            FlowDirection::ToClient => {
                let mut handler = ServerFrames { state: &mut self.server, streams };
                self.responses.skip(missing, &mut handler, sink);
            }
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        let requests = self.streams.drain(0);
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::ConnectionEnd);
        }
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        let mut requests: Vec<_> = self.streams.requests().collect();
        requests.sort_unstable_by_key(|stream| stream.id);
        for request in requests {
            each(ObservedRequest {
                verb: request.verb,
                statement: &request.path,
                syntax: StatementSyntax::Path,
                is_wait: false,
                since: request.start,
            });
        }
    }

    fn state(&self) -> ObserverState {
        let is_lost = self.requests.position() == MessagePosition::Lost
            || self.responses.position() == MessagePosition::Lost;
        match self.start {
            Start::Encrypted => ObserverState::Encrypted,
            Start::NotHttp2 => ObserverState::Unmeasurable,
            _ if is_lost => ObserverState::Resynchronizing,
            _ => ObserverState::Synchronized,
        }
    }

    fn memory(&self) -> usize {
        let start = match &self.start {
            Start::UpgradeRequest(head, _) | Start::UpgradeResponse(head) => head.memory(),
            _ => 0,
        };
        start
            + self.requests.memory()
            + self.responses.memory()
            + self.client.memory()
            + self.server.memory()
            + self.streams.memory()
    }
}
