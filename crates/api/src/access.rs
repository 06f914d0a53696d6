//! Authentication and authorization: token, client certificate, loopback.
//!
//! * On a loopback address no credential is needed by default. To keep out web pages opened in a
//!   browser on this host, the requested host name has to be one of this host (a page can resolve
//!   its own name to this address, "DNS rebinding"), writes must not come from a page of another
//!   origin, and requests that a browser makes for another page are rejected, except for links that
//!   a user follows (`Sec-Fetch-Site`, `-Mode` and `-Dest`: w3.org/TR/fetch-metadata).
//! * On any other address a token with the route's scope is required.
//! * A token that is sent is always verified.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use net::tls::ServerTls;

use crate::error_response::ErrorResponse;
use crate::token::{EnrolledHost, EnrollmentError, Scope, TokenError, TokenFile};

/// Path of the enrollment of a host.
pub(crate) const ENROLL_PATH: &str = "/v1/enroll";

/// Accepted names of this host, beside its addresses.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Access policy: tokens, certificates, allowed hosts.
#[derive(Debug)]
pub(crate) struct AccessPolicy {
    pub(crate) tokens: RwLock<Arc<TokenFile>>,
    /// Whether a token is required on loopback too.
    pub(crate) is_required: bool,
    /// Additional host names accepted on loopback.
    pub(crate) hosts: Vec<String>,
    /// Tokens of enrolled hosts that sent measurements since the start of the server.
    pub(crate) senders: RwLock<HashSet<String>>,
}

/// Addresses and certificate of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Local address.
    pub(crate) local: SocketAddr,
    /// Address of the client.
    pub(crate) remote: SocketAddr,
    /// Names in the client's verified certificate.
    pub(crate) certificate: Arc<[String]>,
    /// TLS settings of the address, if it has TLS.
    pub(crate) tls: Option<Arc<ServerTls>>,
}

/// Authenticated principal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Principal {
    /// The token's name, if there is a token.
    pub(crate) name: Option<String>,
    /// Whether it has a token without the scope of exemplars.
    pub(crate) lacks_exemplars: bool,
}

/// Whether an address is loopback, also as an IPv4-mapped IPv6 address.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Requires a scope for all routes of a router.
pub(crate) fn require_scope<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    scope: Scope,
) -> Router<S> {
    router.route_layer(from_fn(move |request: Request, next: Next| admit(request, next, scope)))
}

