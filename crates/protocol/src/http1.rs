//! HTTP/1.1 (RFC 9112).
//!
//! `httparse` parses heads. A body ends after its length, after its last chunk, or with the
//! connection.

mod body_parser;
mod head;
mod observed_heads;
pub(crate) mod observer;
mod request_parser;
mod requests;
mod response_parser;

pub use request_parser::{Http1Operation, RequestParser};
pub use response_parser::{Http1Response, ResponseParser};

/// A client request.
#[derive(Clone, Copy, Debug)]
pub struct Http1Request<'a> {
    /// Method.
    pub method: &'a str,
    /// Path with query string.
    pub path: &'a str,
    /// Headers. `Host` and `Content-Length` are added if they are missing.
    pub headers: &'a [(String, String)],
    /// Body.
    pub body: &'a [u8],
}

impl Http1Request<'_> {
    /// Checks that the request can be encoded.
    pub fn check(&self) -> Result<(), String> {
        let Http1Request { method, path, headers, body } = *self;
        http::Method::from_bytes(method.as_bytes())
            .map_err(|_| format!("method {method:?} is not a token"))?;
        // Origin form, `*`, or absolute form for proxies.
        if !path.starts_with('/') && path != "*" && !path.contains("://") {
            return Err(format!("path {path:?} does not start with /"));
        }
        for (name, value) in headers {
            http::HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("invalid header name {name:?}"))?;
            http::HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| format!("header {name} contains an invalid character"))?;
            if name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(
                    "header Transfer-Encoding is not supported: the body is sent unchanged"
                        .to_owned(),
                );
            }
            if name.eq_ignore_ascii_case("content-length") && value.trim().parse() != Ok(body.len())
            {
                let length = body.len();
                return Err(format!(
                    "Content-Length is {value:?}, but the body has {length} bytes"
                ));
            }
        }
        Ok(())
    }

    /// Encodes the request for this host and port.
    pub fn encode(&self, authority: &str, out: &mut Vec<u8>) {
        let has = |name: &str| self.headers.iter().any(|one| one.0.eq_ignore_ascii_case(name));
        for part in [self.method, " ", self.path, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        let mut header = |name: &str, value: &str| {
            for part in [name, ": ", value, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        };
        if !has("host") {
            header("Host", authority);
        }
        self.headers.iter().for_each(|(name, value)| header(name, value));
        let takes_body = !matches!(self.method, "GET" | "HEAD");
        if (takes_body || !self.body.is_empty()) && !has("content-length") {
            header("Content-Length", &self.body.len().to_string());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.body);
    }
}

#[cfg(test)]
mod tests;
