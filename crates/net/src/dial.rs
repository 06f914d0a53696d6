//! Dialling: resolve, connect, TLS, each with a limit and its time, then HTTP over what came of it.
//!
//! Addresses are tried one after the other, as the resolver gave them. Which version of HTTP is spoken over TLS
//! says ALPN (RFC 7301), from the list that the TLS settings have; without TLS it is 1.1.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, Version, header};
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
use crate::lookup;
use crate::target::Target;
use crate::tls::{ClientTls, TlsError};

/// Addresses of a name that are tried at the most.
const ADDRESSES_MAX: usize = 8;
/// How long a connection may be silent before it is asked whether it is still there, and how often.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// How long each phase may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the name to addresses: 5 s by default.
    pub resolve: Duration,
    /// To a connection, all addresses together: 5 s by default.
    pub connect: Duration,
    /// The handshake of TLS: 5 s by default.
    pub tls: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let limit = Duration::from_secs(5);
        Limits { resolve: limit, connect: limit, tls: limit }
    }
}

/// How long each phase took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// From the name to addresses.
    pub resolve: Duration,
    /// To a connection.
    pub connect: Duration,
    /// The handshake of TLS; nothing without.
    pub tls: Duration,
}

/// A part of the way to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// From the name to addresses.
    Resolve,
    /// To a connection.
    Connect,
    /// The handshake of TLS.
    Tls,
    /// From the request to the end of the answer.
    Answer,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Resolve => "no address",
            Phase::Connect => "no connection",
            Phase::Tls => "no TLS",
            Phase::Answer => "no answer",
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{} from {target}: {why}", phase.name())]
pub struct Error {
    /// Who was dialled: host and port.
    pub target: String,
    /// How far it came.
    pub phase: Phase,
    /// What went wrong.
    pub why: String,
    /// Whether it was that the time was over.
    pub timed_out: bool,
}

/// The result of dialling and asking.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Dials. Without settings for TLS, as by default, `https` is refused.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    limits: Limits,
    tls: Option<Arc<ClientConfig>>,
}