async fn admit(mut request: Request, next: Next, scope: Scope) -> Response {
    let extensions = request.extensions();
    let found = extensions.get::<Arc<AccessPolicy>>().zip(extensions.get::<Peer>());
    let (policy, peer) = found.expect("BUG: the request did not pass the server");
    match policy.authenticate(peer, &request, scope) {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

impl AccessPolicy {
    /// Exchanges the enrollment token of a request for a token of a host, which is valid at once.
    pub(crate) fn enroll(
        &self,
        secret: &[u8],
        host: &str,
        now_s: i64,
    ) -> Result<EnrolledHost, EnrollmentError> {
        self.change_tokens(|tokens| tokens.enroll(secret, host, now_s))
    }

    /// Removes the token of a host that enrolled, see [`TokenFile::unenroll`]. Returns whether it
    /// did.
    pub(crate) fn unenroll(
        &self,
        name: &str,
        has_forwarded: impl FnOnce() -> bool,
    ) -> Result<bool, TokenError> {
        let has_sent = self.senders.read().unwrap_or_else(PoisonError::into_inner).contains(name);
        let removed =
            self.change_tokens(|tokens| tokens.unenroll(name, || has_sent || has_forwarded()))?;
        // A later host of that name is another one.
        self.senders.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(removed)
    }

    fn add_sender(&self, name: &str) {
        let is_known = self.senders.read().unwrap_or_else(PoisonError::into_inner).contains(name);
        if !is_known {
            self.senders.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        }
    }

    fn change_tokens<T, E: From<TokenError>>(
        &self,
        change: impl FnOnce(&mut TokenFile) -> Result<T, E>,
    ) -> Result<T, E> {
        let known = Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner));
        let changed = change(&mut TokenFile::open(known.path())?)?;
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: of two changes the later one stays.
        *tokens = Arc::new(TokenFile::open(known.path())?);
        Ok(changed)
    }

    fn authenticate<B>(
        &self,
        peer: &Peer,
        request: &http::Request<B>,
        scope: Scope,
    ) -> Result<Principal, ErrorResponse> {
        let headers = request.headers();
        let secret = request_secret(headers)?;
        if !secret.is_bearer {
            check_same_site(request.method(), headers)?;
            check_same_origin(request.method(), request.uri(), headers)?;
        }
        let tokens = Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner));
        let token = match &secret.bytes {
            Some(bytes) => Some(tokens.find_by_secret(bytes).ok_or_else(|| {
                unauthorized("unknown token; list tokens with `topdeck token DIR list`")
            })?),
            None => (trap_secret(request.uri()).and_then(|secret| tokens.find_by_secret(secret)))
                .or_else(|| tokens.find_by_certificate(&peer.certificate)),
        };
        let Some(token) = token else {
            if self.is_required || !is_loopback(peer.local.ip()) {
                return Err(unauthorized(&format!(
                    "token with scope {scope} required: send `Authorization: Bearer TOKEN`; create \
                     one with `topdeck token DIR add NAME {scope}`"
                )));
            }
            self.check_host(request.uri(), headers)?;
            return Ok(Principal::default());
        };
        if !token.scopes.contains(&scope) {
            let name = &token.name;
            let what = format!(
                "token {name} lacks scope {scope}; create one with it: `topdeck token DIR add \
                 NAME {scope}`"
            );
            return Err(ErrorResponse::new(StatusCode::FORBIDDEN, what));
        }
        let is_enrolled = token.enrolled_by.is_some();
        if is_enrolled && scope == Scope::Ingest && request.uri().path() != ENROLL_PATH {
            self.add_sender(&token.name);
        }
        let lacks_exemplars = !token.scopes.contains(&Scope::Exemplars);
        Ok(Principal { name: Some(token.name.clone()), lacks_exemplars })
    }

    /// Rejects a host name that is not one of this host.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ErrorResponse> {
        let Some(host) = host(uri, headers) else { return Ok(()) };
        let name = host_name(host);
        let mut known = LOCAL_NAMES.into_iter().chain(self.hosts.iter().map(String::as_str));
        if known.any(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        Err(ErrorResponse::new(
            StatusCode::FORBIDDEN,
            format!(
                "host {name:?} is not allowed without a token: use localhost, 127.0.0.1 or [::1], \
                 send a token, or add the host to `allowed_hosts` in [http] of the settings"
            ),
        ))
    }
}

fn unauthorized(what: &str) -> ErrorResponse {
    ErrorResponse::new(StatusCode::UNAUTHORIZED, what)
}

struct RequestSecret {
    bytes: Option<Vec<u8>>,
    /// A browser does not send a bearer token by itself.
    is_bearer: bool,
}

/// The secret of a request: bearer token, or the password of basic authentication with any user.
fn request_secret(headers: &HeaderMap) -> Result<RequestSecret, ErrorResponse> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(RequestSecret { bytes: None, is_bearer: false });
    };
    let (kind, rest) =
        value.to_str().ok().and_then(|text| text.split_once(' ')).unwrap_or(("", ""));
    // InfluxDB clients send "Token".
    if kind.eq_ignore_ascii_case("bearer") || kind.eq_ignore_ascii_case("token") {
        return Ok(RequestSecret { bytes: Some(rest.trim().as_bytes().to_vec()), is_bearer: true });
    }
    if kind.eq_ignore_ascii_case("basic")
        && let Ok(text) = base64::engine::general_purpose::STANDARD.decode(rest.trim())
        && let Some(colon) = text.iter().position(|&byte| byte == b':')
    {
        return Ok(RequestSecret { bytes: Some(text[colon + 1..].to_vec()), is_bearer: false });
    }
    Err(unauthorized(
        "invalid header Authorization: expected `Bearer TOKEN`, or `Basic` with the token as \
         password",
    ))
}

