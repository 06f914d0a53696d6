//! Finds the end of an HTTP response and reads its status.

use super::body_parser::BodyParser;
use super::head::{self, HEADERS_MAX, HeaderFields};
use crate::ProtocolViolation;

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http1Response {
    /// Status code, 200 or more.
    pub status: u16,
    /// Reason phrase of an error; empty for any other status.
    pub reason: String,
    /// Whether the server closes the connection after this response.
    pub is_last: bool,
}

impl Http1Response {
    /// Whether the status is a client or server error (400 or more).
    pub fn is_error(&self) -> bool {
        self.status >= 400
    }
}

/// Parser of the server's direction of a connection.
#[derive(Debug, Default)]
pub struct ResponseParser {
    /// Incomplete head.
    partial: Vec<u8>,
    /// The response whose body is being read.
    current: Option<(Http1Response, BodyParser)>,
}

impl ResponseParser {
    /// Consumes bytes up to the end of a response; `None` if it is incomplete. `is_head`: whether
    /// the request had the method HEAD, so that the response has no body. Interim responses (1xx)
    /// are skipped.
    pub fn read(
        &mut self,
        bytes: &mut &[u8],
        is_head: bool,
    ) -> Result<Option<Http1Response>, ProtocolViolation> {
        loop {
            if let Some((_, body)) = &mut self.current {
                if !body.read(bytes)? {
                    return Ok(None);
                }
                return Ok(self.current.take().map(|(response, _)| response));
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            match head::read(&mut self.partial, bytes, |bytes| parse(bytes, is_head))? {
                Some(current) => self.current = current,
                None => return Ok(None),
            }
        }
    }

    /// Handles the end of the stream, which may complete a response.
    pub fn close(&mut self) -> Option<Http1Response> {
        self.current.take_if(|(_, body)| body.is_until_closed()).map(|(response, _)| response)
    }
}

/// Length of a head, and its response unless it is an interim one.
type ParsedHead = (usize, Option<(Http1Response, BodyParser)>);

fn parse(bytes: &[u8], is_head: bool) -> Result<Option<ParsedHead>, ProtocolViolation> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    let Some(length) = head::length(parsed.parse(bytes), bytes)? else { return Ok(None) };
    let status = parsed.code.unwrap_or(0);
    // 101 switches to another protocol; other 1xx responses are interim.
    match status {
        ..100 | 101 => return Err(ProtocolViolation),
        100..200 => return Ok(Some((length, None))),
        _ => {}
    }
    let fields = HeaderFields::read(parsed.version, parsed.headers)?;
    let body = match fields.content_length {
        _ if is_head || status == 204 || status == 304 => BodyParser::with_length(0),
        _ if fields.is_chunked => BodyParser::chunked(),
        Some(length) => BodyParser::with_length(length),
        None => BodyParser::until_closed(),
    };
    let reason = if status >= 400 { parsed.reason.unwrap_or_default() } else { "" };
    let is_last = fields.is_last || body.is_until_closed();
    let response = Http1Response { status, reason: reason.to_owned(), is_last };
    Ok(Some((length, Some((response, body)))))
}