impl Dialer {
    /// For a target, with what `tls` says where it is spoken to through TLS: its files are read now. Of the protocols
    /// (ALPN) the better is first; without any it is HTTP/1.1.
    pub fn to(
        target: &Target,
        tls: &ClientTls,
        alpn: &[&[u8]],
        limits: Limits,
    ) -> Result<Dialer, TlsError> {
        if !target.secure {
            return Ok(Dialer { limits, tls: None });
        }
        let mut config = tls.config()?;
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Dialer { limits, tls: Some(Arc::new(config)) })
    }

    /// A connection, and how long it took.
    pub async fn dial(&self, target: &Target) -> Result<(Connection, Phases)> {
        let mut phases = Phases::default();
        let addresses = timed(&mut phases.resolve, self.resolve(target)).await?;
        let stream = timed(&mut phases.connect, self.connect(target, &addresses)).await?;
        if !target.secure {
            let (sender, driver) = http1(target, stream).await?;
            return Ok((Connection::new(target, sender, driver), phases));
        }
        let stream = timed(&mut phases.tls, self.handshake(target, stream)).await?;
        let tls = stream.get_ref().1;
        let shown = tls.peer_certificates().unwrap_or_default();
        let expires = shown.iter().filter_map(|shown| expiry(shown)).min();
        let (sender, driver) = match tls.alpn_protocol() {
            Some(b"h2") => http2(target, stream).await?,
            _ => http1(target, stream).await?,
        };
        let mut connection = Connection::new(target, sender, driver);
        connection.expires = expires;
        Ok((connection, phases))
    }

    async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>> {
        let fail = failing(target, Phase::Resolve);
        let found = lookup::addresses(&target.host, target.port, ADDRESSES_MAX);
        let found = within(self.limits.resolve, found, &fail).await?;
        let addresses = found.map_err(|error| fail(error.to_string(), false))?;
        match addresses.is_empty() {
            true => Err(fail("the name has none".to_owned(), false)),
            false => Ok(addresses),
        }
    }

    async fn connect(&self, target: &Target, addresses: &[SocketAddr]) -> Result<TcpStream> {
        let fail = failing(target, Phase::Connect);
        let end = Instant::now() + self.limits.connect;
        let mut last = fail("there was no time for it".to_owned(), true);
        for (at, address) in addresses.iter().enumerate() {
            // Those that are still to come get their share of the time.
            let left = end.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - at).unwrap_or(1);
            match within(share, TcpStream::connect(address), &fail).await {
                Ok(Ok(stream)) => {
                    prepare(&stream).map_err(|error| fail(error.to_string(), false))?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last = fail(format!("{address}: {error}"), false),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn handshake(&self, target: &Target, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        let fail = failing(target, Phase::Tls);
        let Some(tls) = &self.tls else {
            return Err(fail("there are no settings for it".to_owned(), false));
        };
        let name = ServerName::try_from(target.host.clone())
            .map_err(|error| fail(error.to_string(), false))?;
        let connecting = TlsConnector::from(Arc::clone(tls)).connect(name, stream);
        within(self.limits.tls, connecting, &fail)
            .await?
            .map_err(|error| fail(error.to_string(), false))
    }
}

async fn timed<T>(took: &mut Duration, future: impl Future<Output = Result<T>>) -> Result<T> {
    let began = Instant::now();
    let result = future.await;
    *took = began.elapsed();
    result
}

fn failing(target: &Target, phase: Phase) -> impl Fn(String, bool) -> Error + use<> {
    let target = format!("{}:{}", target.host, target.port);
    move |why, timed_out| Error { target: target.clone(), phase, why, timed_out }
}

async fn within<T>(
    limit: Duration,
    future: impl Future<Output = T>,
    fail: &impl Fn(String, bool) -> Error,
) -> Result<T> {
    let late = |_| fail(format!("not within {} ms", limit.as_millis()), true);
    timeout(limit, future).await.map_err(late)
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (time, interval) = KEEPALIVE;
    let keepalive = socket2::TcpKeepalive::new().with_time(time).with_interval(interval);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

type Made = (Sender, JoinHandle<()>);

async fn http1<S>(target: &Target, stream: S) -> Result<Made>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let fail = failing(target, Phase::Connect);
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| fail(error.to_string(), false))?;
    // What it ends with, the request in flight is told too.
    let driver = tokio::spawn(async move { drop(connection.await) });
    Ok((Sender::Http1(sender), driver))
}

async fn http2<S>(target: &Target, stream: S) -> Result<Made>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let fail = failing(target, Phase::Connect);
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| fail(error.to_string(), false))?;
    let driver = tokio::spawn(async move { drop(connection.await) });
    Ok((Sender::Http2(sender), driver))
}

/// What one request may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// From its beginning to the end of the answer.
    pub time: Duration,
    /// Bytes of the answer's body.
    pub bytes: usize,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    /// It.
    pub response: Response<Bytes>,
    /// From the request's beginning until the answer began.
    pub waited: Duration,
    /// From then until it was there.
    pub reading: Duration,
}

/// A connection over which HTTP is spoken. It ends when this is dropped.
#[derive(Debug)]
pub struct Connection {
    target: Target,
    sender: Sender,
    driver: JoinHandle<()>,
    expires: Option<i64>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    fn new(target: &Target, sender: Sender, driver: JoinHandle<()>) -> Connection {
        Connection { target: target.clone(), sender, driver, expires: None }
    }

    /// Whether another request may be tried. The other side may close it at any time.
    pub fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// The version of HTTP.
    pub fn version(&self) -> Version {
        match &self.sender {
            Sender::Http1(_) => Version::HTTP_11,
            Sender::Http2(_) => Version::HTTP_2,
        }
    }

