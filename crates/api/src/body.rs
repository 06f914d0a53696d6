//! Body limits: size and read timeout of requests; tracking of responses until they are sent.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use render::time::format_age;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::connection::{ActiveRequest, ServerPhase};
use crate::error_response::ErrorResponse;
use crate::limits::{BodyReservation, RejectCounters, RejectReason};
use crate::response_buffers::BufferedResponse;

/// Retry delay when there is no memory for a body or a response.
pub(crate) const RETRY_AFTER_FULL: Duration = Duration::from_secs(1);

/// Body limits and the first violation.
#[derive(Debug)]
pub(crate) struct BodyLimits {
    pub(crate) reservation: Arc<BodyReservation>,
    reject_counters: Arc<RejectCounters>,
    bytes_max: usize,
    timeout: Duration,
    /// How the same data can be sent if the body is too large.
    size_remedy: &'static str,
    /// Error that ended the reading of the body.
    pub(crate) violation: OnceLock<ErrorResponse>,
}

impl BodyLimits {
    pub(crate) fn new(
        reservation: BodyReservation,
        rejects: &Arc<RejectCounters>,
        bytes_max: usize,
        timeout: Duration,
    ) -> BodyLimits {
        BodyLimits {
            reservation: Arc::new(reservation),
            reject_counters: Arc::clone(rejects),
            bytes_max,
            timeout,
            size_remedy: "split the request",
            violation: OnceLock::new(),
        }
    }

    /// For requests with a file.
    pub(crate) fn for_file(mut self) -> BodyLimits {
        self.size_remedy = "send the file in parts with `topdeck import FILE --server URL`";
        self
    }

    fn reject(&self, reason: RejectReason) -> ErrorResponse {
        self.reject_counters.count(reason);
        let problem = self.limit_error(reason);
        self.violation.get_or_init(|| problem).clone()
    }

    fn limit_error(&self, reason: RejectReason) -> ErrorResponse {
        match reason {
            RejectReason::BodyBytes => ErrorResponse::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "body size limit ({} bytes, compressed and decompressed) exceeded; {}",
                    self.bytes_max, self.size_remedy
                ),
            ),
            RejectReason::BodyReadTimeout => ErrorResponse::new(
                StatusCode::REQUEST_TIMEOUT,
                format!(
                    "body not received within {} (body_read_timeout)",
                    format_age(self.timeout)
                ),
            ),
            _ => ErrorResponse {
                status: StatusCode::TOO_MANY_REQUESTS,
                message: "body memory limit reached (max_buffered_body_bytes); retry in 1 s"
                    .to_owned(),
                retry_after: Some(RETRY_AFTER_FULL),
            },
        }
    }

    /// Rejects a body whose Content-Length exceeds the limit.
    pub(crate) fn check_content_length(&self, bytes: u64) -> Result<(), ErrorResponse> {
        if bytes > self.bytes_max as u64 {
            Err(self.reject(RejectReason::BodyBytes))
        } else {
            Ok(())
        }
    }

    /// Reserves memory for more decompressed bytes, `so_far` in total.
    pub(crate) fn reserve_decompressed(
        &self,
        so_far: usize,
        more: usize,
    ) -> Result<(), ErrorResponse> {
        if so_far > self.bytes_max {
            return Err(self.reject(RejectReason::BodyBytes));
        }
        self.hold(more)
    }

    /// Reserves memory that a body needs beside its bytes.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), ErrorResponse> {
        if self.reservation.reserve(bytes) {
            Ok(())
        } else {
            Err(self.reject(RejectReason::BufferedBodyBytes))
        }
    }

    /// Releases bytes reserved by [`BodyLimits::hold`].
    pub(crate) fn release(&self, bytes: usize) {
        self.reservation.release(bytes);
    }

    /// Maximum size of a body in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

/// Memory of a request beside its body, while the body is read and handled. Mostly the futures:
/// 10.3 kB in total were measured (`memory_of_many_small_bodies_is_accounted`).
const BODY_BYTES: usize = 10 << 10;

