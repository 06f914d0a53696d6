//! A non-blocking connection: socket, optional TLS, and the codec of its protocol.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use bytes::{Buf as _, BytesMut};
use rustls::ClientConnection;
use socket2::{Domain, Socket, Type};

use crate::codec::{Codec, Completion, RequestId};
use crate::connect_options::ConnectOptions;
use crate::failure::Failure;
use crate::first_errors::preview;
use crate::rendered_request::RenderedRequest;

/// Limit of unsent bytes that responses to the server may cause. Requests may exceed it.
const UNSENT_MAX: usize = 16 << 20;

/// Encrypted bytes that rustls may buffer; the rest stays in `unsent`.
const TLS_UNSENT_MAX: usize = 1 << 20;

/// One connection.
pub(crate) struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Plain-text request for TLS, until the server accepts it.
    pending_tls_request: Option<&'static [u8]>,
    codec: Box<dyn Codec>,
    is_connected: bool,
    /// Bytes that the socket has not accepted yet. [`BytesMut`] drops a sent prefix without moving
    /// the rest of a long body.
    unsent: BytesMut,
    /// Detail of the error that ended the connection.
    error_detail: Option<String>,
    /// Requests sent on this connection that have not completed.
    pub(crate) in_flight: Vec<RequestId>,
    /// Whether it was ever usable: connected, TLS established, codec ready.
    pub(crate) is_ready: bool,
    /// Sequence number among all connections of the pool.
    pub(crate) number: usize,
    /// Whether it took too long to become ready, so that the pool no longer counts it as pending.
    pub(crate) is_slow: bool,
    /// Whether it is in the pool's list of available connections.
    pub(crate) is_available: bool,
    /// Whether the poller watches for write readiness.
    pub(crate) wants_write: bool,
    /// Whether the server has closed its sending side; it answers no further request.
    pub(crate) is_half_closed: bool,
}

/// State of the stream after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// More bytes may follow.
    Open,
    /// End of stream.
    Closed,
}

