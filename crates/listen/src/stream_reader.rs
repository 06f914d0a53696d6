//! Stream reader: one thread for all TCP connections.
//!
//! A connection that sends no complete line for [`crate::Limits::idle_max`] is closed, however many
//! bytes it sends. Connections above the limit are closed at once. While memory is full, nothing is
//! read, so that senders get backpressure: connection data is never dropped for lack of memory.
//! This time does not count as idle.

use std::fmt;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::listener::SocketReaderContext;
use crate::metric_aggregator::MetricAggregator;

/// Bytes per read of a connection.
const READ_BYTES: usize = 64 << 10;
/// Interval of the idle connection check.
const IDLE_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Delay while memory is full or no descriptor is free for a new connection.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Longest time that a stopping reader drains its connections.
const STOP_MAX: Duration = Duration::from_secs(1);

/// Peer of a connection.
struct StreamPeer(SocketAddr);

impl fmt::Display for StreamPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp {}", self.0)
    }
}

struct StreamConnection {
    stream: TcpStream,
    peer: StreamPeer,
    /// Incomplete line.
    line: Vec<u8>,
    /// The line exceeded the limit; its rest is skipped.
    is_too_long: bool,
    /// Time of the last complete line, shifted by the time without reads.
    last_line_at: Instant,
}

/// Result of reading a connection.
#[derive(PartialEq)]
enum ReadState {
    Read,
    WouldBlock,
    Closed,
}

pub(crate) struct StreamReader {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) context: SocketReaderContext,
    connections: Vec<StreamConnection>,
}

impl StreamReader {
    pub(crate) fn new(listeners: Vec<TcpListener>, room: SocketReaderContext) -> StreamReader {
        StreamReader { listeners, context: room, connections: Vec::new() }
    }

    /// Runs until stopped.
    pub(crate) fn run(&mut self) {
        let mut buffer = vec![0; READ_BYTES];
        let mut pause = false;
        loop {
            let is_full = self.lock_aggregator().is_full();
            let began = Instant::now();
            let ready = self.wait(is_full, pause || is_full);
            if self.context.is_stopping.load(Ordering::Acquire) {
                return self.finish(&mut buffer);
            }
            if is_full {
                self.context.flush_signal.request_flush();
                let waited = began.elapsed();
                self.connections
                    .iter_mut()
                    .for_each(|connection| connection.last_line_at += waited);
                continue;
            }
            let (listeners, connections) = ready.split_at(self.listeners.len());
            self.read(&mut buffer, connections);
            pause = !self.accept(listeners);
            self.close_idle();
        }
    }

    fn lock_aggregator(&self) -> MutexGuard<'_, MetricAggregator> {
        self.context.aggregator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the listening sockets and connections.
    fn wait(&self, is_full: bool, is_short: bool) -> Vec<bool> {
        // Connections that must not be read are not polled: poll reports a hang-up even without
        // requested events.
        let listeners =
            self.listeners.iter().filter(|_| !is_short).map(|listener| listener.as_fd());
        let streams = self.connections.iter().filter(|_| !is_full).map(|one| one.stream.as_fd());
        let mut fds = vec![PollFd::new(&*self.context.stop, PollFlags::IN)];
        let requested =
            listeners.chain(streams).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        fds.extend(requested);
        let timeout = if is_short { PAUSE } else { IDLE_CHECK_INTERVAL };
        let is_polled = poll(&mut fds, Some(&timeout)).is_ok();
        let mut ready = vec![false; if is_short { self.listeners.len() } else { 0 }];
        ready.extend(fds[1..].iter().map(|fd| is_polled && !fd.revents().is_empty()));
        ready
    }

    /// Accepts new connections; `false` if the system is out of descriptors or memory.
    fn accept(&mut self, ready: &[bool]) -> bool {
        let counters = &self.context.shared.counters;
        for (listener, _) in self.listeners.iter().zip(ready).filter(|(_, ready)| **ready) {
            loop {
                let accepted = listener.accept();
                match accepted.and_then(|(it, from)| it.set_nonblocking(true).map(|()| (it, from)))
                {
                    Ok((stream, from))
                        if self.connections.len() < self.context.shared.limits.connections_max =>
                    {
                        counters.connections.add(1);
                        let (line, line_at) = (Vec::new(), Instant::now());
                        let (from, is_too_long) = (StreamPeer(from), false);
                        let connection = StreamConnection {
                            stream,
                            peer: from,
                            line,
                            is_too_long,
                            last_line_at: line_at,
                        };
                        self.connections.push(connection);
                    }
                    Ok(_) => counters.connections_rejected.add(1),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => match error.kind() {
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                        _ => {
                            let message = format!("cannot accept a connection: {error}");
                            self.context.shared.recent_errors.push(message);
                            return false;
                        }
                    },
                }
            }
        }
        true
    }