/// Appends to a buffer that grows to at most an eighth more than its length: doubling would exceed
/// the accounted memory.
pub(crate) fn append(buffer: &mut Vec<u8>, more: &[u8]) {
    if more.len() > buffer.capacity() - buffer.len() {
        buffer.reserve_exact(more.len().max(buffer.len() / 8));
    }
    buffer.extend_from_slice(more);
}

/// A request body, returned in one piece. Chunks are copied at once: the chunks of a body that
/// arrives byte by byte would take dozens of times as much memory, and joining chunks at the end
/// would need twice the memory.
pub(crate) struct LimitedBody<B> {
    inner: B,
    limits: Arc<BodyLimits>,
    /// Bytes received and not yet returned.
    pending: Vec<u8>,
    trailers: Option<Frame<Bytes>>,
    phase: Reading,
    deadline: Pin<Box<Sleep>>,
}

#[derive(PartialEq)]
enum Reading {
    /// Not polled yet.
    Unread,
    Begun,
    /// Complete.
    Over,
}

impl<B> LimitedBody<B> {
    pub(crate) fn new(inner: B, limits: Arc<BodyLimits>) -> LimitedBody<B> {
        let deadline = Box::pin(tokio::time::sleep_until(Instant::now() + limits.timeout));
        let (pending, phase) = (Vec::new(), Reading::Unread);
        LimitedBody { inner, limits, pending, trailers: None, phase, deadline }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    type Data = Bytes;
    type Error = ErrorResponse;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ErrorResponse>>> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(self.limits.reject(RejectReason::BodyReadTimeout))));
        }
        if self.phase == Reading::Unread && !self.inner.is_end_stream() {
            if let Err(problem) = self.limits.hold(BODY_BYTES) {
                return Poll::Ready(Some(Err(problem)));
            }
            self.phase = Reading::Begun;
        }
        while self.phase != Reading::Over {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let so_far = self.pending.len().saturating_add(data.len());
                        if let Err(problem) = self.limits.reserve_decompressed(so_far, data.len()) {
                            return Poll::Ready(Some(Err(problem)));
                        }
                        append(&mut self.pending, &data);
                    }
                    Err(trailers) => self.trailers = Some(trailers),
                },
                Some(Err(problem)) => {
                    let problem =
                        ErrorResponse::bad_request(format!("cannot read the body: {problem}"));
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

/// Response body; the request ends when it is dropped.
pub(crate) struct TrackedResponseBody {
    inner: axum::body::Body,
    /// Bytes of the inner body that are not yet passed on.
    remaining: Bytes,
    /// Ends an event stream when the server stops.
    stopping: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    request: ActiveRequest,
    /// Its reservation in the response buffers.
    buffered: Arc<BufferedResponse>,
    /// Whether its bytes are held for this response only, and count until they are freed.
    is_tracked: bool,
}

/// Bytes of a response passed on at once; the rest waits until they are sent.
const CHUNK_BYTES: usize = 64 << 10;

impl TrackedResponseBody {
    pub(crate) fn new(
        inner: axum::body::Body,
        request: ActiveRequest,
        phase: Option<watch::Receiver<ServerPhase>>,
        (unread, is_own): (BufferedResponse, bool),
    ) -> TrackedResponseBody {
        let stopping = phase.map(|mut phase| {
            let stopping =
                async move { drop(phase.wait_for(|&phase| phase != ServerPhase::Open).await) };
            Box::pin(stopping) as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        // Until the first chunk is polled, the client reads nothing.
        request.set_write_pending(true);
        let unread = Arc::new(unread);
        TrackedResponseBody {
            inner,
            remaining: Bytes::new(),
            stopping,
            request,
            buffered: unread,
            is_tracked: is_own,
        }
    }
}

impl Body for TrackedResponseBody {
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
        // A further poll means that the previous chunk was sent.
        self.request.set_write_pending(false);
        if self.remaining.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if self.is_tracked => self.remaining = self.buffered.track(data),
                    Ok(data) => self.remaining = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let piece = self.remaining.len().min(CHUNK_BYTES);
        let piece = self.remaining.split_to(piece);
        self.request.set_write_pending(true);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.remaining.len() as u64;
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
