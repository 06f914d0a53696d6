//! Connection acceptor.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use intake::{Restartable, Supervisor, catch_panic_async};
use net::tls::ServerTls;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Peer;
use crate::body::TrackedResponseBody;
use crate::connection::{ConnectionMonitor, MonitoredStream, ServerPhase};
use crate::grpc;
use crate::limits::{Limits, RejectReason};
use crate::middleware::RequestMiddleware;
use crate::response_buffers::{BufferedResponse, ConnectionResponseBuffers, SharedBody};

/// Pause after an accept error for lack of resources: open files, memory.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Maximum concurrent streams of an HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
/// Initial flow control window of an HTTP/2 stream, in bytes; that of a connection is four times as
/// large.
const STREAM_WINDOW: u32 = 256 << 10;
/// Minimum header buffer that hyper accepts.
const HEADER_BYTES_MIN: usize = 8 << 10;

/// TLS configuration for new connections, if any.
pub(crate) type TlsConfigCell = Option<Arc<RwLock<Arc<ServerConfig>>>>;

/// State shared by the connections of one listener.
#[derive(Clone)]
pub(crate) struct ListenerContext {
    pub(crate) middleware: Arc<RequestMiddleware>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) phase: watch::Receiver<ServerPhase>,
    pub(crate) tls: TlsConfigCell,
    pub(crate) tls_settings: Option<Arc<ServerTls>>,
    pub(crate) supervisor: Supervisor,
}

/// Accepts the connections of one address, until the server stops.
pub(crate) struct Acceptor {
    pub(crate) listener: TcpListener,
    pub(crate) context: ListenerContext,
}

impl Restartable for Acceptor {
    async fn run(&mut self) {
        let Acceptor { listener, context: accepting } = self;
        let executor = RequestExecutor(accepting.supervisor.clone());
        let builder = Arc::new(builder(&accepting.middleware.limits, executor));
        let mut phase = accepting.phase.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = phase.wait_for(|&phase| phase != ServerPhase::Open) => return,
                accepted = listener.accept() => accepted,
            };
            accepting.supervisor.failpoint("accept");
            let (stream, remote) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_connection_error(&error) => continue,
                Err(_) => {
                    accepting.middleware.reject_counters.count(RejectReason::AcceptError);
                    tokio::time::sleep(ERROR_PAUSE).await;
                    continue;
                }
            };
            match Arc::clone(&accepting.permits).try_acquire_owned() {
                Ok(permit) => {
                    let (accepting, builder) = (accepting.clone(), Arc::clone(&builder));
                    tokio::spawn(async move {
                        let supervisor = accepting.supervisor.clone();
                        let served = connection((stream, remote), accepting, builder, permit);
                        let served = catch_panic_async(served).await;
                        if let Err(panic) = served {
                            supervisor.thread("connection").record_caught_panic(&*panic);
                        }
                    });
                }
                Err(_) => accepting.middleware.reject_counters.count(RejectReason::Connections),
            }
        }
    }

    async fn wait_for_stop(&mut self) {
        // An error means that the sender is gone: also a stop.
        let _ = self.context.phase.wait_for(|&phase| phase != ServerPhase::Open).await;
    }
}

/// Whether accept failed for a connection that is already closed.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Runs the requests of HTTP/2 connections as tasks. A panic resets the stream and is counted for
/// the connection, as a panic in an HTTP/1 request is.
#[derive(Clone)]
struct RequestExecutor(Supervisor);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for RequestExecutor {
    fn execute(&self, request: F) {
        let supervisor = self.0.clone();
        tokio::spawn(async move {
            if let Err(panic) = catch_panic_async(request).await {
                supervisor.thread("connection").record_caught_panic(&*panic);
            }
        });
    }
}

fn builder(limits: &Limits, executor: RequestExecutor) -> Builder<RequestExecutor> {
    let mut builder = Builder::new(executor);
    let head = limits.max_header_bytes.max(HEADER_BYTES_MIN);
    // `connection` enforces the header timeout: it distinguishes an idle connection from a slow
    // one.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(4 * STREAM_WINDOW)
        .max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX));
    builder
}