    /// Reads each ready connection once; returns whether any had data.
    fn read(&mut self, buffer: &mut [u8], ready: &[bool]) -> bool {
        let room = self.context.clone();
        let mut aggregator = room.aggregator.lock().unwrap_or_else(PoisonError::into_inner);
        aggregator.set_now(room.intake.now());
        let bytes_max = room.shared.limits.line_bytes_max;
        let (mut at, mut any) = (0, false);
        self.connections.retain_mut(|connection| {
            let is_ready = ready.get(at).is_some_and(|&ready| ready);
            at += 1;
            if !is_ready || aggregator.is_full() {
                return true;
            }
            let state = connection.read(buffer, bytes_max, &mut aggregator);
            any |= state != ReadState::WouldBlock;
            state != ReadState::Closed
        });
        if aggregator.is_near_limit() {
            room.flush_signal.request_flush();
        }
        any
    }

    fn close_idle(&mut self) {
        let idle_max = self.context.shared.limits.idle_timeout;
        let before = self.connections.len();
        self.connections.retain(|connection| connection.last_line_at.elapsed() < idle_max);
        let closed = before - self.connections.len();
        self.context.shared.counters.connections_idle_closed.add(closed as u64);
    }

    /// Drains the received data.
    fn finish(&mut self, buffer: &mut [u8]) {
        let until = Instant::now() + STOP_MAX;
        self.accept(&vec![true; self.listeners.len()]);
        let all = vec![true; self.connections.len()];
        while self.read(buffer, &all) && Instant::now() < until {}
        let mut aggregator = self.context.aggregator.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes_max = self.context.shared.limits.line_bytes_max;
        for connection in &mut self.connections {
            connection.finish_line(bytes_max, &mut aggregator);
        }
    }
}

impl StreamConnection {
    fn read(
        &mut self,
        buffer: &mut [u8],
        bytes_max: usize,
        aggregator: &mut MetricAggregator,
    ) -> ReadState {
        match self.stream.read(buffer) {
            Ok(0) => {
                self.finish_line(bytes_max, aggregator);
                ReadState::Closed
            }
            Ok(length) => {
                self.add_bytes(&buffer[..length], bytes_max, aggregator);
                ReadState::Read
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => ReadState::WouldBlock,
                _ => {
                    self.finish_line(bytes_max, aggregator);
                    ReadState::Closed
                }
            },
        }
    }

    /// Processes received bytes: complete lines are parsed, an incomplete one is buffered.
    fn add_bytes(&mut self, bytes: &[u8], bytes_max: usize, aggregator: &mut MetricAggregator) {
        let Some(first) = bytes.iter().position(|&byte| byte == b'\n') else {
            return self.append_partial_line(bytes, bytes_max);
        };
        self.append_partial_line(&bytes[..first], bytes_max);
        self.finish_line(bytes_max, aggregator);
        self.last_line_at = Instant::now();
        let rest = &bytes[first + 1..];
        let complete_lines =
            rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let (complete_lines, rest) = rest.split_at(complete_lines);
        for part in split_lines(complete_lines, bytes_max) {
            match part {
                Ok(lines) => aggregator.add_packet(lines, &self.peer),
                Err(_) => self.reject_long_line(bytes_max, aggregator),
            }
        }
        self.append_partial_line(rest, bytes_max);
    }

    fn append_partial_line(&mut self, bytes: &[u8], bytes_max: usize) {
        let room = bytes_max.saturating_sub(self.line.len());
        self.is_too_long |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The buffered line is complete.
    fn finish_line(&mut self, bytes_max: usize, aggregator: &mut MetricAggregator) {
        if std::mem::take(&mut self.is_too_long) {
            self.reject_long_line(bytes_max, aggregator);
        } else if !self.line.is_empty() {
            aggregator.add_packet(&self.line, &self.peer);
        }
        self.line.clear();
    }

    fn reject_long_line(&self, bytes_max: usize, aggregator: &mut MetricAggregator) {
        let reason = format!("expected a line of at most {bytes_max} bytes, found a longer one");
        aggregator.reject_line(&reason, &self.peer);
    }
}

/// Splits into complete lines, in as few pieces as possible; a line above the limit is a piece by
/// itself.
fn split_lines(lines: &[u8], bytes_max: usize) -> Vec<Result<&[u8], &[u8]>> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let end = at + line.len();
        if line.len() > bytes_max + 1 {
            parts.extend((at > start).then(|| Ok(&lines[start..at])));
            parts.push(Err(line));
            start = end;
        }
        at = end;
    }
    parts.extend((at > start).then(|| Ok(&lines[start..at])));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &str, expected: &str) {
        let shown = |part: &Result<&[u8], &[u8]>| match part {
            Ok(lines) => format!("{:?}", String::from_utf8_lossy(lines)),
            Err(_) => "too long".to_owned(),
        };
        let found: Vec<String> = split_lines(lines.as_bytes(), 3).iter().map(shown).collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn overlong_lines_are_separate() {
        check("", "");
        check("abc\nd\n", "\"abc\\nd\\n\"");
        check("abcd\n", "too long");
        check("a\nabcd\nabcde\nb\nc\n", "\"a\\n\" too long too long \"b\\nc\\n\"");
    }
}
