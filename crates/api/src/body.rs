//! Bodies under limits: of requests, by size and time; of answers, so that a request is over when all of it was given.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
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
        if !self.held.more(more) {
            return Err(self.broken(Why::BodiesBytes));
        }
        Ok(())
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

/// The body of a request, in pieces that take about as much memory as they have bytes: one that
/// comes byte by byte would take dozens of times as much in the pieces in which it comes.
pub(crate) struct Limited<B> {
    inner: B,
    bound: Arc<Bound>,
    bytes: usize,
    /// What came and is not given yet.
    pending: BytesMut,
    trailers: Option<Frame<Bytes>>,
    deadline: Pin<Box<Sleep>>,
}

impl<B> Limited<B> {
    pub(crate) fn new(inner: B, bound: Arc<Bound>) -> Limited<B> {
        let deadline = Box::pin(tokio::time::sleep_until(Instant::now() + bound.time_max));
        let pending = BytesMut::new();
        Limited { inner, bound, bytes: 0, pending, trailers: None, deadline }
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
        while self.pending.len() < PIECE_BYTES && self.trailers.is_none() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        self.bytes = self.bytes.saturating_add(data.len());
                        if let Err(problem) = self.bound.unpacked(self.bytes, data.len()) {
                            return Poll::Ready(Some(Err(problem)));
                        }
                        self.pending.extend_from_slice(&data);
                    }
                    Err(trailers) => self.trailers = Some(trailers),
                },
                Some(Err(error)) => {
                    let problem = Problem::bad(format!("the body broke off: {error}"));
                    return Poll::Ready(Some(Err(problem)));
                }
                None => break,
            }
        }
        let piece = match self.pending.is_empty() {
            true => self.trailers.take(),
            false => Some(Frame::data(self.pending.split().freeze())),
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

/// Bytes of a body that are handed on at once; what comes after them in an answer waits until they
/// were taken.
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
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::limits::Room;

    /// A body that comes byte by byte.
    struct Bytewise(usize);

    impl Body for Bytewise {
        type Data = Bytes;
        type Error = hyper::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            self.0 -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test]
    async fn a_body_that_comes_byte_by_byte_is_held_in_few_pieces() {
        const BYTES: usize = 300_000;
        let room = Room::new(1 << 20);
        let refused = Arc::new(Refused::new(&intake::Meter::default()));
        let bound = Bound::new(Held::new(&room), &refused, 1 << 20, Duration::from_secs(60));
        let mut body = pin!(Limited::new(Bytewise(BYTES), Arc::new(bound)));
        let (mut bytes, mut pieces) = (0, 0);
        while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            bytes += frame.unwrap().into_data().unwrap().len();
            pieces += 1;
        }
        assert_eq!((bytes, pieces), (BYTES, BYTES.div_ceil(PIECE_BYTES)));
        assert_eq!(room.used(), BYTES);
    }
}