async fn connection(
    (stream, remote): (TcpStream, SocketAddr),
    mut accepting: ListenerContext,
    builder: Arc<Builder<RequestExecutor>>,
    _permit: OwnedSemaphorePermit,
) {
    let Ok(local) = stream.local_addr() else { return };
    // TCP_NODELAY: without it small responses wait for the acknowledgement of earlier ones. It may
    // fail on a dead connection.
    let _ = stream.set_nodelay(true);
    let Some(secured) = &accepting.tls else {
        let peer = Peer { local, remote, certificate: Arc::default(), tls: None };
        return serve(stream, peer, accepting, &builder).await;
    };
    let config = Arc::clone(&secured.read().unwrap_or_else(PoisonError::into_inner));
    let handshake = tokio_rustls::TlsAcceptor::from(config).accept(stream);
    let handshake = tokio::select! {
        _ = accepting.phase.wait_for(|&phase| phase != ServerPhase::Open) => return,
        stream = tokio::time::timeout(accepting.middleware.limits.header_read_timeout, handshake) => stream,
    };
    let Ok(Ok(stream)) = handshake else {
        return accepting.middleware.reject_counters.count(RejectReason::Handshake);
    };
    let client_certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = client_certificate
        .map(|client_certificate| net::names(client_certificate))
        .unwrap_or_default()
        .into();
    let tls = accepting.tls_settings.clone();
    serve(stream, Peer { local, remote, certificate, tls }, accepting, &builder).await;
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    accepting: ListenerContext,
    builder: &Builder<RequestExecutor>,
) {
    let ListenerContext { middleware, mut phase, supervisor, .. } = accepting;
    let life = ConnectionMonitor::new();
    let service = {
        let (middleware, life, phase) = (Arc::clone(&middleware), Arc::clone(&life), phase.clone());
        let unread = ConnectionResponseBuffers::new(&middleware.response_buffers);
        service_fn(move |request: Request<Incoming>| {
            supervisor.failpoint(format_args!("request {}", request.uri().path()));
            let in_flight = life.begin_request();
            let (middleware, peer, phase) = (Arc::clone(&middleware), peer.clone(), phase.clone());
            let unread = Arc::clone(&unread);
            let supervisor = supervisor.clone();
            async move {
                supervisor.failpoint(format_args!("answer {}", request.uri().path()));
                let is_grpc = grpc::is_grpc(request.headers());
                // An HTTP/2 client could request many responses and read none.
                in_flight.set_write_pending(true);
                unread.wait_ready().await;
                in_flight.set_write_pending(false);
                let response = match middleware.response_buffers.is_full() {
                    true => middleware.response_buffers_full(is_grpc),
                    false => Arc::clone(&middleware).handle(peer, request).await,
                };
                let phase = is_endless(&response).then_some(phase);
                let (response, held) = track_response(&middleware, &unread, response, is_grpc);
                Ok::<_, Infallible>(
                    response.map(|body| TrackedResponseBody::new(body, in_flight, phase, held)),
                )
            }
        })
    };
    let io = TokioIo::new(MonitoredStream::new(stream, Arc::clone(&life)));
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let mut overdue = std::pin::pin!(life.wait_for_timeout(&middleware.limits));
    loop {
        tokio::select! {
            // The result is ignored: errors of the client are counted elsewhere.
            _ = connection.as_mut() => return,
            why = overdue.as_mut() => {
                why.into_iter().for_each(|why| middleware.reject_counters.count(why));
                return;
            }
            changed = phase.changed() => {
                if changed.is_err() || *phase.borrow() == ServerPhase::Closed {
                    return;
                }
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Reserves buffer space for a response, or returns the error response; and whether its bytes are
/// counted.
fn track_response(
    middleware: &RequestMiddleware,
    unread: &Arc<ConnectionResponseBuffers>,
    response: Response<Body>,
    is_grpc: bool,
) -> (Response<Body>, (BufferedResponse, bool)) {
    let is_own = response.extensions().get::<SharedBody>().is_none();
    // A stream has limits of its own.
    let bytes = if is_own { response.body().size_hint().exact().unwrap_or(0) } else { 0 };
    if let Some(reservation) = unread.reserve(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        return (response, (reservation, is_own));
    }
    let refusal = middleware.response_buffers_full(is_grpc);
    let held = unread.reserve(0).expect("BUG: a tiny response is always admitted");
    (refusal, (held, true))
}

/// Whether a response has no end.
fn is_endless(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}
