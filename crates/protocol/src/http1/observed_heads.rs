//! What an observer reads in the heads of requests and responses.

use std::mem::MaybeUninit;

use super::body_parser::BodyParser;
use super::head::{HEAD_MAX, HEADERS_MAX, HeaderFields};
use crate::ProtocolViolation;
use crate::fingerprint::parse_traceparent;

/// Longest method that is accepted: unknown ones are possible, megabytes of letters are not.
const METHOD_MAX: usize = 32;
/// Methods that are verbs of operations; others are [`OTHER_METHOD`].
const METHODS: [&str; 16] = [
    "GET",
    "POST",
    "PUT",
    "HEAD",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "CONNECT",
    "TRACE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "REPORT",
    "SEARCH",
];
const OTHER_METHOD: &str = "OTHER";

/// Head of a request.
#[derive(Debug)]
pub(super) struct ObservedRequestHead<'a> {
    pub(super) method: &'static str,
    /// Target without the query.
    pub(super) path: &'a str,
    pub(super) traceparent: Option<[u8; 55]>,
    pub(super) body: BodyParser,
}

/// Head of a response.
#[derive(Debug)]
pub(super) struct ObservedResponseHead {
    pub(super) status: u16,
    /// Whether its body is a stream of events (`text/event-stream`).
    pub(super) is_event_stream: bool,
    pub(super) body: BodyParser,
}

/// Buffer of an incomplete head.
#[derive(Debug, Default)]
pub(super) struct HeadBuffer {
    partial: Vec<u8>,
}

impl HeadBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.partial.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.partial.clear();
        self.partial.shrink_to(1 << 10);
    }

    pub(super) fn memory(&self) -> usize {
        self.partial.capacity()
    }

    /// Consumes bytes up to the end of a head, and reads it. `None` if it is incomplete.
    pub(super) fn read<T>(
        &mut self,
        bytes: &mut &[u8],
        parse: impl FnOnce(&[u8]) -> Result<T, ProtocolViolation>,
    ) -> Result<Option<T>, ProtocolViolation> {
        if self.partial.is_empty()
            && let Some(end) = head_end(bytes)
        {
            let (head, rest) = bytes.split_at(end);
            *bytes = rest;
            return parse(head).map(Some);
        }
        // An empty line may start with the last bytes of the part before.
        let searched = self.partial.len().saturating_sub(3);
        let before = self.partial.len();
        self.partial.extend_from_slice(&bytes[..bytes.len().min(HEAD_MAX + 1 - before)]);
        let Some(end) = head_end(&self.partial[searched..]) else {
            *bytes = &[];
            return if self.partial.len() > HEAD_MAX { Err(ProtocolViolation) } else { Ok(None) };
        };
        let end = searched + end;
        *bytes = &bytes[end - before..];
        let result = parse(&self.partial[..end]);
        self.clear();
        result.map(Some)
    }
}

/// Position after the first empty line that ends a head; empty lines before a head belong to it.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        at += found + 1;
        let line_start = bytes[..at - 1].strip_suffix(b"\r").unwrap_or(&bytes[..at - 1]);
        if line_start.last() == Some(&b'\n') {
            return Some(at);
        }
    }
    None
}

/// Whether bytes start a request, as far as they go.
pub(super) fn can_start_request(bytes: &[u8]) -> bool {
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-');
    let length = method.count();
    let is_target = |byte: &u8| matches!(byte, b'/' | b'*' | b'0'..);
    match bytes.get(length..) {
        None | Some([]) => length <= METHOD_MAX,
        Some([b' ', rest @ ..]) => {
            (1..=METHOD_MAX).contains(&length) && rest.first().is_none_or(is_target)
        }
        _ => false,
    }
}

/// Whether a packet surely starts with a request, of a known method.
pub(super) fn starts_request(packet: &[u8]) -> bool {
    let method = packet.split(|byte| *byte == b' ').next().unwrap_or_default();
    METHODS.iter().any(|one| one.as_bytes() == method)
        && packet.windows(8).any(|window| window == b" HTTP/1.")
}

/// Whether bytes start a response, as far as they go.
pub(super) fn can_start_response(bytes: &[u8]) -> bool {
    let start = b"HTTP/1.";
    let length = bytes.len().min(start.len());
    bytes[..length] == start[..length]
}

pub(super) fn parse_request(head: &[u8]) -> Result<ObservedRequestHead<'_>, ProtocolViolation> {
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, &mut headers) {
        Ok(httparse::Status::Complete(_)) => {}
        _ => return Err(ProtocolViolation),
    }
    let fields = HeaderFields::read(parsed.version, parsed.headers)?;
    let body = match fields.content_length {
        _ if fields.is_chunked => BodyParser::chunked(),
        length => BodyParser::with_length(length.unwrap_or(0)),
    };
    let method = parsed.method.unwrap_or_default();
    let traceparent = header(parsed.headers, "traceparent").and_then(|value| {
        let text = parse_traceparent(std::str::from_utf8(value).ok()?)?;
        text.as_bytes().try_into().ok()
    });
    Ok(ObservedRequestHead {
        method: METHODS.into_iter().find(|one| *one == method).unwrap_or(OTHER_METHOD),
        path: path_of_target(parsed.path.unwrap_or_default()),
        traceparent,
        body,
    })
}

pub(super) fn parse_response(
    head: &[u8],
    method: &str,
) -> Result<ObservedResponseHead, ProtocolViolation> {
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    match parser.parse_response_with_uninit_headers(&mut parsed, head, &mut headers) {
        Ok(httparse::Status::Complete(_)) => {}
        _ => return Err(ProtocolViolation),
    }
    let status = parsed.code.unwrap_or(0);
    let fields = HeaderFields::read(parsed.version, parsed.headers)?;
    let body = match (status, fields.content_length) {
        (..100, _) => return Err(ProtocolViolation),
        (100..200 | 204 | 304, _) => BodyParser::with_length(0),
        _ if method == "HEAD" => BodyParser::with_length(0),
        // A tunnel starts after the head.
        (200..300, _) if method == "CONNECT" => BodyParser::with_length(0),
        _ if fields.is_chunked => BodyParser::chunked(),
        (_, Some(length)) => BodyParser::with_length(length),
        (_, None) => BodyParser::until_closed(),
    };
    let is_event_stream = header(parsed.headers, "content-type").is_some_and(|value| {
        value.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
    });
    Ok(ObservedResponseHead { status, is_event_stream, body })
}

fn header<'a>(headers: &[httparse::Header<'a>], name: &str) -> Option<&'a [u8]> {
    let is_name = |one: &&httparse::Header<'_>| one.name.eq_ignore_ascii_case(name);
    headers.iter().find(is_name).map(|one| one.value)
}

/// The path of a target: without scheme, authority and query.
fn path_of_target(target: &str) -> &str {
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let target = &target[..end];
    match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => {
            rest.find('/').map_or("/", |start| &rest[start..])
        }
        _ => target,
    }
}