/// The secret in an HTTPTrap URL, its last segment. On loopback any value is accepted.
fn trap_secret(uri: &Uri) -> Option<&[u8]> {
    let (_, secret) = uri.path().strip_prefix("/module/httptrap/")?.split_once('/')?;
    Some(secret.as_bytes())
}

/// The requested host: HTTP/2 has it in the URI, HTTP/1 in a header.
pub(crate) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let named = headers.get(header::HOST).map(|value| value.to_str().unwrap_or("?"));
    uri.authority().map(|authority| authority.as_str()).or(named)
}

/// Whether a header is a valid host, with or without a port (RFC 9110, 7.2; RFC 3986, 3.2.2).
pub(crate) fn is_host(value: &HeaderValue) -> bool {
    let name = value.to_str().map_or("", host_name);
    let is_of_name =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:".contains(&byte);
    !name.is_empty() && name.bytes().all(is_of_name)
}

/// A host without port and brackets; `None` for an invalid host (RFC 9110, 7.2).
fn host_name(host: &str) -> &str {
    let (name, rest) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match rest.strip_prefix(':').map_or(rest.is_empty(), is_port) {
        true => name,
        false => "",
    }
}

/// Rejects requests that a page of another site or port triggers: the page could not read the
/// response, but the query would have a cost. Browsers send these headers to addresses of this
/// host; programs do not.
fn check_same_site(method: &Method, headers: &HeaderMap) -> Result<(), ErrorResponse> {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
    let is_other = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    // A link opens in a window of its own, visible to the user.
    let is_link = *method == Method::GET
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document");
    if !is_other || is_link {
        return Ok(());
    }
    Err(ErrorResponse::new(
        StatusCode::FORBIDDEN,
        "cross-site request rejected: send it from a program, or with a bearer token",
    ))
}

