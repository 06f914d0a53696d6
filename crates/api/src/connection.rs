//! Connection timeouts: header, body write and idle.
//!
//! The rules are equal for HTTP/1 and HTTP/2, with and without TLS: bytes received, bytes not sent,
//! and requests in flight.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{Limits, RejectReason};
use crate::request_line::{self, RequestLineEncoder};

/// Lifecycle phase of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerPhase {
    /// Accepts connections.
    Open,
    /// Answers the requests in flight.
    Stopping,
    /// Aborts the remaining requests.
    Closed,
}

/// Timeout state of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionMonitor {
    state: Mutex<ConnectionState>,
    changed: Notify,
}

#[derive(Debug)]
struct ConnectionState {
    active_requests: u32,
    /// Start of the idle period.
    idle_since: Instant,
    /// Time of the first byte of a request whose header is incomplete.
    head_started: Option<Instant>,
    /// Time since when writes are blocked.
    write_blocked: Option<Instant>,
    /// Responses blocked since a time, by request number: HTTP/2 can block one stream while the
    /// connection is not blocked.
    pending_writes: HashMap<u64, Instant>,
    /// Next request number.
    next: u64,
    is_new: bool,
    /// HTTP/2 has frames that belong to no request.
    is_http2: bool,
}

impl ConnectionMonitor {
    pub(crate) fn new() -> Arc<ConnectionMonitor> {
        Arc::new(ConnectionMonitor {
            state: Mutex::new(ConnectionState {
                active_requests: 0,
                idle_since: Instant::now(),
                head_started: None,
                write_blocked: None,
                pending_writes: HashMap::new(),
                next: 0,
                is_new: true,
                is_http2: false,
            }),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a request; it ends when the returned value is dropped.
    pub(crate) fn begin_request(self: &Arc<ConnectionMonitor>) -> ActiveRequest {
        let mut state = self.state();
        state.active_requests += 1;
        state.head_started = None;
        let number = state.next;
        state.next += 1;
        ActiveRequest { monitor: Arc::clone(self), number }
    }

    /// Waits for a timeout and returns its reason; `None` if the connection is only idle.
    pub(crate) async fn wait_for_timeout(&self, limits: &Limits) -> Option<RejectReason> {
        loop {
            let Some((at, reason)) = self.deadline(limits) else {
                self.changed.notified().await;
                continue;
            };
            if at <= Instant::now() {
                return reason;
            }
            // After a timeout or a change the state is checked again.
            let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
        }
    }

    fn deadline(&self, limits: &Limits) -> Option<(Instant, Option<RejectReason>)> {
        let state = self.state();
        if let Some(stuck) = state.write_blocked {
            return Some((stuck + limits.write_timeout, Some(RejectReason::WriteTimeout)));
        }
        if state.active_requests > 0 {
            let oldest = state.pending_writes.values().min()?;
            return Some((*oldest + limits.write_timeout, Some(RejectReason::WriteTimeout)));
        }
        Some(match state.head_started {
            Some(head) => {
                (head + limits.header_read_timeout, Some(RejectReason::HeaderReadTimeout))
            }
            None => (state.idle_since + limits.idle_timeout, None),
        })
    }

    /// Returns whether a request of HTTP/1 starts with the bytes.
    fn record_read(&self, bytes: &[u8]) -> bool {
        let mut state = self.state();
        if state.is_new && !bytes.is_empty() {
            state.is_new = false;
            state.is_http2 = bytes.starts_with(b"PRI");
        } else if state.is_http2 {
            return false;
        }
        let starts =
            state.active_requests == 0 && state.head_started.is_none() && !bytes.is_empty();
        if starts {
            state.head_started = Some(Instant::now());
            self.changed.notify_one();
        }
        starts && !state.is_http2
    }

    fn set_write_blocked(&self, is_stuck: bool) {
        let mut state = self.state();
        if state.write_blocked.is_some() != is_stuck {
            state.write_blocked = is_stuck.then(Instant::now);
            self.changed.notify_one();
        }
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    monitor: Arc<ConnectionMonitor>,
    number: u64,
}

impl ActiveRequest {
    /// Sets whether a chunk of the response waits to be sent.
    pub(crate) fn set_write_pending(&self, waits: bool) {
        let mut state = self.monitor.state();
        match waits {
            true => drop(state.pending_writes.insert(self.number, Instant::now())),
            false => drop(state.pending_writes.remove(&self.number)),
        }
        self.monitor.changed.notify_one();
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.monitor.state();
        state.active_requests -= 1;
        state.pending_writes.remove(&self.number);
        state.idle_since = Instant::now();
        self.monitor.changed.notify_one();
    }
}

/// Stream wrapper that reports reads and blocked writes to the monitor, and mends what hyper
/// rejects ([`request_line`]).
#[derive(Debug)]
pub(crate) struct MonitoredStream<S> {
    inner: S,
    monitor: Arc<ConnectionMonitor>,
    request_lines: RequestLineEncoder,
    /// Encoded bytes that did not fit the reader's buffer.
    unread: Vec<u8>,
    /// Rest of a response that replaces one of hyper.
    unsent: Vec<u8>,
}

impl<S> MonitoredStream<S> {
    pub(crate) fn new(inner: S, monitor: Arc<ConnectionMonitor>) -> MonitoredStream<S> {
        let request_lines = RequestLineEncoder::default();
        MonitoredStream { inner, monitor, request_lines, unread: Vec::new(), unsent: Vec::new() }
    }

    fn pass_unread(&mut self, buf: &mut ReadBuf<'_>) {
        let count = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread[..count]);
        self.unread.drain(..count);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            self.pass_unread(buf);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let starts = self.monitor.record_read(&buf.filled()[before..]);
        if let Some(encoded) = self.request_lines.encode(&buf.filled()[before..], starts) {
            buf.set_filled(before);
            self.unread = encoded;
            self.pass_unread(buf);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> MonitoredStream<S> {
    fn update_write_state<T>(&self, poll: Poll<T>) -> Poll<T> {
        self.monitor.set_write_blocked(poll.is_pending());
        poll
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let poll = Pin::new(&mut self.inner).poll_write(cx, &self.unsent);
            let count = ready!(self.update_write_state(poll))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.drain(..count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_unsent(cx))?;
        if let Some(response) = request_line::with_json_body(bytes) {
            self.unsent = response;
            return Poll::Ready(Ok(bytes.len()));
        }
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.update_write_state(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = slices {
            return self.poll_write(cx, only);
        }
        ready!(self.poll_unsent(cx))?;
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.update_write_state(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unsent(cx))?;
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        self.update_write_state(poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unsent(cx))?;
        let poll = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.update_write_state(poll)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Test event of a connection.
    enum ConnectionEvent {
        Read(&'static [u8]),
        /// A request starts.
        Begin,
        /// A request ends.
        End,
        WriteBlocked(bool),
        /// The client does not read its response.
        WritePending(bool),
    }
    use ConnectionEvent::{Begin, End, Read, WriteBlocked, WritePending};

    /// Expects the timeout reason after `steps`.
    #[track_caller]
    fn check(steps: &[ConnectionEvent], expected: Option<Option<RejectReason>>) {
        let life = ConnectionMonitor::new();
        let mut held = None;
        let begun = "a request has begun";
        for step in steps {
            match step {
                Read(bytes) => _ = life.record_read(bytes),
                Begin => held = Some(life.begin_request()),
                End => drop(held.take().expect(begun)),
                WriteBlocked(is_stuck) => life.set_write_blocked(*is_stuck),
                WritePending(waits) => held.as_ref().expect(begun).set_write_pending(*waits),
            }
        }
        assert_eq!(life.deadline(&Limits::default()).map(|deadline| deadline.1), expected);
    }

    #[test]
    fn connection_has_one_timeout_at_a_time() {
        let (idle, head, write) = (
            Some(None),
            Some(Some(RejectReason::HeaderReadTimeout)),
            Some(Some(RejectReason::WriteTimeout)),
        );
        check(&[], idle);
        check(&[Read(b"G")], head);
        check(&[Read(b"")], idle);
        check(&[Read(b"G"), Begin], None);
        check(&[Read(b"G"), Begin, End], idle);
        check(&[Read(b"PRI *")], head);
        check(&[Read(b"PRI *"), Begin, End, Read(b"x")], idle);
        check(&[Begin, End, Read(b"G")], head);
        check(&[Begin, WriteBlocked(true)], write);
        check(&[Begin, WritePending(true)], write);
        check(&[Begin, WritePending(true), WritePending(false)], None);
        check(&[WriteBlocked(true), WriteBlocked(false)], idle);
    }

    #[tokio::test]
    async fn expired_timeout_is_reported() {
        let limits = Limits {
            header_read_timeout: Duration::from_millis(1),
            idle_timeout: Duration::from_millis(1),
            ..Limits::default()
        };
        let life = ConnectionMonitor::new();
        assert_eq!(life.wait_for_timeout(&limits).await, None);
        assert!(life.record_read(b"G"));
        assert_eq!(life.wait_for_timeout(&limits).await, Some(RejectReason::HeaderReadTimeout));
    }
}
