//! Memory of bodies, measured by the allocator, compared with the accounted memory.
//!
//! While a buffer grows, the counting allocator sees the old and the new buffer. glibc's allocator
//! moves the pages of large buffers instead (`mremap`). So memory is compared only between two
//! steps.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::RwLock;
use std::task::Waker;

use allocation_counter::measure;
use axum::body::to_bytes;
use axum::response::Response;
use http::Request;

use super::*;
use crate::access::{AccessPolicy, Peer};
use crate::limits::{BodyBudget, BodyReservation, Limits};
use crate::middleware::RequestMiddleware;
use crate::query_service::QueryServiceSettings;
use crate::test_server::{TestServer, empty_store};
use crate::token::TokenFile;

const BODY_BYTES_MAX: usize = 16 << 20;
/// Allocated per accounted memory: small allocations of a request are not accounted.
const TOLERANCE: f64 = 1.2;

/// A body in chunks of one size; after the given number of chunks it waits, or ends.
struct ChunkedBody {
    bytes: usize,
    readable: Arc<std::sync::atomic::AtomicUsize>,
    piece: usize,
}

impl Body for ChunkedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.bytes == 0 {
            return Poll::Ready(None);
        }
        let piece = self.piece.min(self.bytes);
        let readable = self.readable.load(std::sync::atomic::Ordering::Relaxed);
        if readable < piece {
            return Poll::Pending;
        }
        self.readable.fetch_sub(piece, std::sync::atomic::Ordering::Relaxed);
        self.bytes -= piece;
        Poll::Ready(Some(Ok(Frame::data(vec![b'x'; piece].into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes == 0
    }
}

/// Memory allocated by this thread.
#[derive(Default)]
struct AllocatedBytes(i64);

impl AllocatedBytes {
    fn run<T>(&mut self, action: impl FnOnce() -> T) -> T {
        let mut result = None;
        self.0 += measure(|| result = Some(action())).bytes_current;
        result.expect("BUG: it ran")
    }

    #[track_caller]
    fn check(&self, counted: usize, about: &str) {
        let is_enough = counted as f64 * TOLERANCE >= self.0 as f64;
        assert!(is_enough, "{about}: {} bytes are allocated, {counted} are counted", self.0);
    }
}

/// One body, checked ten times while it arrives, and when it is complete.
fn check_one(piece: usize, bytes: usize) {
    let budget = BodyBudget::new(1 << 30);
    let rejects = Arc::new(RejectCounters::new(&intake::Meter::default()));
    let readable = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut allocated = AllocatedBytes::default();
    let mut reading = allocated.run(|| {
        let limits = BodyLimits::new(
            BodyReservation::new(&budget),
            &rejects,
            1 << 30,
            Duration::from_secs(60),
        );
        let body_chunks = ChunkedBody { bytes, readable: Arc::clone(&readable), piece };
        let limits = Arc::new(limits);
        let body = axum::body::Body::new(LimitedBody::new(body_chunks, Arc::clone(&limits)));
        Box::pin(async move { (to_bytes(body, usize::MAX).await, limits) })
    });
    let mut context = Context::from_waker(Waker::noop());
    for tenth in 1..=10 {
        readable.fetch_add(bytes.div_ceil(10), std::sync::atomic::Ordering::Relaxed);
        let about = || format!("{bytes} bytes in chunks of {piece}, after {tenth} tenths");
        match allocated.run(|| reading.as_mut().poll(&mut context)) {
            Poll::Pending => allocated.check(budget.used(), &about()),
            Poll::Ready((body, _bound)) => {
                let body = body.expect("it can be read");
                allocated.check(budget.used(), &about());
                assert_eq!(body.len(), bytes);
                return;
            }
        }
    }
    panic!("{bytes} bytes in chunks of {piece}: the body does not end");
}

#[tokio::test]
async fn memory_of_a_body_is_accounted_for_every_chunk_size() {
    for piece in [1, 2, 7, 333, 4_097, 65_536, 1_000_003] {
        for bytes in [1, 100, 5_000, 65_537, 300_000] {
            check_one(piece, bytes);
        }
    }
    check_one(1, 3_000_001);
    check_one(65_536, BODY_BYTES_MAX);
}

#[tokio::test]
async fn memory_of_many_small_bodies_is_accounted() {
    const REQUESTS: usize = 300;
    let meter = Arc::new(intake::Meter::default());
    let access = AccessPolicy {
        tokens: RwLock::new(Arc::new(TokenFile::empty())),
        is_required: false,
        hosts: Vec::new(),
        senders: RwLock::default(),
    };
    let context = TestServer::with_store(empty_store(), QueryServiceSettings::default()).context;
    let router = crate::server::router(&context, BODY_BYTES_MAX).with_state(context);
    let middleware = Arc::new(RequestMiddleware::new(access, Limits::default(), router, &meter));
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 7717));
    let peer = Peer { local, remote: local, certificate: Arc::default(), tls: None };
    for path in ["/v1/record?metric=a", "/v1/metrics", "/api/v1/write", "/v1/batches"] {
        let readable = Arc::new(std::sync::atomic::AtomicUsize::new(usize::MAX / 2));
        let mut allocated = AllocatedBytes::default();
        let mut answers: Vec<Pin<Box<dyn Future<Output = Response>>>> = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        for at in 0..REQUESTS {
            // Each waits for its last byte.
            let bytes = 1 + at % 50;
            readable.store(bytes - 1, std::sync::atomic::Ordering::Relaxed);
            allocated.run(|| {
                let body_chunks = ChunkedBody { bytes, readable: Arc::clone(&readable), piece: 1 };
                let request = Request::post(path).header("host", "localhost:7717");
                let request = request.body(body_chunks).expect("it is a request");
                let mut answer: Pin<Box<dyn Future<Output = Response>>> =
                    Box::pin(Arc::clone(&middleware).handle(peer.clone(), request));
                let is_waiting = answer.as_mut().poll(&mut context).is_pending();
                assert!(is_waiting, "{path} answers a body that is not whole");
                answers.push(answer);
            });
        }
        allocated.check(middleware.body_budget.used(), path);
        drop(answers);
        assert_eq!(middleware.body_budget.used(), 0, "{path}");
    }
}