impl Connection {
    /// Starts a non-blocking connect to address `number`, round robin.
    pub(crate) fn start(options: &ConnectOptions, number: usize) -> io::Result<Connection> {
        let address = options.addresses[number % options.addresses.len()];
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            other => other?,
        }
        let tls = match &options.tls {
            None => None,
            Some((config, name)) => {
                let mut tls = ClientConnection::new(config.clone(), name.clone())
                    .map_err(io::Error::other)?;
                tls.set_buffer_limit(Some(TLS_UNSENT_MAX));
                Some(Box::new(tls))
            }
        };
        let pending_tls_request = options.protocol.tls_request().filter(|_| tls.is_some());
        Ok(Connection {
            socket: socket.into(),
            tls,
            pending_tls_request,
            codec: options.protocol.codec(),
            is_connected: false,
            unsent: BytesMut::new(),
            error_detail: None,
            in_flight: Vec::new(),
            is_ready: false,
            number,
            is_slow: false,
            is_available: false,
            // Write readiness signals that the connect finished.
            wants_write: true,
            is_half_closed: false,
        })
    }

    /// Returns and clears the detail of the last failure of this kind.
    pub(crate) fn error_detail(&mut self, failure: Failure) -> Option<String> {
        self.codec.error_detail(failure).or_else(|| self.error_detail.take())
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Whether it is being established and counts as pending.
    pub(crate) fn is_connecting(&self) -> bool {
        !self.is_ready && !self.is_slow
    }

    /// Number of requests that can be sent now.
    pub(crate) fn capacity(&self) -> usize {
        let is_tls_ready = self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking());
        // A request that the socket does not accept would be queued, not sent.
        let is_open = !self.is_half_closed;
        if is_tls_ready && is_open && !self.has_unsent() { self.codec.capacity() } else { 0 }
    }

    /// Whether no more completions are expected.
    pub(crate) fn is_closed(&self) -> bool {
        // A connection that was never ready is read to its end, because the server may explain why.
        let is_ending = self.codec.is_ending() || self.is_ready && self.is_half_closed;
        self.in_flight.is_empty() && is_ending
    }

    /// Whether bytes wait for write readiness.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.is_connected
            || !self.unsent.is_empty()
            || self
                .tls
                .as_ref()
                .is_some_and(|tls| tls.wants_write() && self.pending_tls_request.is_none())
    }

    /// Checks whether the connect finished and sends the opening bytes. Returns whether it is
    /// connected.
    pub(crate) fn connect(&mut self, scratch: &mut Vec<u8>) -> Result<bool, Failure> {
        if let Some(error) = self.socket.take_error().unwrap_or_else(Some) {
            return Err(failed(&error, &mut self.error_detail));
        }
        if self.socket.peer_addr().is_err() {
            return Ok(false);
        }
        self.is_connected = true;
        match self.pending_tls_request {
            Some(question) => self.push(question)?,
            None => self.open(scratch)?,
        }
        Ok(true)
    }

    fn open(&mut self, scratch: &mut Vec<u8>) -> Result<(), Failure> {
        scratch.clear();
        self.codec.open(scratch);
        self.push(scratch)
    }

    /// Reads the server's answer to the request for TLS: exactly one byte, since TLS follows.
    fn read_tls_response(&mut self, scratch: &mut Vec<u8>) -> Result<ReadOutcome, Failure> {
        let mut answer = [0];
        match (&self.socket).read(&mut answer) {
            Ok(0) => return Ok(ReadOutcome::Closed),
            Ok(_) => {}
            Err(error) => return would_block(error, &mut self.error_detail),
        }
        match &answer {
            b"S" => {
                self.pending_tls_request = None;
                self.open(scratch)?;
                Ok(ReadOutcome::Open)
            }
            b"N" => {
                self.error_detail = Some("the server does not support TLS".to_owned());
                Err(Failure::Tls)
            }
            _ => {
                self.error_detail = Some(preview(&answer));
                Err(Failure::Malformed)
            }
        }
    }

    /// Sends a request. Requires capacity.
    pub(crate) fn send(
        &mut self,
        request: &RenderedRequest,
        request_id: RequestId,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        scratch.clear();
        self.codec.send(request, request_id, scratch);
        self.in_flight.push(request_id);
        self.push(scratch)
    }

    /// Cancels a request. Returns whether the connection can be reused.
    pub(crate) fn cancel(&mut self, request_id: RequestId, scratch: &mut Vec<u8>) -> bool {
        self.cancel_request(request_id);
        scratch.clear();
        self.codec.cancel(request_id, scratch) && self.push(scratch).is_ok()
    }

    pub(crate) fn cancel_request(&mut self, request_id: RequestId) {
        if let Some(at) = self.in_flight.iter().position(|one| *one == request_id) {
            self.in_flight.swap_remove(at);
        }
    }

    /// Reads once from the socket.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        scratch: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<ReadOutcome, Failure> {
        if self.pending_tls_request.is_some() {
            return self.read_tls_response(scratch);
        }
        scratch.clear();
        let read = match &mut self.tls {
            None => match (&self.socket).read(buffer) {
                Ok(0) => ReadOutcome::Closed,
                Ok(length) => {
                    let result = self.codec.receive(&buffer[..length], scratch, completions);
                    with_preview(result, &buffer[..length], &mut self.error_detail)?;
                    ReadOutcome::Open
                }
                Err(error) => would_block(error, &mut self.error_detail)?,
            },
            Some(tls) => {
                let mut read = match tls.read_tls(&mut &self.socket) {
                    Ok(0) => ReadOutcome::Closed,
                    Ok(_) => ReadOutcome::Open,
                    Err(error) => would_block(error, &mut self.error_detail)?,
                };
                let state = tls.process_new_packets().map_err(|error| {
                    self.error_detail = Some(error.to_string());
                    Failure::Tls
                })?;
                if state.peer_has_closed() {
                    read = ReadOutcome::Closed;
                }
                loop {
                    match tls.reader().read(buffer) {
                        Ok(0) => break,
                        Ok(length) => {
                            let result =
                                self.codec.receive(&buffer[..length], scratch, completions);
                            with_preview(result, &buffer[..length], &mut self.error_detail)?;
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        // The peer closed without a TLS close_notify; the codec knows whether the
                        // response was complete.
                        Err(_) => {
                            read = ReadOutcome::Closed;
                            break;
                        }
                    }
                }
                read
            }
        };
        if read == ReadOutcome::Closed {
            self.codec.close(completions);
        } else {
            self.push(scratch)?;
            // The server makes the client respond, and does not read the responses.
            if !scratch.is_empty() && self.unsent.len() > UNSENT_MAX {
                let detail =
                    "the server makes the client respond endlessly and does not read the responses";
                self.error_detail = Some(detail.to_owned());
                return Err(Failure::Malformed);
            }
        }
        Ok(read)
    }

    /// Writes bytes after those still unsent.
    fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return self.flush();
        }
        let written_bytes = self.write_some(bytes)?;
        self.unsent.extend_from_slice(&bytes[written_bytes..]);
        Ok(())
    }

    /// Writes unsent bytes as far as the socket accepts them.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.advance(self.write_some(&unsent)?);
        self.unsent = unsent;
        Ok(())
    }

    /// Writes bytes, through TLS if enabled, and returns how many were accepted.
    fn write_some(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let Some(tls) = self.tls.as_mut().filter(|_| self.pending_tls_request.is_none()) else {
            return written(&self.socket, bytes, &mut self.error_detail);
        };
        let mut written_bytes = 0;
        loop {
            written_bytes +=
                tls.writer().write(&bytes[written_bytes..]).map_err(|_| Failure::Tls)?;
            while tls.wants_write() {
                if let Err(error) = tls.write_tls(&mut &self.socket) {
                    return would_block(error, &mut self.error_detail).map(|_| written_bytes);
                }
            }
            // During the handshake rustls buffers some bytes and sends none.
            if written_bytes == bytes.len() || tls.is_handshaking() {
                return Ok(written_bytes);
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn written(
    mut socket: &TcpStream,
    bytes: &[u8],
    error_detail: &mut Option<String>,
) -> Result<usize, Failure> {
    let mut written = 0;
    while written < bytes.len() {
        match socket.write(&bytes[written..]) {
            Ok(length) => written += length,
            Err(error) => {
                would_block(error, error_detail)?;
                break;
            }
        }
    }
    Ok(written)
}

fn would_block(
    error: io::Error,
    error_detail: &mut Option<String>,
) -> Result<ReadOutcome, Failure> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(ReadOutcome::Open),
        _ => Err(failed(&error, error_detail)),
    }
}

/// Adds a preview of bytes that the codec rejected.
fn with_preview(
    result: Result<(), Failure>,
    bytes: &[u8],
    error_detail: &mut Option<String>,
) -> Result<(), Failure> {
    if result == Err(Failure::Malformed) {
        *error_detail = Some(preview(bytes));
    }
    result
}

fn failed(error: &io::Error, error_detail: &mut Option<String>) -> Failure {
    *error_detail = Some(error.to_string());
    Failure::of(error)
}
