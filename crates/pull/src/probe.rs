//! Probes: check kinds, one file each.
//!
//! A kind is a type with [`Probe`] and a row of [`PROBES`]. It has its own keys of `[[check]]`; one
//! of them has the address and selects the kind. The shared parts of checks (times, labels,
//! connection, series, attempt log) are in `check.rs`.

mod command;
mod dns;
mod grpc;
mod http;
mod json;
mod ntp;
mod ping;
mod snmp;
mod sql;
mod tcp;
mod websocket;

#[cfg(test)]
#[path = "../../../testdata/extensions/check/header.rs"]
mod example;

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::Version;
use net::dial::{Dialer, HttpConnection, PhaseTimes, certificate_expiry};
use net::{Endpoint, EndpointError};
use role::settings::{Document, Problems, SettingsCheck, TableRef};
use serde::de::DeserializeOwned;

use tokio::net::{TcpStream, UdpSocket};
use tokio_rustls::client::TlsStream;

pub use self::command::CommandProbe;
pub use self::dns::{DnsProbe, DnsTransport, RecordType};
pub use self::grpc::GrpcProbe;
pub use self::http::{HttpProbe, Statuses};
pub use self::json::JsonProbe;
pub use self::ntp::NtpProbe;
pub use self::ping::PingProbe;
pub use self::snmp::SnmpProbe;
pub use self::sql::SqlProbe;
pub use self::tcp::{StartTls, TcpProbe};
pub use self::websocket::WebsocketProbe;

/// Gauges that an attempt stores at most.
const VALUES_MAX: usize = 256;

/// All check kinds.
pub(crate) const PROBES: &[ProbeRow] = &[
    // A comment: rustfmt then writes one row per line.
    row::<HttpProbe>(),
    row::<TcpProbe>(),
    row::<DnsProbe>(),
    row::<PingProbe>(),
    row::<NtpProbe>(),
    row::<JsonProbe>(),
    row::<GrpcProbe>(),
    row::<SqlProbe>(),
    row::<WebsocketProbe>(),
    row::<SnmpProbe>(),
    row::<CommandProbe>(),
];

/// Check kind. The fields of the type are its keys of `[[check]]`.
pub trait Probe: DeserializeOwned + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Key of the address.
    const KEY: &'static str;
    /// All keys of the kind.
    const KEYS: &'static [&'static str];

    /// Checks the settings.
    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>);

    /// The target as it is shown: a URL, whose scheme is that of the kind.
    fn url(&self) -> String;

    /// Host and port of the target, and whether it uses TLS.
    fn endpoint(&self) -> Result<Endpoint, EndpointError>;

    /// Protocols that a TLS handshake offers (ALPN), in order of preference.
    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"h2", b"http/1.1"]
    }

    /// Runs the probe; returns the reason of a failure. The future may be dropped at any time;
    /// `attempt` has the measurements so far.
    fn run(&self, attempt: &mut Attempt<'_>) -> impl Future<Output = Result<(), String>> + Send;
}

/// Attempt of a check, which connects to the target by one of its functions.
#[derive(Debug)]
pub struct Attempt<'a> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) target: &'a Endpoint,
    pub(crate) timeout: Duration,
    pub(crate) report: &'a mut ProbeReport,
}

impl Attempt<'_> {
    /// Opens an HTTP connection.
    pub(crate) async fn connect_http(&mut self) -> Result<HttpConnection, String> {
        self.connect_http_by(self.dialer).await
    }

    /// Opens an HTTP/2 connection, without TLS too.
    pub(crate) async fn connect_http2(&mut self) -> Result<HttpConnection, String> {
        let connection = self.connect_http_by(&self.dialer.clone().with_prior_knowledge()).await?;
        match connection.version() {
            Version::HTTP_2 => Ok(connection),
            _ => Err("the server does not offer HTTP/2".to_owned()),
        }
    }

    async fn connect_http_by(&mut self, dialer: &Dialer) -> Result<HttpConnection, String> {
        let (connection, phases) = dialer.dial(self.target).await.map_err(text)?;
        self.add_connection(phases);
        if self.target.secure {
            self.report.phases.push(("tls", phases.tls));
        }
        self.report.add_expiry(connection.expires());
        Ok(connection)
    }

    /// Opens a TCP connection without TLS.
    pub(crate) async fn connect_tcp(&mut self) -> Result<TcpStream, String> {
        let (stream, phases) = self.dialer.open(self.target).await.map_err(text)?;
        self.add_connection(phases);
        Ok(stream)
    }

    /// Performs the TLS handshake over a connection.
    pub(crate) async fn secure(
        &mut self,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, String> {
        let began = Instant::now();
        let stream = self.dialer.secure(self.target, stream).await.map_err(text)?;
        self.report.phases.push(("tls", began.elapsed()));
        self.report.add_expiry(certificate_expiry(&stream));
        Ok(stream)
    }

    /// Resolves the target's name.
    pub(crate) async fn resolve(&mut self) -> Result<SocketAddr, String> {
        let (address, took) = self.dialer.address(self.target).await.map_err(text)?;
        self.report.phases.push(("resolve", took));
        Ok(address)
    }

    /// A UDP socket that receives from the target alone.
    pub(crate) async fn connect_udp(&mut self) -> Result<UdpSocket, String> {
        let address = self.resolve().await?;
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let failure = |error: io::Error| format!("cannot open a socket to {address}: {error}");
        let socket = UdpSocket::bind(any).await.map_err(failure)?;
        socket.connect(address).await.map_err(failure)?;
        Ok(socket)
    }

    fn add_connection(&mut self, phases: PhaseTimes) {
        self.report.phases.extend([("resolve", phases.resolve), ("connect", phases.connect)]);
    }
}

