//! HTTP/1.1, one request at a time on a persistent connection (RFC 9112).
//!
//! `httparse` parses response heads; a body ends by its length, its last chunk, or the connection.

use crate::codec::{Codec, Completion, RequestId};
use crate::failure::Failure;
use crate::request::RenderedRequest;

/// Maximum size of a response head, far above what nginx and Apache send.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

/// Checks that a request can be represented.
pub(super) fn check(request: &RenderedRequest) -> Result<(), String> {
    let RenderedRequest { method, path, headers, body, .. } = request;
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
                "header Transfer-Encoding is not supported: the body is sent unchanged".to_owned()
            );
        }
        if name.eq_ignore_ascii_case("content-length") && value.trim().parse() != Ok(body.len()) {
            let length = body.len();
            return Err(format!("Content-Length is {value:?}, but the body has {length} bytes"));
        }
    }
    Ok(())
}

/// Codec of one connection.
pub(crate) struct Http1 {
    authority: String,
    request_id: Option<RequestId>,
    /// A response to HEAD has no body.
    is_head: bool,
    state: ResponseState,
    /// Incomplete head or chunk line.
    partial: Vec<u8>,
    failure: Option<Failure>,
    /// Status line of the last error response.
    error_detail: Option<String>,
    is_last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ResponseState {
    /// Before or in a response head.
    Head,
    /// Bytes of the body to come.
    Body(u64),
    /// In the line with the length of the next chunk.
    ChunkLength,
    /// Bytes to come of a chunk and its CRLF.
    Chunk(u64),
    /// In the trailer section, up to an empty line.
    Trailer,
    /// The body ends with the connection.
    UntilClosed,
}

impl Http1 {
    /// Codec for this host and port.
    pub(crate) fn new(authority: &str) -> Http1 {
        Http1 {
            authority: authority.to_owned(),
            request_id: None,
            is_head: false,
            state: ResponseState::Head,
            partial: Vec::new(),
            failure: None,
            error_detail: None,
            is_last: false,
        }
    }

    fn end(&mut self, completions: &mut Vec<Completion>) {
        self.state = ResponseState::Head;
        let failure = self.failure.take();
        completions
            .extend(self.request_id.take().map(|request_id| Completion { request_id, failure }));
    }

    /// Parses a response head. Returns its length if it is complete.
    fn head(
        &mut self,
        bytes: &[u8],
        completions: &mut Vec<Completion>,
    ) -> Result<Option<usize>, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut answer = httparse::Response::new(&mut headers);
        let length = match answer.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
            _ => return Err(Failure::Malformed),
        };
        let status = answer.code.unwrap_or(0);
        // 101 would leave HTTP; other 1xx responses are interim.
        match status {
            ..100 | 101 => return Err(Failure::Malformed),
            100..200 => return Ok(Some(length)),
            _ => {}
        }
        if status >= 400 {
            self.failure = Some(Failure::Status);
            self.error_detail = Some(format!("{status} {}", answer.reason.unwrap_or_default()));
        }
        let (mut body, mut is_chunked) = (None, false);
        self.is_last |= answer.version == Some(0);
        for header in answer.headers.iter() {
            let name = header.name;
            if name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(header.value).map_err(|_| Failure::Malformed)?;
                let value: u64 = text.trim().parse().map_err(|_| Failure::Malformed)?;
                if body.replace(value).is_some_and(|before| before != value) {
                    return Err(Failure::Malformed);
                }
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                is_chunked = ends_with(header.value, b"chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                if list_contains(header.value, b"close") {
                    self.is_last = true;
                } else if list_contains(header.value, b"keep-alive") {
                    self.is_last = false;
                }
            }
        }
        self.state = match body {
            _ if self.is_head || status == 204 || status == 304 => ResponseState::Body(0),
            _ if is_chunked => ResponseState::ChunkLength,
            Some(length) => ResponseState::Body(length),
            None => {
                self.is_last = true;
                ResponseState::UntilClosed
            }
        };
        if self.state == ResponseState::Body(0) {
            self.end(completions);
        }
        Ok(Some(length))
    }
}

impl Codec for Http1 {
    fn capacity(&self) -> usize {
        usize::from(self.request_id.is_none() && !self.is_last)
    }

