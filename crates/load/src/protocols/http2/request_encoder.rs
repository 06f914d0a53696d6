//! Encodes requests for HTTP/2, with the same fields as HTTP/1.1.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri};
use protocol::grpc;

use super::stream::Http2Response;
use crate::rendered_request::RenderedRequest;

/// Kind of request on HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Plain HTTP.
    Http,
    /// A gRPC call.
    Grpc,
}

/// Encoder for one server.
pub(super) struct RequestEncoder {
    scheme: Scheme,
    /// `None` if the authority is invalid: then no request can be encoded.
    authority: Option<Authority>,
    kind: RequestKind,
}

/// Connection-specific headers of HTTP/1.1 (RFC 9113, 8.2.2).
const FORBIDDEN: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

impl RequestEncoder {
    pub(super) fn new(authority: &str, is_tls: bool, kind: RequestKind) -> RequestEncoder {
        let scheme = if is_tls { Scheme::HTTPS } else { Scheme::HTTP };
        RequestEncoder { scheme, authority: authority.parse().ok(), kind }
    }

    /// Returns head, body and the state of the expected response; or why HTTP/2 cannot represent
    /// it.
    pub(super) fn encode(
        &self,
        request: &RenderedRequest,
    ) -> Result<(Request<()>, Bytes, Http2Response), String> {
        let method = match self.kind {
            RequestKind::Http => Method::from_bytes(request.method.as_bytes())
                .map_err(|_| format!("method {:?} is not a token", request.method))?,
            RequestKind::Grpc => Method::POST,
        };
        let mut authority = self.authority.clone().ok_or("invalid host name")?;
        let mut head = Request::new(());
        let headers = head.headers_mut();
        for (name, value) in &request.headers {
            let wrong = || format!("header {name} has the invalid value {value:?}");
            if name.eq_ignore_ascii_case("host") {
                authority = value.parse().map_err(|_| wrong())?;
                continue;
            }
            let is_te = name.eq_ignore_ascii_case("te") && value != "trailers";
            if is_te || FORBIDDEN.iter().any(|one| name.eq_ignore_ascii_case(one)) {
                return Err(format!("header {name} is not allowed in HTTP/2"));
            }
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("invalid header name {name:?}"))?;
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?);
        }
        let (body, answer) = match self.kind {
            RequestKind::Http => {
                let takes_body = method != Method::GET && method != Method::HEAD;
                if takes_body || !request.body.is_empty() {
                    let length = || HeaderValue::from(request.body.len());
                    headers.entry(CONTENT_LENGTH).or_insert_with(length);
                }
                (Bytes::copy_from_slice(&request.body), Http2Response::new_http())
            }
            RequestKind::Grpc => {
                let content_type = HeaderValue::from_static("application/grpc");
                headers.entry(CONTENT_TYPE).or_insert(content_type);
                headers.insert(TE, HeaderValue::from_static("trailers"));
                (grpc::encode_message(&request.body), Http2Response::new_grpc())
            }
        };
        if !request.path.starts_with('/') && request.path != "*" {
            return Err(format!("path {:?} does not start with /", request.path));
        }
        let wrong = || format!("invalid path {:?}", request.path);
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
