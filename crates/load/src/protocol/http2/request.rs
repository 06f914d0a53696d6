//! A request as HTTP/2 says it, from one that could be of HTTP/1.1.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri};

use super::stream::Answer;
use crate::protocol::grpc;
use crate::request::Rendered;

/// What is asked for in HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A resource.
    Http,
    /// A call of gRPC.
    Grpc,
}

/// Writes requests to one server.
pub(super) struct Writer {
    scheme: Scheme,
    /// `None` if it is no name: then there are no requests to it.
    authority: Option<Authority>,
    kind: Kind,
}

/// Headers about a connection of HTTP/1.1, which nobody may send here (RFC 9113, 8.2.2).
const FORBIDDEN: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

impl Writer {
    pub(super) fn new(authority: &str, is_tls: bool, kind: Kind) -> Writer {
        let scheme = if is_tls { Scheme::HTTPS } else { Scheme::HTTP };
        Writer { scheme, authority: authority.parse().ok(), kind }
    }

    /// Head and body, and what an answer is held against; or why HTTP/2 cannot say it.
    pub(super) fn write(&self, request: &Rendered) -> Result<(Request<()>, Bytes, Answer), String> {
        let method = match self.kind {
            Kind::Http => Method::from_bytes(request.method.as_bytes())
                .map_err(|_| format!("its method {:?} is not one word", request.method))?,
            Kind::Grpc => Method::POST,
        };
        let mut authority = self.authority.clone().ok_or("the server has a name that is none")?;
        let mut head = Request::new(());
        let headers = head.headers_mut();
        for (name, value) in &request.headers {
            let wrong = || {
                format!("its header {name} cannot be {value:?}: a character in it, or all of it")
            };
            if name.eq_ignore_ascii_case("host") {
                authority = value.parse().map_err(|_| wrong())?;
                continue;
            }
            let is_te = name.eq_ignore_ascii_case("te") && value != "trailers";
            if is_te || FORBIDDEN.iter().any(|one| name.eq_ignore_ascii_case(one)) {
                return Err(format!("its header {name} is one of HTTP/1.1, which HTTP/2 forbids"));
            }
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("{name:?} cannot be the name of a header"))?;
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?);
        }
        let (body, answer) = match self.kind {
            Kind::Http => {
                let takes_body = method != Method::GET && method != Method::HEAD;
                if takes_body || !request.body.is_empty() {
                    let length = || HeaderValue::from(request.body.len());
                    headers.entry(CONTENT_LENGTH).or_insert_with(length);
                }
                (Bytes::copy_from_slice(&request.body), Answer::of_http())
            }
            Kind::Grpc => {
                let own = HeaderValue::from_static("application/grpc");
                headers.entry(CONTENT_TYPE).or_insert(own);
                headers.insert(TE, HeaderValue::from_static("trailers"));
                (grpc::framed(&request.body), Answer::of_grpc())
            }
        };
        if !request.path.starts_with('/') && request.path != "*" {
            return Err(format!("its path {:?} does not begin with /", request.path));
        }
        let wrong = || format!("its path {:?} is none", request.path);
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(authority);
        parts.path_and_query =
            Some(PathAndQuery::try_from(request.path.as_str()).map_err(|_| wrong())?);
        *head.uri_mut() = Uri::from_parts(parts).map_err(|_| wrong())?;
        *head.method_mut() = method;
        *head.version_mut() = http::Version::HTTP_2;
        Ok((head, body, answer))
    }
}