/// A number that tells requests apart; it is no secret.
fn random_id() -> u64 {
    RandomState::new().hash_one(())
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Measurements of an attempt.
#[derive(Debug, Default)]
pub(crate) struct ProbeReport {
    pub(crate) phases: Vec<(&'static str, Duration)>,
    values: Vec<ProbeValue>,
    /// Values beyond [`VALUES_MAX`].
    pub(crate) dropped_values: usize,
    pub(crate) failed: Option<String>,
}

/// A gauge.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProbeValue {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Labels of the value; one of the [reserved labels](crate::check::RESERVED_LABELS) each.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

impl ProbeReport {
    /// Adds a gauge without labels of its own.
    pub(crate) fn add(&mut self, name: &'static str, unit: &'static str, value: f64) {
        self.add_labelled(ProbeValue { name, unit, labels: Vec::new(), value });
    }

    /// Adds a gauge, up to a number of them.
    pub(crate) fn add_labelled(&mut self, value: ProbeValue) {
        match self.is_full() {
            false => self.values.push(value),
            true => self.dropped_values += 1,
        }
    }

    /// Whether further gauges are dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.values.len() >= VALUES_MAX
    }

    pub(crate) fn values(&self) -> &[ProbeValue] {
        &self.values
    }

    fn add_expiry(&mut self, expires: Option<i64>) {
        if let Some(expires) = expires {
            self.add("probe_ssl_earliest_cert_expiry", "s", expires as f64);
        }
    }
}

/// A probe of any kind, type-erased.
#[derive(Clone)]
pub struct AnyProbe(Arc<dyn DynProbe>);

impl AnyProbe {
    /// Wraps a probe.
    pub fn new(probe: impl Probe) -> AnyProbe {
        AnyProbe(Arc::new(probe))
    }

    pub(crate) fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        self.0.check(table, check);
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        self.0.endpoint()
    }

    pub(crate) fn alpn(&self) -> &'static [&'static [u8]] {
        self.0.alpn()
    }

    pub(crate) async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        self.0.run(attempt).await
    }
}

impl fmt::Debug for AnyProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl PartialEq for AnyProbe {
    fn eq(&self, other: &AnyProbe) -> bool {
        self.0.equals(&*other.0)
    }
}

/// Object-safe form of [`Probe`].
trait DynProbe: Any + fmt::Debug + Send + Sync {
    fn equals(&self, other: &(dyn DynProbe + 'static)) -> bool;
    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>);
    fn url(&self) -> String;
    fn endpoint(&self) -> Result<Endpoint, EndpointError>;
    fn alpn(&self) -> &'static [&'static [u8]];
    fn run<'a, 'b: 'a>(
        &'a self,
        attempt: &'a mut Attempt<'b>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;
}

impl<P: Probe> DynProbe for P {
    fn equals(&self, other: &(dyn DynProbe + 'static)) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        Probe::check(self, table, check);
    }

    fn url(&self) -> String {
        Probe::url(self)
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Probe::endpoint(self)
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        Probe::alpn(self)
    }

    fn run<'a, 'b: 'a>(
        &'a self,
        attempt: &'a mut Attempt<'b>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>> {
        Box::pin(Probe::run(self, attempt))
    }
}

/// Table row of a check kind.
pub(crate) struct ProbeRow {
    pub(crate) key: &'static str,
    pub(crate) keys: &'static [&'static str],
    /// Reads the kind's keys from a table.
    pub(crate) read: fn(&Document<'_>, TableRef<'_>) -> Result<AnyProbe, Problems>,
}

const fn row<P: Probe>() -> ProbeRow {
    ProbeRow { key: P::KEY, keys: P::KEYS, read: read::<P> }
}

fn read<P: Probe>(document: &Document<'_>, table: TableRef<'_>) -> Result<AnyProbe, Problems> {
    document.read_table::<P>(table, P::KEYS).map(AnyProbe::new)
}
