//! HTTP/2 (RFC 9113): multiplexed requests, with prior knowledge or negotiated in TLS.
//!
//! The `h2` crate does framing, header compression and flow control. It is written for an async
//! runtime; here it runs without one: its socket is memory ([`Pipe`]), and it is polled when bytes
//! arrive or a request is sent. Wakers ([`WakeList`]) name the streams to poll, so the cost of
//! a response does not depend on the number of streams.

mod pipe;
mod request_encoder;
mod stream;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use slab::Slab;

use crate::codec::{Codec, Completion, RequestId};
use crate::failure::Failure;
use crate::load_protocol::{LoadProtocol, ProtocolRow, ProtocolTarget, UrlScheme};
use crate::rendered_request::RenderedRequest;
use crate::target_url::TargetUrl;

use pipe::{Pipe, WakeList};
use request_encoder::RequestEncoder;
use stream::Http2Stream;

pub(super) use request_encoder::RequestKind;

/// Concurrent requests, if the server allows that many: the common default of servers, and the
/// limit of curl.
const STREAMS: usize = 100;

/// Maximum size of a response head.
const HEAD_MAX: u32 = 64 << 10;
/// Flow control windows. Received bytes are dropped at once, so the network limits a body, not the
/// window.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// How many cancelled requests are remembered, and for how long, to recognize late responses.
const CANCELLED_MAX: usize = 256;
const CANCELLED_FOR: Duration = Duration::from_secs(10);

/// The row of the table.
pub(super) const ROW: ProtocolRow = ProtocolRow {
    schemes: &[
        UrlScheme { name: "h2c", is_tls: false, default_port: Some(80), help: Some("h2c") },
        UrlScheme { name: "h2", is_tls: true, default_port: Some(443), help: Some("h2") },
    ],
    has_credentials: false,
    body: None,
    argument: None,
    open: |url| Ok(Http2Protocol::target(url, RequestKind::Http)),
};

/// Multiplexed requests of one kind.
#[derive(Clone, Debug)]
pub(super) struct Http2Protocol {
    /// Host and port as in the URL.
    authority: String,
    /// Whether TLS is used: it determines `:scheme`.
    is_tls: bool,
    kind: RequestKind,
}

impl Http2Protocol {
    pub(super) fn target(url: &TargetUrl<'_>, kind: RequestKind) -> ProtocolTarget {
        let (authority, is_tls) = (url.authority.to_owned(), url.scheme.is_tls);
        let protocol = Http2Protocol { authority, is_tls, kind };
        ProtocolTarget { path: url.path.clone(), ..ProtocolTarget::new(protocol, url.scheme) }
    }
}

impl LoadProtocol for Http2Protocol {
    fn codec(&self) -> Box<dyn Codec> {
        Box::new(Http2::new(&self.authority, self.is_tls, self.kind))
    }

    fn check(&self, request: &RenderedRequest) -> Result<(), String> {
        request.refuse_arguments()?;
        if self.kind == RequestKind::Grpc {
            protocol::grpc::check_path(&request.path)?;
        }
        let encoder = RequestEncoder::new(&self.authority, self.is_tls, self.kind);
        encoder.encode(request).map(drop)
    }

    fn alpn(&self) -> Option<&'static [u8]> {
        Some(b"h2")
    }
}

/// Codec of one connection.
pub(crate) struct Http2 {
    encoder: RequestEncoder,
    client: Option<Http2Client>,
    pipe: Pipe,
    wake_list: Arc<WakeList>,
    /// Waker of the connection; `wakers`: those of streams, by slot.
    waker: Waker,
    wakers: Vec<Waker>,
    streams: Slab<(RequestId, Http2Stream)>,
    /// Requests that could not be encoded. They fail with the next received bytes, which a ping
    /// provokes.
    refused: Vec<RequestId>,
    /// Concurrent streams, at most what the server allows.
    streams_now: usize,
    is_ending: bool,
    broken: Option<Failure>,
    /// Detail of the last failure.
    error_detail: Option<(Failure, String)>,
}

struct Http2Client {
    sender: SendRequest<Bytes>,
    connection: Connection<Pipe, Bytes>,
    ping: Option<h2::PingPong>,
}

impl Http2 {
    /// Codec for this host and port.
    pub(crate) fn new(authority: &str, is_tls: bool, kind: RequestKind) -> Http2 {
        let wake_list = Arc::new(WakeList::default());
        Http2 {
            encoder: RequestEncoder::new(authority, is_tls, kind),
            client: None,
            pipe: Pipe::default(),
            waker: wake_list.waker(None),
            wakers: Vec::new(),
            wake_list,
            streams: Slab::new(),
            refused: Vec::new(),
            streams_now: STREAMS,
            is_ending: false,
            broken: None,
            error_detail: None,
        }
    }

    /// Polls the connection and all woken streams until none has more to do.
    fn drive(&mut self, completions: &mut Vec<Completion>) {
        loop {
            self.poll();
            let mut is_done = true;
            while let Some(slot) = self.wake_list.pop() {
                is_done = false;
                let (Some((request_id, stream)), Some(waker)) =
                    (self.streams.get_mut(slot), self.wakers.get(slot))
                else {
                    // It was cancelled.
                    continue;
                };
                if let Poll::Ready(failure) = stream.poll(&mut Context::from_waker(waker)) {
                    completions.push(Completion { request_id: *request_id, failure });
                    self.error_detail =
                        failure.and_then(|failure| Some((failure, stream.error_detail()?)));
                    self.streams.remove(slot);
                }
            }
            if (is_done && !self.wake_list.is_connection_woken()) || self.broken.is_some() {
                break;
            }
        }
        self.refresh_limits();
    }

