//! HTTP client connections with per-phase timeouts: resolve, connect, TLS.
//!
//! Addresses are tried in the order of the resolver. With TLS, ALPN (RFC 7301) selects the HTTP
//! version from the list in the TLS configuration; without TLS it is 1.1.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificate::expiry;
use crate::endpoint::Endpoint;
use crate::lookup;
use crate::tls::{ClientTls, TlsError};

/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// TCP keepalive: idle time before the first probe, and interval of probes.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// Timeouts of connection phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialTimeouts {
    /// Name resolution: 5 s by default.
    pub resolve: Duration,
    /// Connection, all addresses together: 5 s by default.
    pub connect: Duration,
    /// TLS handshake: 5 s by default.
    pub tls: Duration,
}

impl Default for DialTimeouts {
    fn default() -> DialTimeouts {
        let limit = Duration::from_secs(5);
        DialTimeouts { resolve: limit, connect: limit, tls: limit }
    }
}

/// Duration of each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// Name resolution.
    pub resolve: Duration,
    /// Connection.
    pub connect: Duration,
    /// TLS handshake; 0 without TLS.
    pub tls: Duration,
}

/// Phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// Name resolution.
    Resolve,
    /// Connection.
    Connect,
    /// TLS handshake.
    Tls,
    /// From the request to the end of the response.
    Response,
}

impl RequestPhase {
    fn name(self) -> &'static str {
        match self {
            RequestPhase::Resolve => "cannot resolve",
            RequestPhase::Connect => "cannot connect to",
            RequestPhase::Tls => "TLS handshake failed with",
            RequestPhase::Response => "no response from",
        }
    }
}

/// Request error with its phase.
#[derive(Debug, thiserror::Error)]
#[error("{} {target}: {reason}", phase.name())]
pub struct Error {
    /// Host and port.
    pub target: String,
    /// The phase that failed.
    pub phase: RequestPhase,
    /// Cause.
    pub reason: String,
    /// Whether the timeout expired.
    pub is_timeout: bool,
}

/// Result of dialling and requests.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Opens connections. Without a TLS configuration, the default, `https` is rejected.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    limits: DialTimeouts,
    tls: Option<Arc<ClientConfig>>,
    /// Whether connections without TLS use HTTP/2.
    has_prior_knowledge: bool,
}

/// A connection that is being opened.
type DialFuture<'a> =
    Pin<Box<dyn Future<Output = Result<(HttpConnection, PhaseTimes)>> + Send + 'a>>;
/// A TCP connection that is being opened.
type OpenFuture<'a> = Pin<Box<dyn Future<Output = Result<(TcpStream, PhaseTimes)>> + Send + 'a>>;
/// A TLS handshake in progress.
type SecureFuture<'a> = Pin<Box<dyn Future<Output = Result<TlsStream<TcpStream>>> + Send + 'a>>;

/// Earliest expiry of the peer's certificates, in seconds since the Unix epoch.
pub fn certificate_expiry(stream: &TlsStream<TcpStream>) -> Option<i64> {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    certificates.iter().filter_map(|certificate| expiry(certificate)).min()
}

