//! Trait of load protocols, and their rows of the table [`crate::PROTOCOLS`].

use std::fmt;
use std::sync::Arc;

use crate::codec::Codec;
use crate::rendered_request::RenderedRequest;
use crate::secret::Secret;
use crate::target_url::TargetUrl;

/// A protocol with the connection options of the target URL.
pub trait LoadProtocol: fmt::Debug + Send + Sync {
    /// Creates the codec of a connection.
    fn codec(&self) -> Box<dyn Codec>;

    /// Checks that the protocol can represent a request. The error is the cause.
    fn check(&self, request: &RenderedRequest) -> Result<(), String>;

    /// The password; no output shows it.
    fn secret(&self) -> Option<&Secret> {
        None
    }

    /// Plain-text request for TLS, if the protocol has one. The server answers `S` or `N`.
    fn tls_request(&self) -> Option<&'static [u8]> {
        None
    }

    /// ALPN protocol name (RFC 7301).
    fn alpn(&self) -> Option<&'static [u8]> {
        None
    }
}

/// A row of the table of protocols.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolRow {
    /// URL schemes, unique to this protocol.
    pub schemes: &'static [UrlScheme],
    /// Whether the URL may have a user and a password.
    pub has_credentials: bool,
    /// Meaning of a body, for `--help`; `None` if it is sent unchanged.
    pub body: Option<&'static str>,
    /// Meaning of an argument, for `--help`; `None` if requests have none.
    pub argument: Option<&'static str>,
    /// Parses the protocol options of the URL. The error is the cause.
    pub open: fn(&TargetUrl<'_>) -> Result<ProtocolTarget, String>,
}

/// A URL scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlScheme {
    /// Name, without `://`.
    pub name: &'static str,
    /// Whether it implies TLS.
    pub is_tls: bool,
    /// Default port; `None` if the URL must have one.
    pub default_port: Option<u16>,
    /// Shown in `--help`; `None` for an alias, which messages do not list.
    pub help: Option<&'static str>,
}

/// Protocol settings parsed from a target URL.
#[derive(Clone, Debug)]
pub struct ProtocolTarget {
    /// The protocol.
    pub protocol: Arc<dyn LoadProtocol>,
    /// Default path of requests.
    pub path: String,
    /// Whether TLS is used.
    pub is_tls: bool,
    /// Whether the server certificate is verified.
    pub is_verified: bool,
}

impl ProtocolTarget {
    /// A target with the path `/` and the TLS mode of its scheme, with verification.
    pub fn new(protocol: impl LoadProtocol + 'static, scheme: UrlScheme) -> ProtocolTarget {
        ProtocolTarget {
            protocol: Arc::new(protocol),
            path: "/".to_owned(),
            is_tls: scheme.is_tls,
            is_verified: true,
        }
    }
}

/// Schemes shown in texts, in table order.
fn listed_schemes(rows: &[ProtocolRow]) -> impl Iterator<Item = (&'static str, &'static str)> {
    let schemes = rows.iter().flat_map(|row| row.schemes);
    schemes.filter_map(|scheme| Some((scheme.name, scheme.help?)))
}

/// Schemes for `--help`: `http://HOST:PORT/PATH, https or tcp (echo)`.
pub fn schemes_help(rows: &[ProtocolRow]) -> String {
    join(listed_schemes(rows).map(|(_, help)| help.to_owned()))
}

/// Schemes for errors: `http://, https:// or tcp://`.
pub(crate) fn schemes_expected(rows: &[ProtocolRow]) -> String {
    join(listed_schemes(rows).map(|(name, _)| format!("{name}://")))
}

/// Meanings of bodies for `--help`: `for redis the words of a command, …`.
pub fn bodies_help(rows: &[ProtocolRow]) -> String {
    usage_help(rows, |row| row.body, ", ")
}

/// Meanings of arguments for `--help`.
pub fn arguments_help(rows: &[ProtocolRow]) -> String {
    usage_help(rows, |row| row.argument, "; ")
}

fn usage_help(
    rows: &[ProtocolRow],
    of: impl Fn(&ProtocolRow) -> Option<&'static str>,
    separator: &str,
) -> String {
    let usages = rows
        .iter()
        .filter_map(|row| Some(format!("for {} {}", row.schemes.first()?.name, of(row)?)));
    usages.collect::<Vec<_>>().join(separator)
}

/// `a, b or c`.
fn join(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    match words.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}