    /// Polls the connection.
    fn poll(&mut self) {
        self.wake_list.clear_connection_wake();
        let (Some(client), None) = (&mut self.client, self.broken) else { return };
        match Pin::new(&mut client.connection).poll(&mut Context::from_waker(&self.waker)) {
            Poll::Pending => {}
            Poll::Ready(result) => {
                // Another poll would panic.
                self.is_ending = true;
                let detail = result.as_ref().err().map(ToString::to_string);
                let broken = result.map_or_else(|error| failure(&error), |()| Failure::Closed);
                (self.broken, self.error_detail) =
                    (Some(broken), detail.map(|detail| (broken, detail)));
            }
        }
    }

    /// Reads the current limits of the server.
    fn refresh_limits(&mut self) {
        let Some(client) = &mut self.client else { return };
        self.streams_now = STREAMS.min(client.sender.current_max_send_streams());
        let ready = client.sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        // The server sent GOAWAY, or stream IDs are exhausted.
        self.is_ending |= matches!(ready, Poll::Ready(Err(_)));
    }

    /// Starts a stream. `None` if HTTP/2 cannot represent the request, or the connection does not
    /// accept it.
    fn start_request(&mut self, request: &RenderedRequest, request_id: RequestId) -> Option<()> {
        let client = self.client.as_mut()?;
        let (head, body, response_kind) = self.encoder.encode(request).ok()?;
        let sent = client.sender.send_request(head, body.is_empty());
        let (response, mut sender) = sent.ok()?;
        if !body.is_empty() {
            // h2 buffers what the windows do not allow yet.
            sender.send_data(body, true).ok()?;
        }
        let slot = self.streams.insert((request_id, Http2Stream::new(response, response_kind)));
        while self.wakers.len() <= slot {
            self.wakers.push(self.wake_list.waker(Some(self.wakers.len())));
        }
        // A stream wakes only after its first poll.
        self.wake_list.wake(slot);
        Some(())
    }
}

/// Classifies an error of a stream or connection.
fn failure(error: &h2::Error) -> Failure {
    match error {
        _ if error.is_io() => Failure::Closed,
        _ if error.is_library() => Failure::Malformed,
        _ => Failure::Reset,
    }
}

impl Codec for Http2 {
    fn open(&mut self, out: &mut Vec<u8>) {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEAD_MAX)
            .initial_max_send_streams(STREAMS)
            .max_concurrent_reset_streams(CANCELLED_MAX)
            .reset_stream_duration(CANCELLED_FOR)
            // Later responses are reset one by one; they do not close the connection.
            .max_local_error_reset_streams(None);
        let handshake = pin!(builder.handshake::<_, Bytes>(self.pipe.clone()));
        // The handshake waits only for its first bytes to be written, and memory accepts them.
        match handshake.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok((sender, mut connection))) => {
                let ping = connection.ping_pong();
                self.client = Some(Http2Client { sender, connection, ping });
            }
            _ => self.is_ending = true,
        }
        self.poll();
        self.pipe.take(out);
    }

    fn capacity(&self) -> usize {
        match self.is_ending || self.client.is_none() {
            true => 0,
            false => self.streams_now.saturating_sub(self.streams.len() + self.refused.len()),
        }
    }

    fn is_ending(&self) -> bool {
        self.is_ending
    }

    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>) {
        if self.start_request(request, request_id).is_none() {
            self.refused.push(request_id);
            let ping = self.client.as_mut().and_then(|client| client.ping.as_mut());
            // A ping in flight serves as well.
            let _ = ping.map(|ping| ping.send_ping(h2::Ping::opaque()));
        }
        self.poll();
        self.pipe.take(out);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        self.pipe.give(bytes);
        let refused = self.refused.drain(..);
        completions.extend(
            refused.map(|request_id| Completion { request_id, failure: Some(Failure::Malformed) }),
        );
        self.drive(completions);
        if let Some(ping) = self.client.as_mut().and_then(|client| client.ping.as_mut()) {
            // Allows the next ping.
            let _ = ping.poll_pong(&mut Context::from_waker(Waker::noop()));
        }
        self.pipe.take(out);
        match self.broken {
            // An orderly end, or an error.
            Some(failure) if failure != Failure::Closed || !self.streams.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }

    fn error_detail(&mut self, failure: Failure) -> Option<String> {
        self.error_detail.take_if(|one| one.0 == failure).map(|one| one.1)
    }

    fn cancel(&mut self, request_id: RequestId, out: &mut Vec<u8>) -> bool {
        self.refused.retain(|one| *one != request_id);
        let found = self.streams.iter().find(|(_, one)| one.0 == request_id).map(|(slot, _)| slot);
        if let Some(slot) = found {
            // Dropping a stream resets it.
            self.streams.remove(slot);
            self.poll();
            self.pipe.take(out);
        }
        self.broken.is_none()
    }
}

#[cfg(test)]
mod tests;
