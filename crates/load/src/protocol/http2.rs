//! HTTP/2 (RFC 9113): many requests at once on a connection, with prior knowledge or agreed on in TLS.
//!
//! Frames, header compression and flow control are those of the `h2` crate. It is written for a runtime; here it is driven without one:
//! its socket is memory ([`Pipe`]), and it is polled when bytes come or a request is sent. Who is to be polled next it says through
//! wakers ([`Wakes`]), so that one answer costs the same beside 99 others under way as alone.

mod pipe;
mod request;
mod stream;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use slab::Slab;

use crate::codec::{Codec, Ended, Ticket};
use crate::failure::Failure;
use crate::request::Rendered;

use pipe::{Pipe, Wakes};
use request::Writer;
use stream::Stream;

pub(crate) use request::Kind;

/// Requests at once, if the server allows more: what most servers allow, and curl takes.
const STREAMS: usize = 100;

/// Larger heads are no heads.
const HEAD_MAX: u32 = 64 << 10;
/// How much may be on its way to us: what comes is dropped at once, so that the network limits a body and not we.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// For how many abandoned requests, and how long, an answer that comes after all is known as such.
const ABANDONED_MAX: usize = 256;
const ABANDONED_FOR: Duration = Duration::from_secs(10);

/// Why a request to this server cannot be said.
pub(super) fn check(
    authority: &str,
    is_tls: bool,
    kind: Kind,
    request: &Rendered,
) -> Result<(), String> {
    Writer::new(authority, is_tls, kind).write(request).map(drop)
}

/// One connection.
pub(crate) struct Http2 {
    writer: Writer,
    client: Option<Client>,
    pipe: Pipe,
    wakes: Arc<Wakes>,
    /// Of the connection, and of streams by their places.
    waker: Waker,
    wakers: Vec<Waker>,
    streams: Slab<(Ticket, Stream)>,
    /// Whose requests could not be written. They fail with the next that comes, and a ping makes something come.
    refused: Vec<Ticket>,
    /// At most what the server allows.
    streams_now: usize,
    is_ending: bool,
    broken: Option<Failure>,
    /// What is known of what failed last.
    words: Option<(Failure, String)>,
}

struct Client {
    sender: SendRequest<Bytes>,
    connection: Connection<Pipe, Bytes>,
    ping: Option<h2::PingPong>,
}

impl Http2 {
    /// A connection to the server of this name, with the port if it is not the usual one.
    pub(crate) fn new(authority: &str, is_tls: bool, kind: Kind) -> Http2 {
        let wakes = Arc::new(Wakes::default());
        Http2 {
            writer: Writer::new(authority, is_tls, kind),
            client: None,
            pipe: Pipe::default(),
            waker: wakes.waker(None),
            wakers: Vec::new(),
            wakes,
            streams: Slab::new(),
            refused: Vec::new(),
            streams_now: STREAMS,
            is_ending: false,
            broken: None,
            words: None,
        }
    }

    /// Lets the connection read what came and write what is to be said, and streams take what is theirs, until nobody has more to do.
    fn drive(&mut self, ended: &mut Vec<Ended>) {
        loop {
            self.poll();
            let mut is_done = true;
            while let Some(place) = self.wakes.next() {
                is_done = false;
                let (Some((ticket, stream)), Some(waker)) =
                    (self.streams.get_mut(place), self.wakers.get(place))
                else {
                    // It was abandoned meanwhile.
                    continue;
                };
                if let Poll::Ready(failure) = stream.poll(&mut Context::from_waker(waker)) {
                    ended.push(Ended { ticket: *ticket, failure });
                    self.words = failure.and_then(|failure| Some((failure, stream.words()?)));
                    self.streams.remove(place);
                }
            }
            if (is_done && !self.wakes.is_connection_woken()) || self.broken.is_some() {
                break;
            }
        }
        self.look();
    }

