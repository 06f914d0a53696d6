//! A connection: a socket that never waits, TLS if there is any, and the codec of what is spoken on it.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use rustls::ClientConnection;
use rustls_pki_types::ServerName;
use socket2::{Domain, Socket, Type};

use crate::codec::{Codec, Ended, Ticket};
use crate::failure::Failure;
use crate::protocol::Protocol;
use crate::request::Rendered;
use crate::words::came;

/// What waits to be sent may become as long by answering the other side. Requests may be longer.
const UNSENT_MAX: usize = 16 << 20;

/// Of that TLS keeps so much, encrypted; the rest waits until it takes more.
const TLS_UNSENT_MAX: usize = 1 << 20;

/// How connections of a run are made.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) protocol: Protocol,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

/// One connection.
pub(crate) struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// What the server is asked before there is TLS, until it has agreed.
    asks_for_tls: Option<&'static [u8]>,
    codec: Box<dyn Codec>,
    is_connected: bool,
    /// What the socket did not take yet. It may be a long body that goes out in many pieces: none of them moves the rest.
    unsent: BytesMut,
    /// What is known of what ended it.
    words: Option<String>,
    /// Requests that were sent on it and have not ended.
    pub(crate) under_way: Vec<Ticket>,
    /// Whether it ever had room: connected, agreed on in TLS, and the codec ready.
    pub(crate) is_ready: bool,
    /// How many were opened before it.
    pub(crate) number: usize,
    /// Whether it takes so long to get ready that it is not among those any more that others wait for.
    pub(crate) is_slow: bool,
    /// Whether it stands in the list of those with room.
    pub(crate) is_listed: bool,
    /// What is waited for, as the event queue was told.
    pub(crate) waits_to_send: bool,
    /// The server has closed its side: it answers nothing that is sent from now on.
    pub(crate) is_half_closed: bool,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The other side may say more.
    Open,
    /// It does not.
    Closed,
}