impl Dialer {
    /// A dialer for an endpoint. For `https` it reads the files of `tls` now. `alpn` lists
    /// protocols by preference; without any it is HTTP/1.1.
    pub fn for_target(
        target: &Endpoint,
        tls: &ClientTls,
        alpn: &[&[u8]],
        limits: DialTimeouts,
    ) -> Result<Dialer, TlsError> {
        if !target.secure {
            return Ok(Dialer { limits, ..Dialer::default() });
        }
        let mut config = tls.config()?;
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Dialer { limits, tls: Some(Arc::new(config)), has_prior_knowledge: false })
    }

    /// Uses HTTP/2 without TLS too, with prior knowledge (RFC 9113, section 3.3).
    #[must_use]
    pub fn with_prior_knowledge(mut self) -> Dialer {
        self.has_prior_knowledge = true;
        self
    }

    /// Opens a connection, and returns the duration of each phase.
    // Not an `async fn`: each crate that awaits one compiles it again, with both HTTP versions and
    // TLS (25 kB).
    #[inline(never)]
    pub fn dial<'a>(&'a self, target: &'a Endpoint) -> DialFuture<'a> {
        Box::pin(self.dial_in_phases(target))
    }

    async fn dial_in_phases(&self, target: &Endpoint) -> Result<(HttpConnection, PhaseTimes)> {
        let (stream, mut phases) = self.open(target).await?;
        if !target.secure {
            let (sender, driver) = match self.has_prior_knowledge {
                true => handshake_http2(target, stream).await?,
                false => handshake_http1(target, stream).await?,
            };
            return Ok((HttpConnection::new(target, sender, driver), phases));
        }
        let stream = measure(&mut phases.tls, self.secure(target, stream)).await?;
        let expires = certificate_expiry(&stream);
        let (sender, driver) = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => handshake_http2(target, stream).await?,
            _ => handshake_http1(target, stream).await?,
        };
        let mut connection = HttpConnection::new(target, sender, driver);
        connection.expires = expires;
        Ok((connection, phases))
    }

    /// Opens a TCP connection for another protocol than HTTP, without TLS, and returns the duration
    /// of each phase.
    pub fn open<'a>(&'a self, target: &'a Endpoint) -> OpenFuture<'a> {
        Box::pin(async move {
            let mut phases = PhaseTimes::default();
            let addresses = measure(&mut phases.resolve, self.resolve(target)).await?;
            let stream = measure(&mut phases.connect, self.connect(target, &addresses)).await?;
            Ok((stream, phases))
        })
    }

    /// Performs the TLS handshake over an open connection. The dialer must be one of an endpoint
    /// with TLS.
    pub fn secure<'a>(&'a self, target: &'a Endpoint, stream: TcpStream) -> SecureFuture<'a> {
        Box::pin(self.handshake(target, stream))
    }

    /// First address of the target, for protocols without connections, and the duration of name
    /// resolution.
    pub async fn address(&self, target: &Endpoint) -> Result<(SocketAddr, Duration)> {
        let mut took = Duration::ZERO;
        let addresses = measure(&mut took, self.resolve(target)).await?;
        Ok((addresses[0], took))
    }

    async fn resolve(&self, target: &Endpoint) -> Result<Vec<SocketAddr>> {
        let fail = error_in_phase(target, RequestPhase::Resolve);
        let found = lookup::resolve_addresses(&target.host, target.port, ADDRESSES_MAX);
        let found = with_timeout(self.limits.resolve, found, &fail).await?;
        let addresses = found.map_err(|error| fail(error.to_string(), false))?;
        match addresses.is_empty() {
            true => Err(fail("the name has no address".to_owned(), false)),
            false => Ok(addresses),
        }
    }

    async fn connect(&self, target: &Endpoint, addresses: &[SocketAddr]) -> Result<TcpStream> {
        let fail = error_in_phase(target, RequestPhase::Connect);
        let end = Instant::now() + self.limits.connect;
        let mut last = fail("timed out before connecting".to_owned(), true);
        for (at, address) in addresses.iter().enumerate() {
            // The remaining addresses share the remaining time.
            let remaining = end.saturating_duration_since(Instant::now());
            let share = remaining / u32::try_from(addresses.len() - at).unwrap_or(1);
            match with_timeout(share, TcpStream::connect(address), &fail).await {
                Ok(Ok(stream)) => {
                    configure_socket(&stream).map_err(|error| fail(error.to_string(), false))?;
                    return Ok(stream);
                }
                Ok(Err(error)) => {
                    let address = address.to_string();
                    let reason = match address == last.target {
                        true => error.to_string(),
                        false => format!("{address}: {error}"),
                    };
                    last = fail(reason, false);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn handshake(
        &self,
        target: &Endpoint,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>> {
        let fail = error_in_phase(target, RequestPhase::Tls);
        let Some(tls) = &self.tls else {
            return Err(fail("TLS is not configured".to_owned(), false));
        };
        let name = ServerName::try_from(target.host.clone())
            .map_err(|error| fail(error.to_string(), false))?;
        let connecting = TlsConnector::from(Arc::clone(tls)).connect(name, stream);
        with_timeout(self.limits.tls, connecting, &fail)
            .await?
            .map_err(|error| fail(handshake_error_text(&error), false))
    }
}

/// Reason of a failed handshake; the commonest one in words.
fn handshake_error_text(error: &std::io::Error) -> String {
    let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match of_tls {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            "the server does not use TLS; use http://".to_owned()
        }
        _ => error.to_string(),
    }
}

async fn measure<T>(took: &mut Duration, future: impl Future<Output = Result<T>>) -> Result<T> {
    let began = Instant::now();
    let result = future.await;
    *took = began.elapsed();
    result
}

fn error_in_phase(
    target: &Endpoint,
    phase: RequestPhase,
) -> impl Fn(String, bool) -> Error + use<> {
    let target = format!("{}:{}", target.host, target.port);
    move |reason, timed_out| Error { target: target.clone(), phase, reason, is_timeout: timed_out }
}

async fn with_timeout<T>(
    limit: Duration,
    future: impl Future<Output = T>,
    fail: &impl Fn(String, bool) -> Error,
) -> Result<T> {
    let late = |_| fail(format!("timed out after {} ms", limit.as_millis()), true);
    timeout(limit, future).await.map_err(late)
}

fn configure_socket(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (time, interval) = KEEPALIVE;
    let keepalive = socket2::TcpKeepalive::new().with_time(time).with_interval(interval);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

#[derive(Debug)]
enum RequestSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

type HandshakeResult = (RequestSender, JoinHandle<()>);

async fn handshake_http1<S>(target: &Endpoint, stream: S) -> Result<HandshakeResult>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let fail = error_in_phase(target, RequestPhase::Connect);
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| fail(error.to_string(), false))?;
    // The request in flight receives the connection's error too.
    let driver = tokio::spawn(async move { drop(connection.await) });
    Ok((RequestSender::Http1(sender), driver))
}

async fn handshake_http2<S>(target: &Endpoint, stream: S) -> Result<HandshakeResult>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let fail = error_in_phase(target, RequestPhase::Connect);
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| fail(error.to_string(), false))?;
    let driver = tokio::spawn(async move { drop(connection.await) });
    Ok((RequestSender::Http2(sender), driver))
}

/// Limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// From the start of the request to the end of the response.
    pub timeout: Duration,
    /// Maximum size of the response body, in bytes.
    pub max_bytes: usize,
}

/// Response with its body and timings.
#[derive(Debug)]
pub struct HttpResponse {
    /// The response.
    pub response: Response<Bytes>,
    /// From the start of the request to the response headers.
    pub time_to_headers: Duration,
    /// From the response headers to the end of the body.
    pub body_time: Duration,
}

/// HTTP connection. Dropping it closes it.
#[derive(Debug)]
pub struct HttpConnection {
    target: Endpoint,
    sender: RequestSender,
    driver: JoinHandle<()>,
    expires: Option<i64>,
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl HttpConnection {
    fn new(target: &Endpoint, sender: RequestSender, driver: JoinHandle<()>) -> HttpConnection {
        HttpConnection { target: target.clone(), sender, driver, expires: None }
    }

    /// Whether the connection accepts another request. The peer may close it at any time.
    pub fn is_open(&self) -> bool {
        match &self.sender {
            RequestSender::Http1(sender) => !sender.is_closed(),
            RequestSender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// HTTP version.
    pub fn version(&self) -> Version {
        match &self.sender {
            RequestSender::Http1(_) => Version::HTTP_11,
            RequestSender::Http2(_) => Version::HTTP_2,
        }
    }

    /// Earliest expiry of the peer's certificates, in seconds since the Unix epoch.
    pub fn expires(&self) -> Option<i64> {
        self.expires
    }

    /// Sends a request and reads the response. The request's URI is a path; host and scheme are the
    /// endpoint's. After an error the connection is unusable.
    pub async fn send(
        &mut self,
        request: Request<Bytes>,
        allowed: ResponseLimits,
    ) -> Result<HttpResponse> {
        let fail = error_in_phase(&self.target, RequestPhase::Response);
        let answer = async {
            let (head, times) = self.exchange(request, &fail).await?;
            let (head, body) = head.into_parts();
            let body = read_body(body, allowed.max_bytes, &fail).await?;
            Ok::<_, Error>(times.into_response(Response::from_parts(head, body)))
        };
        with_timeout(allowed.timeout, answer, &fail).await?
    }

    /// [`Self::send`], but a response body above the limit is truncated instead of an error.
    /// Afterwards the connection is unusable.
    pub async fn send_and_truncate(
        &mut self,
        request: Request<Bytes>,
        allowed: ResponseLimits,
    ) -> Result<HttpResponse> {
        let fail = error_in_phase(&self.target, RequestPhase::Response);
        let answer = async {
            let (head, times) = self.exchange(request, &fail).await?;
            let (head, body) = head.into_parts();
            let body = read_body_prefix(body, allowed.max_bytes, &fail).await?;
            Ok::<_, Error>(times.into_response(Response::from_parts(head, body)))
        };
        with_timeout(allowed.timeout, answer, &fail).await?
    }

    /// Sends a request whose response does not end, and passes the parts of its body with the
    /// status, until `each` breaks or the peer closes the connection. Afterwards the connection is
    /// unusable.
    pub async fn send_and_stream(
        &mut self,
        request: Request<Bytes>,
        each: &mut dyn FnMut(StatusCode, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let fail = error_in_phase(&self.target, RequestPhase::Response);
        let (response, _) = self.exchange(request, &fail).await?;
        let (status, mut body) = (response.status(), response.into_body());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| fail(error_chain(&error), false))?;
            if let Some(data) = frame.data_ref()
                && each(status, data).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    async fn exchange(
        &mut self,
        request: Request<Bytes>,
        fail: &impl Fn(String, bool) -> Error,
    ) -> Result<(Response<Incoming>, RequestTimes)> {
        let began = Instant::now();
        let request = self.with_host(request).map_err(|error| fail(error.to_string(), false))?;
        let broken = |error: hyper::Error| fail(error_chain(&error), false);
        let response = match &mut self.sender {
            RequestSender::Http1(sender) => {
                sender.ready().await.map_err(broken)?;
                sender.send_request(request).await.map_err(broken)?
            }
            RequestSender::Http2(sender) => {
                sender.ready().await.map_err(broken)?;
                sender.send_request(request).await.map_err(broken)?
            }
        };
        Ok((response, RequestTimes { started: began, time_to_headers: began.elapsed() }))
    }

    /// HTTP/1 has the host in a header, HTTP/2 in the URI.
    fn with_host(&self, request: Request<Bytes>) -> http::Result<Request<Full<Bytes>>> {
        let (mut head, body) = request.into_parts();
        let authority = self.target.authority();
        match &self.sender {
            RequestSender::Http1(_) => {
                head.headers.insert(header::HOST, HeaderValue::try_from(authority)?);
            }
            RequestSender::Http2(_) => {
                let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
                let scheme = if self.target.secure { "https" } else { "http" };
                head.uri = Uri::builder()
                    .scheme(scheme)
                    .authority(authority)
                    .path_and_query(path)
                    .build()?;
            }
        }
        Ok(Request::from_parts(head, Full::new(body)))
    }
}

/// Timings of a request until its headers.
struct RequestTimes {
    started: Instant,
    time_to_headers: Duration,
}

impl RequestTimes {
    /// Adds the timings to the response.
    fn into_response(self, response: Response<Bytes>) -> HttpResponse {
        let reading = self.started.elapsed().saturating_sub(self.time_to_headers);
        HttpResponse { response, time_to_headers: self.time_to_headers, body_time: reading }
    }
}

async fn read_body(
    body: Incoming,
    bytes_max: usize,
    fail: &impl Fn(String, bool) -> Error,
) -> Result<Bytes> {
    let collected = Limited::new(body, bytes_max).collect().await;
    let body = collected.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => fail(format!("response body exceeds {bytes_max} bytes"), false),
        None => fail(error.to_string(), false),
    })?;
    Ok(body.to_bytes())
}

async fn read_body_prefix(
    mut body: Incoming,
    bytes_max: usize,
    fail: &impl Fn(String, bool) -> Error,
) -> Result<Bytes> {
    let mut read = Vec::new();
    while read.len() < bytes_max
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| fail(error_chain(&error), false))?;
        if let Some(data) = frame.data_ref() {
            read.extend_from_slice(&data[..data.len().min(bytes_max - read.len())]);
        }
    }
    Ok(read.into())
}

/// An error with its causes in one line: hyper's own message lacks them.
fn error_chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
