//! HTTP/1.1: one request after the other on a connection that stays (RFC 9112).
//!
//! The head of an answer is parsed by `httparse`; a body ends by its length, by its last chunk, or with the connection.

use crate::codec::{Codec, Ended, Ticket};
use crate::failure::Failure;
use crate::request::Rendered;

/// Heads that are longer are no heads: what nginx and Apache send is far below.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

/// Why a request cannot be said.
pub(super) fn check(request: &Rendered) -> Result<(), String> {
    let Rendered { method, path, headers, body, .. } = request;
    http::Method::from_bytes(method.as_bytes())
        .map_err(|_| format!("its method {method:?} is not one word"))?;
    // A path, all of the server, or all of an address, as proxies want it.
    if !path.starts_with('/') && path != "*" && !path.contains("://") {
        return Err(format!("its path {path:?} does not begin with /"));
    }
    for (name, value) in headers {
        http::HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("{name:?} cannot be the name of a header"))?;
        http::HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| format!("its header {name} has a character that no header can have"))?;
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("it has the header Transfer-Encoding: a body is sent as it is".to_owned());
        }
        if name.eq_ignore_ascii_case("content-length") && value.trim().parse() != Ok(body.len()) {
            let length = body.len();
            return Err(format!(
                "its Content-Length is {value:?}, and its body has {length} bytes"
            ));
        }
    }
    Ok(())
}

/// One connection.
pub(crate) struct Http1 {
    authority: String,
    ticket: Option<Ticket>,
    /// To a request with this method, an answer has no body.
    is_head: bool,
    state: State,
    /// What came of a head, or of the line before a chunk, that is not whole yet.
    partial: Vec<u8>,
    failure: Option<Failure>,
    /// The last status that says that it failed, with its reason.
    words: Option<String>,
    is_last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Before or in the head of an answer.
    Head,
    /// So many bytes of it are still to come.
    Body(u64),
    /// In the line that says how long the next chunk is.
    ChunkLength,
    /// In a chunk, with the two bytes that end it.
    Chunk(u64),
    /// In the lines after the last chunk, up to an empty one.
    Trailer,
    /// All that comes until the other side closes.
    UntilClosed,
}

impl Http1 {
    /// A connection to the server of this name, with the port if it is not the usual one.
    pub(crate) fn new(authority: &str) -> Http1 {
        Http1 {
            authority: authority.to_owned(),
            ticket: None,
            is_head: false,
            state: State::Head,
            partial: Vec::new(),
            failure: None,
            words: None,
            is_last: false,
        }
    }

    fn end(&mut self, ended: &mut Vec<Ended>) {
        self.state = State::Head;
        let failure = self.failure.take();
        ended.extend(self.ticket.take().map(|ticket| Ended { ticket, failure }));
    }

    /// What follows the head; how long that was, if it is whole.
    fn head(&mut self, bytes: &[u8], ended: &mut Vec<Ended>) -> Result<Option<usize>, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut answer = httparse::Response::new(&mut headers);
        let length = match answer.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
            _ => return Err(Failure::Malformed),
        };
        let status = answer.code.unwrap_or(0);
        // 101 would leave HTTP; all others from 100 to 199 come before the answer.
        match status {
            ..100 | 101 => return Err(Failure::Malformed),
            100..200 => return Ok(Some(length)),
            _ => {}
        }
        if status >= 400 {
            self.failure = Some(Failure::Status);
            self.words = Some(format!("{status} {}", answer.reason.unwrap_or_default()));
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
                if holds(header.value, b"close") {
                    self.is_last = true;
                } else if holds(header.value, b"keep-alive") {
                    self.is_last = false;
                }
            }
        }
        self.state = match body {
            _ if self.is_head || status == 204 || status == 304 => State::Body(0),
            _ if is_chunked => State::ChunkLength,
            Some(length) => State::Body(length),
            None => {
                self.is_last = true;
                State::UntilClosed
            }
        };
        if self.state == State::Body(0) {
            self.end(ended);
        }
        Ok(Some(length))
    }
}

impl Codec for Http1 {
    fn room(&self) -> usize {
        usize::from(self.ticket.is_none() && !self.is_last)
    }

    fn is_ending(&self) -> bool {
        self.is_last
    }

    fn send(&mut self, request: &Rendered, ticket: Ticket, out: &mut Vec<u8>) {
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
        self.ticket = Some(ticket);
    }

    fn receive(
        &mut self,
        mut bytes: &[u8],
        _out: &mut Vec<u8>,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.state {
                State::Head => {
                    if self.ticket.is_none() {
                        // Nobody asked.
                        return Err(Failure::Malformed);
                    }
                    let before = self.partial.len();
                    if before == 0 {
                        match self.head(bytes, ended)? {
                            Some(length) => bytes = &bytes[length..],
                            None => {
                                self.partial.extend_from_slice(bytes);
                                return Ok(());
                            }
                        }
                    } else {
                        let mut whole = std::mem::take(&mut self.partial);
                        whole.extend_from_slice(bytes);
                        match self.head(&whole, ended)? {
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
                State::Body(rest) => {
                    let taken = rest.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    self.state = State::Body(rest - taken);
                    if rest == taken {
                        self.end(ended);
                    }
                }
                State::Chunk(rest) => {
                    let taken = rest.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    let left = rest - taken;
                    self.state = if left == 0 { State::ChunkLength } else { State::Chunk(left) };
                }
                State::ChunkLength => {
                    let Some(line) = line(&mut self.partial, &mut bytes)? else { return Ok(()) };
                    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                    let digits = std::str::from_utf8(digits).map_err(|_| Failure::Malformed)?;
                    let length = u64::from_str_radix(digits.trim(), 16);
                    self.state = match length.map_err(|_| Failure::Malformed)? {
                        0 => State::Trailer,
                        length => State::Chunk(length.checked_add(2).ok_or(Failure::Malformed)?),
                    };
                }
                State::Trailer => {
                    let Some(line) = line(&mut self.partial, &mut bytes)? else { return Ok(()) };
                    if line.is_empty() {
                        self.end(ended);
                    }
                }
                State::UntilClosed => return Ok(()),
            }
        }
        Ok(())
    }

    fn words(&mut self, failure: Failure) -> Option<String> {
        self.words.take_if(|_| failure == Failure::Status)
    }

    fn close(&mut self, ended: &mut Vec<Ended>) {
        if self.state == State::UntilClosed {
            self.end(ended);
        }
    }
}

/// Takes a line from what came before and what came now, without its end. `None` if it is not whole.
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

/// Whether a list of words has this one, whatever its case.
fn holds(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
}

fn ends_with(list: &[u8], word: &[u8]) -> bool {
    let last = list.rsplit(|byte| *byte == b',').next().unwrap_or_default();
    last.trim_ascii().eq_ignore_ascii_case(word)
}

#[cfg(test)]
mod tests;
