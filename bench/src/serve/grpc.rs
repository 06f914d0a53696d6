//! Minimal gRPC client for a local benchmark: one call at a time on one HTTP/2 connection.
//!
//! Sources: RFC 9113 (frames, windows), RFC 7541 (literal fields without indexing, no Huffman
//! coding), <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// The largest frame that every peer accepts.
const FRAME_BYTES: usize = 16_384;
/// Initial window of a connection and of a stream.
const WINDOW: i64 = 65_535;
/// `SETTINGS_HEADER_TABLE_SIZE`.
const HEADER_TABLE_SIZE: u8 = 1;
/// `SETTINGS_INITIAL_WINDOW_SIZE`.
const INITIAL_WINDOW: u16 = 4;
/// Receive window: more than all responses of a run.
const LOCAL_WINDOW: u32 = 1 << 30;
const TIMEOUT: Duration = Duration::from_secs(300);

/// A connection that calls one method.
pub(crate) struct GrpcCaller {
    stream: BufReader<TcpStream>,
    head: Vec<u8>,
    next: u32,
    /// Send windows: of the connection, of the stream, and of each new stream.
    connection_window: i64,
    stream_window: i64,
    initial_window: i64,
    out: Vec<u8>,
}

impl GrpcCaller {
    pub(crate) fn open(port: u16, path: &str) -> Result<GrpcCaller> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let authority = format!("127.0.0.1:{port}");
        let mut head = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", &authority),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            // Names and values are short: a length below 127 is one byte.
            head.extend([0, name.len() as u8]);
            head.extend(name.as_bytes());
            head.push(value.len() as u8);
            head.extend(value.as_bytes());
        }
        let mut caller = GrpcCaller {
            stream: BufReader::with_capacity(1 << 16, stream),
            head,
            next: 1,
            connection_window: WINDOW,
            stream_window: WINDOW,
            initial_window: WINDOW,
            out: PREFACE.to_vec(),
        };
        // Disables the dynamic table, so that responses contain literal fields.
        caller.queue_frame(SETTINGS, 0, 0, &[0, HEADER_TABLE_SIZE, 0, 0, 0, 0]);
        let more = (LOCAL_WINDOW - WINDOW as u32).to_be_bytes();
        caller.queue_frame(WINDOW_UPDATE, 0, 0, &more);
        caller.flush()?;
        Ok(caller)
    }

    /// Makes a call. Returns whether it was accepted; otherwise it must be retried.
    pub(crate) fn call(&mut self, message: &[u8]) -> Result<bool> {
        let stream = self.next;
        self.next += 2;
        self.stream_window = self.initial_window;
        let head = self.head.clone();
        self.queue_frame(HEADERS, END_HEADERS, stream, &head);
        let mut prefix = vec![0];
        prefix.extend((message.len() as u32).to_be_bytes());
        self.queue_frame(DATA, 0, stream, &prefix);
        self.spend(prefix.len());
        let mut at = 0;
        while at < message.len() {
            let room = self.connection_window.min(self.stream_window).max(0) as usize;
            let length = room.min(FRAME_BYTES).min(message.len() - at);
            if length == 0 {
                self.flush()?;
                if let Some(status) = self.read_frame(stream)? {
                    return is_accepted(&status);
                }
                continue;
            }
            let flags = if at + length == message.len() { END_STREAM } else { 0 };
            self.queue_frame(DATA, flags, stream, &message[at..at + length]);
            self.spend(length);
            at += length;
        }
        self.flush()?;
        loop {
            if let Some(status) = self.read_frame(stream)? {
                return is_accepted(&status);
            }
        }
    }

    fn spend(&mut self, bytes: usize) {
        self.connection_window -= bytes as i64;
        self.stream_window -= bytes as i64;
    }

    fn queue_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.out.extend(&(payload.len() as u32).to_be_bytes()[1..]);
        self.out.extend([kind, flags]);
        self.out.extend(stream.to_be_bytes());
        self.out.extend(payload);
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Reads a frame. Returns the last head of the stream if the frame ends it.
    fn read_frame(&mut self, stream: u32) -> Result<Option<Vec<u8>>> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).context("the server closed the connection")?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & (u32::MAX >> 1);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        let number = |at: usize| {
            payload.get(at..at + 4).map_or(0, |it| u32::from_be_bytes([it[0], it[1], it[2], it[3]]))
        };
        match kind {
            SETTINGS if flags & ACK == 0 => {
                for one in payload.as_chunks::<6>().0 {
                    if u16::from_be_bytes([one[0], one[1]]) == INITIAL_WINDOW {
                        let window = u32::from_be_bytes([one[2], one[3], one[4], one[5]]);
                        self.stream_window += i64::from(window) - self.initial_window;
                        self.initial_window = i64::from(window);
                    }
                }
                self.queue_frame(SETTINGS, ACK, 0, &[]);
                self.flush()?;
            }
            PING if flags & ACK == 0 => {
                self.queue_frame(PING, ACK, 0, &payload);
                self.flush()?;
            }
            WINDOW_UPDATE if of == 0 => self.connection_window += i64::from(number(0)),
            WINDOW_UPDATE if of == stream => self.stream_window += i64::from(number(0)),
            RESET if of == stream => bail!("the call was reset: error {}", number(0)),
            GO_AWAY => bail!("the server sent GOAWAY: error {}", number(4)),
            HEADERS if of == stream && flags & END_STREAM != 0 => return Ok(Some(payload)),
            DATA if of == stream && flags & END_STREAM != 0 => bail!("a response without status"),
            _ => {}
        }
        Ok(None)
    }
}

/// Finds the status in the trailers. Names may be Huffman-coded, so the two possible fields are
/// searched as bytes: 0 is success, 8 asks to wait.
fn is_accepted(trailers: &[u8]) -> Result<bool> {
    let value = |status: &str| {
        let plain = [&b"grpc-status"[..], &[1], status.as_bytes()].concat();
        trailers.windows(plain.len()).any(|part| part == plain)
    };
    // `grpc-status` and the values 0 and 8 in Huffman code (RFC 7541, appendix B).
    let packed = |value: &[u8]| {
        let name = [0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];
        let at = trailers.windows(name.len()).position(|part| part == name);
        at.is_some_and(|at| trailers[at + name.len()..].starts_with(value))
    };
    if value("0") || packed(&[0x81, 0x07]) || packed(&[0x01, b'0']) {
        return Ok(true);
    }
    if value("8") || packed(&[0x81, 0x7b]) || packed(&[0x01, b'8']) {
        return Ok(false);
    }
    bail!("the call failed, with the trailers {trailers:02x?}")
}