impl Connection {
    /// Begins to connect to the `number`-th address, counted in a ring.
    pub(crate) fn start(dial: &Dial, number: usize) -> io::Result<Connection> {
        let address = dial.addresses[number % dial.addresses.len()];
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            other => other?,
        }
        let tls = match &dial.tls {
            None => None,
            Some((config, name)) => {
                let mut tls = ClientConnection::new(config.clone(), name.clone())
                    .map_err(io::Error::other)?;
                tls.set_buffer_limit(Some(TLS_UNSENT_MAX));
                Some(Box::new(tls))
            }
        };
        let asks_for_tls = dial.protocol.request_for_tls().filter(|_| tls.is_some());
        Ok(Connection {
            socket: socket.into(),
            tls,
            asks_for_tls,
            codec: dial.protocol.codec(),
            is_connected: false,
            unsent: BytesMut::new(),
            words: None,
            under_way: Vec::new(),
            is_ready: false,
            number,
            is_slow: false,
            is_listed: false,
            // That it is connected is told as room to send.
            waits_to_send: true,
            is_half_closed: false,
        })
    }

    /// What is known of what failed last on it for this reason.
    pub(crate) fn words(&mut self, failure: Failure) -> Option<String> {
        self.codec.words(failure).or_else(|| self.words.take())
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Whether it is being made, and others wait for it.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.is_ready && !self.is_slow
    }

    /// How many requests it takes now.
    pub(crate) fn room(&self) -> usize {
        let is_agreed = self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking());
        // What the socket does not take would be waiting, not sent.
        let is_open = !self.is_half_closed;
        if is_agreed && is_open && !self.has_unsent() { self.codec.room() } else { 0 }
    }

    /// Whether nothing is to be expected of it any more.
    pub(crate) fn is_over(&self) -> bool {
        // One that never was ready still has to show why it failed: all that the server sent is
        // read.
        let is_ending = self.codec.is_ending() || self.is_ready && self.is_half_closed;
        self.under_way.is_empty() && is_ending
    }

    /// Whether some bytes wait for the socket to take them.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.is_connected
            || !self.unsent.is_empty()
            || self.tls.as_ref().is_some_and(|tls| tls.wants_write() && self.asks_for_tls.is_none())
    }

    /// Looks whether it is connected by now, and says what is said first. Whether it is.
    pub(crate) fn connect(&mut self, scratch: &mut Vec<u8>) -> Result<bool, Failure> {
        if let Some(error) = self.socket.take_error().unwrap_or_else(Some) {
            return Err(failed(&error, &mut self.words));
        }
        if self.socket.peer_addr().is_err() {
            return Ok(false);
        }
        self.is_connected = true;
        match self.asks_for_tls {
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

    /// Reads whether the server agrees to TLS: one byte, for what follows it is TLS already.
    fn agree(&mut self, scratch: &mut Vec<u8>) -> Result<Read, Failure> {
        let mut answer = [0];
        match (&self.socket).read(&mut answer) {
            Ok(0) => return Ok(Read::Closed),
            Ok(_) => {}
            Err(error) => return would_block(error, &mut self.words),
        }
        match &answer {
            b"S" => {
                self.asks_for_tls = None;
                self.open(scratch)?;
                Ok(Read::Open)
            }
            b"N" => {
                self.words = Some("the server has no TLS".to_owned());
                Err(Failure::Tls)
            }
            _ => {
                self.words = Some(came(&answer));
                Err(Failure::Malformed)
            }
        }
    }

    /// Sends a request; there is room.
    pub(crate) fn send(
        &mut self,
        request: &Rendered,
        ticket: Ticket,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        scratch.clear();
        self.codec.send(request, ticket, scratch);
        self.under_way.push(ticket);
        self.push(scratch)
    }

    /// Nobody waits for this answer any more. Whether the connection can go on.
    pub(crate) fn abandon(&mut self, ticket: Ticket, scratch: &mut Vec<u8>) -> bool {
        self.forget(ticket);
        scratch.clear();
        self.codec.abandon(ticket, scratch) && self.push(scratch).is_ok()
    }

    pub(crate) fn forget(&mut self, ticket: Ticket) {
        if let Some(at) = self.under_way.iter().position(|one| *one == ticket) {
            self.under_way.swap_remove(at);
        }
    }

    /// Reads once what has come.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        scratch: &mut Vec<u8>,
        ended: &mut Vec<Ended>,
    ) -> Result<Read, Failure> {
        if self.asks_for_tls.is_some() {
            return self.agree(scratch);
        }
        scratch.clear();
        let read = match &mut self.tls {
            None => match (&self.socket).read(buffer) {
                Ok(0) => Read::Closed,
                Ok(length) => {
                    let taken = self.codec.receive(&buffer[..length], scratch, ended);
                    noted(taken, &buffer[..length], &mut self.words)?;
                    Read::Open
                }
                Err(error) => would_block(error, &mut self.words)?,
            },
            Some(tls) => {
                let mut read = match tls.read_tls(&mut &self.socket) {
                    Ok(0) => Read::Closed,
                    Ok(_) => Read::Open,
                    Err(error) => would_block(error, &mut self.words)?,
                };
                let state = tls.process_new_packets().map_err(|error| {
                    self.words = Some(error.to_string());
                    Failure::Tls
                })?;
                if state.peer_has_closed() {
                    read = Read::Closed;
                }
                loop {
                    match tls.reader().read(buffer) {
                        Ok(0) => break,
                        Ok(length) => {
                            let taken = self.codec.receive(&buffer[..length], scratch, ended);
                            noted(taken, &buffer[..length], &mut self.words)?;
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        // The other side closed without saying so in TLS: the codec knows whether that matters.
                        Err(_) => {
                            read = Read::Closed;
                            break;
                        }
                    }
                }
                read
            }
        };
        if read == Read::Closed {
            self.codec.close(ended);
        } else {
            self.push(scratch)?;
            // It makes us answer, and does not read what we answer.
            if !scratch.is_empty() && self.unsent.len() > UNSENT_MAX {
                let words = "it makes topdeck answer without end, and does not read the answers";
                self.words = Some(words.to_owned());
                return Err(Failure::Malformed);
            }
        }
        Ok(read)
    }

    /// Gives bytes to the socket, after what it did not take before.
    fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return self.flush();
        }
        let taken = self.give(bytes)?;
        self.unsent.extend_from_slice(&bytes[taken..]);
        Ok(())
    }

    /// Gives to the socket what it takes now.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.advance(self.give(&unsent)?);
        self.unsent = unsent;
        Ok(())
    }

    /// How many of these bytes are taken now, by TLS if there is any.
    fn give(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let Some(tls) = self.tls.as_mut().filter(|_| self.asks_for_tls.is_none()) else {
            return written(&self.socket, bytes, &mut self.words);
        };
        let mut taken = 0;
        loop {
            taken += tls.writer().write(&bytes[taken..]).map_err(|_| Failure::Tls)?;
            while tls.wants_write() {
                if let Err(error) = tls.write_tls(&mut &self.socket) {
                    return would_block(error, &mut self.words).map(|_| taken);
                }
            }
            // Before it is agreed on, TLS keeps some, and sends nothing of it.
            if taken == bytes.len() || tls.is_handshaking() {
                return Ok(taken);
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
    words: &mut Option<String>,
) -> Result<usize, Failure> {
    let mut written = 0;
    while written < bytes.len() {
        match socket.write(&bytes[written..]) {
            Ok(length) => written += length,
            Err(error) => {
                would_block(error, words)?;
                break;
            }
        }
    }
    Ok(written)
}

fn would_block(error: io::Error, words: &mut Option<String>) -> Result<Read, Failure> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Read::Open),
        _ => Err(failed(&error, words)),
    }
}

/// What came is shown where it was not understood.
fn noted(
    taken: Result<(), Failure>,
    bytes: &[u8],
    words: &mut Option<String>,
) -> Result<(), Failure> {
    if taken == Err(Failure::Malformed) {
        *words = Some(came(bytes));
    }
    taken
}

fn failed(error: &io::Error, words: &mut Option<String>) -> Failure {
    *words = Some(error.to_string());
    Failure::of(error)
}
