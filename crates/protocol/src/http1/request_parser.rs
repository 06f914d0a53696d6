//! Finds the end of an HTTP request.

use http::Method;

use super::body_parser::BodyParser;
use super::head::{self, HEADERS_MAX, HeaderFields};
use crate::ProtocolViolation;

/// A complete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http1Operation {
    /// Method. A response to HEAD has no body.
    pub method: Method,
}

/// Parser of the client's direction of a connection.
#[derive(Debug, Default)]
pub struct RequestParser {
    /// Incomplete head.
    partial: Vec<u8>,
    /// The request whose body is being read.
    current: Option<(Http1Operation, BodyParser)>,
}

impl RequestParser {
    /// Consumes bytes up to the end of a request; `None` if it is incomplete.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Http1Operation>, ProtocolViolation> {
        loop {
            if let Some((_, body)) = &mut self.current {
                if !body.read(bytes)? {
                    return Ok(None);
                }
                return Ok(self.current.take().map(|(operation, _)| operation));
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            match head::read(&mut self.partial, bytes, parse)? {
                Some(current) => self.current = Some(current),
                None => return Ok(None),
            }
        }
    }
}

/// Length of a head, and its request.
type ParsedHead = (usize, (Http1Operation, BodyParser));

fn parse(bytes: &[u8]) -> Result<Option<ParsedHead>, ProtocolViolation> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let Some(length) = head::length(parsed.parse(bytes), bytes)? else { return Ok(None) };
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
    let method = method.map_err(|_| ProtocolViolation)?;
    let fields = HeaderFields::read(parsed.version, parsed.headers)?;
    let body = match fields.content_length {
        _ if fields.is_chunked => BodyParser::chunked(),
        length => BodyParser::with_length(length.unwrap_or(0)),
    };
    Ok(Some((length, (Http1Operation { method }, body))))
}