    /// When the first of the certificates ends that the other side has shown, in seconds since the Unix epoch.
    pub fn expires(&self) -> Option<i64> {
        self.expires
    }

    /// Sends a request and reads the answer. Its URI is a path; host and scheme are the target's. After an
    /// error the connection is of no more use.
    pub async fn send(&mut self, request: Request<Bytes>, allowed: Allowance) -> Result<Answer> {
        let fail = failing(&self.target, Phase::Answer);
        let answer = async {
            let (head, times) = self.exchange(request, &fail).await?;
            let (head, body) = head.into_parts();
            let body = whole(body, allowed.bytes, &fail).await?;
            Ok::<_, Error>(times.answer(Response::from_parts(head, body)))
        };
        within(allowed.time, answer, &fail).await?
    }

    /// The same; of a longer answer than is allowed the beginning is enough. After that the connection is of no
    /// more use.
    pub async fn send_for_beginning(
        &mut self,
        request: Request<Bytes>,
        allowed: Allowance,
    ) -> Result<Answer> {
        let fail = failing(&self.target, Phase::Answer);
        let answer = async {
            let (head, times) = self.exchange(request, &fail).await?;
            let (head, body) = head.into_parts();
            let body = beginning(body, allowed.bytes, &fail).await?;
            Ok::<_, Error>(times.answer(Response::from_parts(head, body)))
        };
        within(allowed.time, answer, &fail).await?
    }

    async fn exchange(
        &mut self,
        request: Request<Bytes>,
        fail: &impl Fn(String, bool) -> Error,
    ) -> Result<(Response<Incoming>, Times)> {
        let began = Instant::now();
        let request = self.addressed(request).map_err(|error| fail(error.to_string(), false))?;
        let broken = |error: hyper::Error| fail(told(&error), false);
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await.map_err(broken)?;
                sender.send_request(request).await.map_err(broken)?
            }
            Sender::Http2(sender) => {
                sender.ready().await.map_err(broken)?;
                sender.send_request(request).await.map_err(broken)?
            }
        };
        Ok((response, Times { began, waited: began.elapsed() }))
    }

    /// HTTP/1 has the host in a header, HTTP/2 in the URI.
    fn addressed(&self, request: Request<Bytes>) -> http::Result<Request<Full<Bytes>>> {
        let (mut head, body) = request.into_parts();
        let authority = self.target.authority();
        match &self.sender {
            Sender::Http1(_) => {
                head.headers.insert(header::HOST, HeaderValue::try_from(authority)?);
            }
            Sender::Http2(_) => {
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

/// When a request began, and how long it took until its answer began.
struct Times {
    began: Instant,
    waited: Duration,
}

impl Times {
    /// The answer is there.
    fn answer(self, response: Response<Bytes>) -> Answer {
        let reading = self.began.elapsed().saturating_sub(self.waited);
        Answer { response, waited: self.waited, reading }
    }
}

async fn whole(
    body: Incoming,
    bytes_max: usize,
    fail: &impl Fn(String, bool) -> Error,
) -> Result<Bytes> {
    let collected = Limited::new(body, bytes_max).collect().await;
    let body = collected.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => fail(format!("it has more than {bytes_max} bytes"), false),
        None => fail(error.to_string(), false),
    })?;
    Ok(body.to_bytes())
}

async fn beginning(
    mut body: Incoming,
    bytes_max: usize,
    fail: &impl Fn(String, bool) -> Error,
) -> Result<Bytes> {
    let mut read = Vec::new();
    while read.len() < bytes_max
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| fail(told(&error), false))?;
        if let Some(data) = frame.data_ref() {
            read.extend_from_slice(&data[..data.len().min(bytes_max - read.len())]);
        }
    }
    Ok(read.into())
}

/// An error with its causes, in a line: hyper's own words say only where.
fn told(error: &hyper::Error) -> String {
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