/// Rejects writes from a page of another origin.
fn check_same_origin(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ErrorResponse> {
    let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    let Some(origin) = headers.get(header::ORIGIN).filter(|_| !is_safe) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or("?");
    let from = origin.split_once("://").map(|(_, rest)| rest);
    if from
        .is_some_and(|from| host(uri, headers).is_some_and(|host| host.eq_ignore_ascii_case(from)))
    {
        return Ok(());
    }
    Err(ErrorResponse::new(
        StatusCode::FORBIDDEN,
        format!(
            "cross-origin write from {origin:?} rejected: send it from a program, or with a bearer \
             token"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: (&str, &str) = ("host", "localhost:7717");

    /// A secret `s` of the token `t` with scope ingest, and a certificate `c` of `k` with scope
    /// read.
    fn access(is_required: bool) -> AccessPolicy {
        let path = std::env::temp_dir().join(format!("topdeck-access-{:x}", journal::random_id()));
        let hash = blake3::hash(b"s").to_hex();
        std::fs::write(&path, format!("t ingest blake3:{hash} 1\nk read certificate:c 1\n"))
            .unwrap();
        let tokens = TokenFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let tokens = RwLock::new(Arc::new(tokens));
        let hosts = vec!["proxy.example".to_owned()];
        AccessPolicy { tokens, is_required, hosts, senders: RwLock::default() }
    }

    #[track_caller]
    fn check_at(
        (local, is_required, certificate): (&str, bool, &str),
        (method, scope): (&str, Scope),
        headers: &[(&str, &str)],
        expected: Result<Option<&str>, (u16, &str)>,
    ) {
        let local = local.parse().unwrap();
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let certificate = [certificate.to_owned()].into();
        let peer = Peer { local, remote, certificate, tls: None };
        let mut request = http::Request::builder().method(method).uri("/x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let found = access(is_required).authenticate(&peer, &request.body(()).unwrap(), scope);
        match (found, expected) {
            (Ok(client), Ok(name)) => assert_eq!(client.name.as_deref(), name),
            (Err(problem), Err((status, part))) => {
                assert_eq!(problem.status.as_u16(), status, "{problem:?}");
                assert!(problem.message.contains(part), "{problem:?}");
            }
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[track_caller]
    fn check(headers: &[(&str, &str)], expected: Result<Option<&str>, (u16, &str)>) {
        check_at(("127.0.0.1:7717", false, ""), ("POST", Scope::Ingest), headers, expected);
    }

    #[test]
    fn loopback_is_allowed_with_its_own_name() {
        check(&[HOST], Ok(None));
        check(&[], Ok(None));
        check(&[("host", "LOCALHOST")], Ok(None));
        for host in
            ["localhost:7717@example.com", "localhost:x", "[::1", "[::1]x", "localhost:1:2", ""]
        {
            check(&[("host", host)], Err((403, "")));
        }
        check(&[("host", "[::1]:7717")], Ok(None));
        check(&[("host", "proxy.example")], Ok(None));
        check(&[("host", "evil.example:7717")], Err((403, "host \"evil.example\" is not allowed")));
        check(&[("host", "127.0.0.1.evil.example")], Err((403, "is not allowed without a token")));
    }

    #[test]
    fn cross_origin_writes_are_rejected() {
        check(&[HOST, ("origin", "http://localhost:7717")], Ok(None));
        check(&[HOST, ("origin", "http://localhost:3000")], Err((403, "cross-origin write from")));
        check(&[HOST, ("origin", "null")], Err((403, "cross-origin write from")));
        check(&[HOST, ("origin", "null"), ("authorization", "Bearer s")], Ok(Some("t")));
        check(&[HOST, ("origin", "null"), ("authorization", "Basic dTpz")], Err((403, "write")));
        let get = ("GET", Scope::Read);
        check_at(("[::1]:1", false, ""), get, &[HOST, ("origin", "null")], Ok(None));
    }

    #[test]
    fn cross_site_reads_are_rejected() {
        let get = |site: &str, more: &[(&str, &str)], expected| {
            let headers = [&[HOST, ("sec-fetch-site", site)][..], more].concat();
            check_at(("127.0.0.1:1", false, ""), ("GET", Scope::Read), &headers, expected);
        };
        let refused = Err((403, "cross-site request rejected"));
        let link = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let frame = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        for site in ["cross-site", "same-site"] {
            get(site, &[], refused);
            get(site, &[("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")], refused);
            get(site, &frame, refused);
            get(site, &link, Ok(None));
        }
        // The web UI itself, and a typed URL.
        get("same-origin", &[("sec-fetch-mode", "cors")], Ok(None));
        get("none", &link, Ok(None));
        let post = [&[HOST, ("sec-fetch-site", "cross-site")][..], &link].concat();
        check(&post, refused);
        check(
            &[HOST, ("sec-fetch-site", "cross-site"), ("authorization", "Bearer s")],
            Ok(Some("t")),
        );
    }

    #[test]
    fn invalid_token_is_rejected_even_if_none_is_required() {
        check(&[("authorization", "Bearer s")], Ok(Some("t")));
        check(&[("authorization", "Basic dTpz")], Ok(Some("t")));
        check(&[HOST, ("authorization", "Bearer x")], Err((401, "unknown token")));
        check(&[HOST, ("authorization", "Digest x")], Err((401, "invalid header Authorization")));
        let read = ("GET", Scope::Read);
        let here = ("127.0.0.1:7717", false, "");
        check_at(here, read, &[("authorization", "Bearer s")], Err((403, "lacks scope read")));
    }

    #[test]
    fn remote_requests_need_a_token_or_certificate() {
        let ingest = ("POST", Scope::Ingest);
        let read = ("GET", Scope::Read);
        let needed = Err((401, "token with scope ingest required"));
        check_at(("10.0.0.1:7717", false, ""), ingest, &[HOST], needed);
        check_at(("[::ffff:10.0.0.1]:7717", false, ""), ingest, &[HOST], needed);
        check_at(("127.0.0.1:7717", true, ""), ingest, &[HOST], needed);
        check_at(
            ("10.0.0.1:7717", false, ""),
            ingest,
            &[("authorization", "Bearer s")],
            Ok(Some("t")),
        );
        check_at(("10.0.0.1:7717", false, "c"), read, &[("host", "any")], Ok(Some("k")));
        check_at(("10.0.0.1:7717", false, "c"), ingest, &[], Err((403, "token k lacks scope")));
        check_at(("[::ffff:127.0.0.1]:7717", false, ""), ingest, &[HOST], Ok(None));
    }
}
