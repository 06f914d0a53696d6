//! Bodies under limits: of requests, by size and time; of answers, so that a request is over when all of it was given.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::connection::{InFlight, Phase};
use crate::limits::{Held, Refused, Why};
use crate::problem::Problem;
use crate::unread::UnreadAnswer;

/// After how long to try again when there is no room for a body, or an answer.
pub(crate) const AFTER_NO_ROOM: Duration = Duration::from_secs(1);

/// What a body may be, and what it came to.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) held: Arc<Held>,
    refused: Arc<Refused>,
    bytes_max: usize,
    time_max: Duration,
    /// Why the body is no longer read.
    pub(crate) broken: OnceLock<Problem>,
}

impl Bound {
    pub(crate) fn new(
        held: Held,
        refused: &Arc<Refused>,
        bytes_max: usize,
        time_max: Duration,
    ) -> Bound {
        Bound {
            held: Arc::new(held),
            refused: Arc::clone(refused),
            bytes_max,
            time_max,
            broken: OnceLock::new(),
        }
    }

    fn broken(&self, why: Why) -> Problem {
        self.refused.count(why);
        let problem = problem(why, self.bytes_max, self.time_max);
        self.broken.get_or_init(|| problem).clone()
    }

    /// Refuses a body that is announced to be too large.
    pub(crate) fn announced(&self, bytes: u64) -> Result<(), Problem> {
        if bytes > self.bytes_max as u64 { Err(self.broken(Why::BodyBytes)) } else { Ok(()) }
    }

    /// Takes room for more bytes of a body that is being unpacked, `so_far` together.
    pub(crate) fn unpacked(&self, so_far: usize, more: usize) -> Result<(), Problem> {
        if so_far > self.bytes_max {
            return Err(self.broken(Why::BodyBytes));
        }
        self.hold(more)
    }

    /// Takes room for what a body needs beside its bytes.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Problem> {
        if self.held.more(bytes) { Ok(()) } else { Err(self.broken(Why::BodiesBytes)) }
    }

    /// Gives back what [`Bound::hold`] took.
    pub(crate) fn release(&self, bytes: usize) {
        self.held.less(bytes);
    }

    /// Bytes of a body at the most.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

fn problem(why: Why, bytes_max: usize, time_max: Duration) -> Problem {
    match why {
        Why::BodyBytes => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body may have {bytes_max} bytes, unpacked too: send less at once"),
        ),
        Why::BodyTime => Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body took more than {} s to come", time_max.as_secs_f64()),
        ),
        _ => Problem {
            status: StatusCode::TOO_MANY_REQUESTS,
            what: "there is no room for more bodies now; try again in 1 s".to_owned(),
            after: Some(AFTER_NO_ROOM),
        },
    }
}

/// What a request takes beside the bytes of its body, while that is read and worked on. The futures
/// that wait for it are most: 9.0 kB in all were measured
/// (`many_small_bodies_take_no_more_than_is_counted`).
const BODY_BYTES: usize = 8 << 10;

/// Appends to a buffer that takes at most an eighth more memory than it has bytes: twice as much
/// would be more than is counted.
pub(crate) fn append(buffer: &mut Vec<u8>, more: &[u8]) {
    if more.len() > buffer.capacity() - buffer.len() {
        buffer.reserve_exact(more.len().max(buffer.len() / 8));
    }
    buffer.extend_from_slice(more);
}

/// The body of a request, given in one piece: whoever reads it wants all of it. What comes is copied
/// at once, as the pieces of one that comes byte by byte would take dozens of times as much memory;
/// and those who put pieces together would hold all of them twice.
pub(crate) struct Limited<B> {
    inner: B,
    bound: Arc<Bound>,
    /// What came and is not given yet.
    pending: Vec<u8>,
    trailers: Option<Frame<Bytes>>,
    phase: Reading,
    deadline: Pin<Box<Sleep>>,
}

#[derive(PartialEq)]
enum Reading {
    /// Nobody has asked for it.
    Unread,
    Begun,
    /// All of it is here.
    Over,
}

impl<B> Limited<B> {
    pub(crate) fn new(inner: B, bound: Arc<Bound>) -> Limited<B> {
        let deadline = Box::pin(tokio::time::sleep_until(Instant::now() + bound.time_max));
        let (pending, phase) = (Vec::new(), Reading::Unread);
        Limited { inner, bound, pending, trailers: None, phase, deadline }
    }
}

impl<B> Body for Limited<B>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    type Data = Bytes;
    type Error = Problem;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(self.bound.broken(Why::BodyTime))));
        }
        if self.phase == Reading::Unread && !self.inner.is_end_stream() {
            if let Err(problem) = self.bound.hold(BODY_BYTES) {
                return Poll::Ready(Some(Err(problem)));
            }
            self.phase = Reading::Begun;
        }
        while self.phase != Reading::Over {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let so_far = self.pending.len().saturating_add(data.len());
                        if let Err(problem) = self.bound.unpacked(so_far, data.len()) {
                            return Poll::Ready(Some(Err(problem)));
                        }
                        append(&mut self.pending, &data);
                    }
                    Err(trailers) => self.trailers = Some(trailers),
                },
                Some(Err(error)) => {
                    let problem = Problem::bad(format!("the body broke off: {error}"));
                    return Poll::Ready(Some(Err(problem)));
                }
                None => self.phase = Reading::Over,
            }
        }
        let piece = match self.pending.is_empty() {
            true => self.trailers.take(),
            false => Some(Frame::data(std::mem::take(&mut self.pending).into())),
        };
        Poll::Ready(piece.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.pending.is_empty() && self.trailers.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(self.pending.len() as u64));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(self.pending.len() as u64));
        }
        hint
    }
}

/// The body of an answer. When it is gone, the request is over.
pub(crate) struct Answer {
    inner: axum::body::Body,
    /// What was given by the body and is handed on in pieces.
    rest: Bytes,
    /// Ends a stream of events when the server stops, which would never end by itself.
    stopping: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    request: InFlight,
    /// Its place among answers that are not taken yet.
    unread: Arc<UnreadAnswer>,
    /// Whether its bytes are held for it alone, and count until they are gone.
    is_own: bool,
}

/// Bytes of an answer that are handed on at once; what comes after them waits until they were taken.
const PIECE_BYTES: usize = 64 << 10;

impl Answer {
    pub(crate) fn new(
        inner: axum::body::Body,
        request: InFlight,
        phase: Option<watch::Receiver<Phase>>,
        (unread, is_own): (UnreadAnswer, bool),
    ) -> Answer {
        let stopping = phase.map(|mut phase| {
            let stopping = async move { drop(phase.wait_for(|&phase| phase != Phase::Open).await) };
            Box::pin(stopping) as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        // Until it is asked for the first piece, the other end takes nothing.
        request.waits(true);
        let unread = Arc::new(unread);
        Answer { inner, rest: Bytes::new(), stopping, request, unread, is_own }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(stopping) = &mut self.stopping
            && stopping.as_mut().poll(cx).is_ready()
        {
            self.stopping = None;
            self.inner = axum::body::Body::empty();
        }
        // It is asked for more: what was given was taken.
        self.request.waits(false);
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if self.is_own => self.rest = self.unread.count(data),
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let piece = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(piece);
        self.request.waits(true);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests;