    fn is_ending(&self) -> bool {
        self.is_last
    }

    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>) {
        let has = |name: &str| request.headers.iter().any(|one| one.0.eq_ignore_ascii_case(name));
        for part in [request.method.as_str(), " ", &request.path, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        let mut header = |name: &str, value: &str| {
            for part in [name, ": ", value, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        };
        if !has("host") {
            header("Host", &self.authority);
        }
        request.headers.iter().for_each(|(name, value)| header(name, value));
        let takes_body = !matches!(request.method.as_str(), "GET" | "HEAD");
        if (takes_body || !request.body.is_empty()) && !has("content-length") {
            header("Content-Length", &request.body.len().to_string());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&request.body);
        self.is_head = request.method == "HEAD";
        self.request_id = Some(request_id);
    }

    fn receive(
        &mut self,
        mut bytes: &[u8],
        _out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.state {
                ResponseState::Head => {
                    if self.request_id.is_none() {
                        // An unsolicited response.
                        return Err(Failure::Malformed);
                    }
                    let before = self.partial.len();
                    if before == 0 {
                        match self.head(bytes, completions)? {
                            Some(length) => bytes = &bytes[length..],
                            None => {
                                self.partial.extend_from_slice(bytes);
                                return Ok(());
                            }
                        }
                    } else {
                        let mut whole = std::mem::take(&mut self.partial);
                        whole.extend_from_slice(bytes);
                        match self.head(&whole, completions)? {
                            Some(length) => {
                                bytes = &bytes[length - before..];
                                whole.clear();
                                self.partial = whole;
                            }
                            None => {
                                self.partial = whole;
                                return Ok(());
                            }
                        }
                    }
                }
                ResponseState::Body(rest) => {
                    let taken = rest.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    self.state = ResponseState::Body(rest - taken);
                    if rest == taken {
                        self.end(completions);
                    }
                }
                ResponseState::Chunk(rest) => {
                    let taken = rest.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    let left = rest - taken;
                    self.state = if left == 0 {
                        ResponseState::ChunkLength
                    } else {
                        ResponseState::Chunk(left)
                    };
                }
                ResponseState::ChunkLength => {
                    let Some(line) = line(&mut self.partial, &mut bytes)? else { return Ok(()) };
                    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                    let digits = std::str::from_utf8(digits).map_err(|_| Failure::Malformed)?;
                    let length = u64::from_str_radix(digits.trim(), 16);
                    self.state = match length.map_err(|_| Failure::Malformed)? {
                        0 => ResponseState::Trailer,
                        length => {
                            ResponseState::Chunk(length.checked_add(2).ok_or(Failure::Malformed)?)
                        }
                    };
                }
                ResponseState::Trailer => {
                    let Some(line) = line(&mut self.partial, &mut bytes)? else { return Ok(()) };
                    if line.is_empty() {
                        self.end(completions);
                    }
                }
                ResponseState::UntilClosed => return Ok(()),
            }
        }
        Ok(())
    }

    fn error_detail(&mut self, failure: Failure) -> Option<String> {
        self.error_detail.take_if(|_| failure == Failure::Status)
    }

    fn close(&mut self, completions: &mut Vec<Completion>) {
        if self.state == ResponseState::UntilClosed {
            self.end(completions);
        }
    }
}

/// Takes a line without its end from earlier and new bytes. `None` if it is incomplete.
fn line(partial: &mut Vec<u8>, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        partial.extend_from_slice(bytes);
        *bytes = &[];
        return if partial.len() > HEAD_MAX { Err(Failure::Malformed) } else { Ok(None) };
    };
    let mut line = std::mem::take(partial);
    line.extend_from_slice(&bytes[..end]);
    *bytes = &bytes[end + 1..];
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(line))
}

/// Whether a comma-separated list contains a token, ignoring case.
fn list_contains(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
}

fn ends_with(list: &[u8], word: &[u8]) -> bool {
    let last = list.rsplit(|byte| *byte == b',').next().unwrap_or_default();
    last.trim_ascii().eq_ignore_ascii_case(word)
}

#[cfg(test)]
mod tests;