    /// Lets the connection read and write.
    fn poll(&mut self) {
        self.wakes.connection_is_polled();
        let (Some(client), None) = (&mut self.client, self.broken) else { return };
        match Pin::new(&mut client.connection).poll(&mut Context::from_waker(&self.waker)) {
            Poll::Pending => {}
            Poll::Ready(result) => {
                // Polled again, it would panic.
                self.is_ending = true;
                let words = result.as_ref().err().map(ToString::to_string);
                let broken = result.map_or_else(|error| failure(&error), |()| Failure::Closed);
                (self.broken, self.words) = (Some(broken), words.map(|words| (broken, words)));
            }
        }
    }

    /// What the server allows now.
    fn look(&mut self) {
        let Some(client) = &mut self.client else { return };
        self.streams_now = STREAMS.min(client.sender.current_max_send_streams());
        let ready = client.sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        // It has said that it takes no more (GOAWAY), or there are no more numbers for streams.
        self.is_ending |= matches!(ready, Poll::Ready(Err(_)));
    }

    /// `None` if the request is none of HTTP/2.
    fn ask(&mut self, request: &Rendered, ticket: Ticket) -> Option<()> {
        let client = self.client.as_mut()?;
        let (head, body, answer) = self.writer.write(request).ok()?;
        let sent = client.sender.send_request(head, body.is_empty());
        let (response, mut sender) = sent.ok()?;
        if !body.is_empty() {
            // What the windows do not allow yet, it keeps.
            sender.send_data(body, true).ok()?;
        }
        let place = self.streams.insert((ticket, Stream::new(response, answer)));
        while self.wakers.len() <= place {
            self.wakers.push(self.wakes.waker(Some(self.wakers.len())));
        }
        // Only once it was polled it wakes us.
        self.wakes.wake(place);
        Some(())
    }
}

/// Why a request or a connection came to an end.
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
            .max_concurrent_reset_streams(ABANDONED_MAX)
            .reset_stream_duration(ABANDONED_FOR)
            // Answers that come later than that are refused one by one; they do not end the connection.
            .max_local_error_reset_streams(None);
        let handshake = pin!(builder.handshake::<_, Bytes>(self.pipe.clone()));
        // It waits for nothing but that its first bytes are written, and memory takes them.
        match handshake.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok((sender, mut connection))) => {
                let ping = connection.ping_pong();
                self.client = Some(Client { sender, connection, ping });
            }
            _ => self.is_ending = true,
        }
        self.poll();
        self.pipe.take(out);
    }

    fn room(&self) -> usize {
        match self.is_ending || self.client.is_none() {
            true => 0,
            false => self.streams_now.saturating_sub(self.streams.len() + self.refused.len()),
        }
    }

    fn is_ending(&self) -> bool {
        self.is_ending
    }

    fn send(&mut self, request: &Rendered, ticket: Ticket, out: &mut Vec<u8>) {
        if self.ask(request, ticket).is_none() {
            self.refused.push(ticket);
            let ping = self.client.as_mut().and_then(|client| client.ping.as_mut());
            // One that is under way serves as well.
            let _ = ping.map(|ping| ping.send_ping(h2::Ping::opaque()));
        }
        self.poll();
        self.pipe.take(out);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Failure> {
        self.pipe.give(bytes);
        let refused = self.refused.drain(..);
        ended.extend(refused.map(|ticket| Ended { ticket, failure: Some(Failure::Malformed) }));
        self.drive(ended);
        if let Some(ping) = self.client.as_mut().and_then(|client| client.ping.as_mut()) {
            // So that another may be sent.
            let _ = ping.poll_pong(&mut Context::from_waker(Waker::noop()));
        }
        self.pipe.take(out);
        match self.broken {
            // It ended as it should, or something is wrong with it.
            Some(failure) if failure != Failure::Closed || !self.streams.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }

    fn words(&mut self, failure: Failure) -> Option<String> {
        self.words.take_if(|one| one.0 == failure).map(|one| one.1)
    }

    fn abandon(&mut self, ticket: Ticket, out: &mut Vec<u8>) -> bool {
        self.refused.retain(|one| *one != ticket);
        let found = self.streams.iter().find(|(_, one)| one.0 == ticket).map(|(place, _)| place);
        if let Some(place) = found {
            // Dropped, it is reset.
            self.streams.remove(place);
            self.poll();
            self.pipe.take(out);
        }
        self.broken.is_none()
    }
}

#[cfg(test)]
mod tests;
