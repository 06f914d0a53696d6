//! One connection: how long it may wait for what, and its end.
//!
//! What is looked at is the same for HTTP/1 and HTTP/2, in the clear and in TLS: bytes that come, bytes that are not
//! taken, and requests that are being answered.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{Limits, Why};

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It takes connections.
    Open,
    /// It answers what has been asked.
    Stopping,
    /// It ends what is left.
    Closed,
}

/// What a connection is waiting for.
#[derive(Debug)]
pub(crate) struct Life {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    in_flight: u32,
    /// Since when nothing is asked.
    idle: Instant,
    /// When the first byte of a request came that has not begun.
    head: Option<Instant>,
    /// Since when the other end takes nothing.
    stuck: Option<Instant>,
    /// Answers of which the other end has taken nothing since then, by the number of their request: HTTP/2 lets it do
    /// so while the connection itself is not stuck.
    waiting: HashMap<u64, Instant>,
    /// The number of the next request.
    next: u64,
    is_new: bool,
    /// HTTP/2 has bytes between requests that belong to none.
    is_http2: bool,
}

impl Life {
    pub(crate) fn new() -> Arc<Life> {
        Arc::new(Life {
            state: Mutex::new(State {
                in_flight: 0,
                idle: Instant::now(),
                head: None,
                stuck: None,
                waiting: HashMap::new(),
                next: 0,
                is_new: true,
                is_http2: false,
            }),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins, until what is returned is dropped.
    pub(crate) fn request(self: &Arc<Life>) -> InFlight {
        let mut state = self.state();
        state.in_flight += 1;
        state.head = None;
        let number = state.next;
        state.next += 1;
        InFlight { life: Arc::clone(self), number }
    }

    /// Waits until the connection waits for too long, and says for what; for nothing if it is only idle.
    pub(crate) async fn overdue(&self, limits: &Limits) -> Option<Why> {
        loop {
            let Some((at, why)) = self.deadline(limits) else {
                self.changed.notified().await;
                continue;
            };
            if at <= Instant::now() {
                return why;
            }
            // Whether the time is over or something changed, it is looked at anew.
            let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
        }
    }

    fn deadline(&self, limits: &Limits) -> Option<(Instant, Option<Why>)> {
        let state = self.state();
        if let Some(stuck) = state.stuck {
            return Some((stuck + limits.write_time, Some(Why::WriteTime)));
        }
        if state.in_flight > 0 {
            let oldest = state.waiting.values().min()?;
            return Some((*oldest + limits.write_time, Some(Why::WriteTime)));
        }
        Some(match state.head {
            Some(head) => (head + limits.head_time, Some(Why::HeadTime)),
            None => (state.idle + limits.idle_time, None),
        })
    }

    fn came(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.is_new && !bytes.is_empty() {
            state.is_new = false;
            state.is_http2 = bytes.starts_with(b"PRI");
        } else if state.is_http2 {
            return;
        }
        if state.in_flight == 0 && state.head.is_none() && !bytes.is_empty() {
            state.head = Some(Instant::now());
            self.changed.notify_one();
        }
    }

    fn stuck(&self, is_stuck: bool) {
        let mut state = self.state();
        if state.stuck.is_some() != is_stuck {
            state.stuck = is_stuck.then(Instant::now);
            self.changed.notify_one();
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct InFlight {
    life: Arc<Life>,
    number: u64,
}

impl InFlight {
    /// Whether a piece of its answer waits to be taken by the other end, from now on.
    pub(crate) fn waits(&self, waits: bool) {
        let mut state = self.life.state();
        match waits {
            true => drop(state.waiting.insert(self.number, Instant::now())),
            false => drop(state.waiting.remove(&self.number)),
        }
        self.life.changed.notify_one();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.life.state();
        state.in_flight -= 1;
        state.waiting.remove(&self.number);
        state.idle = Instant::now();
        self.life.changed.notify_one();
    }
}

/// A connection's bytes, looked at as they pass.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    pub(crate) inner: S,
    pub(crate) life: Arc<Life>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.life.came(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    fn seen<T>(&self, poll: Poll<T>) -> Poll<T> {
        self.life.stuck(poll.is_pending());
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.seen(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.seen(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        self.seen(poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.seen(poll)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What happens to a connection.
    enum Step {
        Came(&'static [u8]),
        /// A request begins.
        Begin,
        /// And ends.
        End,
        Stuck(bool),
        /// The other end takes nothing of its answer.
        Waits(bool),
    }
    use Step::{Begin, Came, End, Stuck, Waits};

    /// What the connection is waiting for after `steps`, as limits have it.
    #[track_caller]
    fn check(steps: &[Step], expected: Option<Option<Why>>) {
        let life = Life::new();
        let mut held = None;
        let begun = "a request has begun";
        for step in steps {
            match step {
                Came(bytes) => life.came(bytes),
                Begin => held = Some(life.request()),
                End => drop(held.take().expect(begun)),
                Stuck(is_stuck) => life.stuck(*is_stuck),
                Waits(waits) => held.as_ref().expect(begun).waits(*waits),
            }
        }
        assert_eq!(life.deadline(&Limits::default()).map(|deadline| deadline.1), expected);
    }

    #[test]
    fn a_connection_waits_for_one_thing_at_a_time() {
        let (idle, head, write) =
            (Some(None), Some(Some(Why::HeadTime)), Some(Some(Why::WriteTime)));
        check(&[], idle);
        check(&[Came(b"G")], head);
        check(&[Came(b"")], idle);
        check(&[Came(b"G"), Begin], None);
        check(&[Came(b"G"), Begin, End], idle);
        check(&[Came(b"PRI *")], head);
        check(&[Came(b"PRI *"), Begin, End, Came(b"x")], idle);
        check(&[Begin, End, Came(b"G")], head);
        check(&[Begin, Stuck(true)], write);
        check(&[Begin, Waits(true)], write);
        check(&[Begin, Waits(true), Waits(false)], None);
        check(&[Stuck(true), Stuck(false)], idle);
    }

    #[tokio::test]
    async fn time_that_is_over_is_told() {
        let limits = Limits {
            head_time: Duration::from_millis(1),
            idle_time: Duration::from_millis(1),
            ..Limits::default()
        };
        let life = Life::new();
        assert_eq!(life.overdue(&limits).await, None);
        life.came(b"G");
        assert_eq!(life.overdue(&limits).await, Some(Why::HeadTime));
    }
}
