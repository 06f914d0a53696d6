//! Conversion of Zipkin's spans in JSON, version 2, to OTLP.
//!
//! Times are microseconds. The kind and the status follow OpenTelemetry's translation: the tag
//! `error` is an error unless it is `false`, and `otel.status_code` is the status. Tags become
//! attributes. Annotations and the remote endpoint are not read. Source:
//! <https://zipkin.io/zipkin-api/zipkin2-api.yaml>.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::decimal;
use crate::exemplar::{read_hex, read_trace_id};
use crate::input_error::{InputError, InputPosition, quote};
use crate::json::{JsonToken, JsonTokenizer};
use crate::otlp::message_copy::put_bytes;

use super::span_message::{SpanKind, StatusCode};

type Result<T> = std::result::Result<T, InputError>;

/// Nanoseconds of a microsecond.
const MICROSECOND: u64 = 1000;

/// A span of Zipkin.
#[derive(Default)]
struct ZipkinSpan {
    trace_id: Vec<u8>,
    span_id: Vec<u8>,
    /// Empty if there is none, or an invalid one.
    parent_id: Vec<u8>,
    name: String,
    kind: String,
    service: String,
    /// In microseconds, as is the duration; 0 if there is none.
    timestamp: u64,
    duration: u64,
    tags: Vec<(String, String)>,
}

/// Converts a list of spans to an `ExportTraceServiceRequest`. The output takes at most a few bytes
/// per input byte.
pub(super) fn to_protobuf(body: &[u8]) -> Result<Vec<u8>> {
    let mut tokens = JsonTokenizer::new(body);
    let mut request = Vec::with_capacity(body.len());
    let at = tokens.offset();
    if tokens.value()? != JsonToken::Array {
        return Err(error_at(at, "a list of spans", body));
    }
    while tokens.element()? {
        let at = tokens.offset();
        if tokens.value()? != JsonToken::Object {
            return Err(error_at(at, "a span", body));
        }
        read_span(&mut tokens)?.write(&mut request);
    }
    if !tokens.has_next_document() {
        let at = tokens.offset();
        return Err(error_at(at, "the end of the request", body));
    }
    Ok(request)
}

fn error_at(at: usize, expected: &'static str, body: &[u8]) -> InputError {
    let found = quote(body.get(at..).unwrap_or_default());
    InputError::new(InputPosition::Byte(at as u64), expected, found)
}

fn read_span(tokens: &mut JsonTokenizer<'_>) -> Result<ZipkinSpan> {
    let mut span = ZipkinSpan::default();
    while let Some(key) = tokens.key()? {
        match key.as_str() {
            "traceId" => {
                let mut id = [0; 16];
                let is_valid = read_trace_id(&scalar(tokens)?, &mut id);
                span.trace_id = if is_valid { id.to_vec() } else { Vec::new() };
            }
            "id" => span.span_id = read_id(tokens)?,
            "parentId" => span.parent_id = read_id(tokens)?,
            "name" => span.name = scalar(tokens)?,
            "kind" => span.kind = scalar(tokens)?,
            "timestamp" => span.timestamp = microseconds(tokens)?,
            "duration" => span.duration = microseconds(tokens)?,
            "localEndpoint" => span.service = read_service(tokens)?,
            "tags" => read_tags(tokens, &mut span.tags)?,
            _ => tokens.skip()?,
        }
    }
    Ok(span)
}

/// Id of a span; empty if it is invalid.
fn read_id(tokens: &mut JsonTokenizer<'_>) -> Result<Vec<u8>> {
    let mut id = [0; 8];
    let is_valid = read_hex(&scalar(tokens)?, &mut id);
    Ok(if is_valid { id.to_vec() } else { Vec::new() })
}

/// Text of a scalar; `null` and lists are none.
fn scalar(tokens: &mut JsonTokenizer<'_>) -> Result<String> {
    let mut ahead = tokens.clone();
    let text = match ahead.value()? {
        JsonToken::Text(text) => text,
        JsonToken::Number(text) => text.to_owned(),
        JsonToken::Bool(value) => value.to_string(),
        JsonToken::Object | JsonToken::Array => {
            tokens.skip()?;
            return Ok(String::new());
        }
        JsonToken::Null => String::new(),
    };
    *tokens = ahead;
    Ok(text)
}

fn microseconds(tokens: &mut JsonTokenizer<'_>) -> Result<u64> {
    let at = tokens.offset();
    let text = scalar(tokens)?;
    let number = match text.as_str() {
        "" => Some(0.0),
        text => decimal::parse(text.as_bytes()),
    };
    match number.filter(|number| !number.is_nan()) {
        // A negative number, or one too large for a time, is that of an invalid one.
        Some(number) if number < 0.0 => Ok(u64::MAX),
        Some(number) => Ok(number as u64),
        None => {
            let (position, expected) = (InputPosition::Byte(at as u64), "microseconds");
            Err(InputError::new(position, expected, quote(text.as_bytes())))
        }
    }
}

fn read_service(tokens: &mut JsonTokenizer<'_>) -> Result<String> {
    let mut service = String::new();
    if tokens.clone().value()? != JsonToken::Object {
        tokens.skip()?;
        return Ok(service);
    }
    tokens.value()?;
    while let Some(key) = tokens.key()? {
        match key.as_str() {
            "serviceName" => service = scalar(tokens)?,
            _ => tokens.skip()?,
        }
    }
    Ok(service)
}

fn read_tags(tokens: &mut JsonTokenizer<'_>, tags: &mut Vec<(String, String)>) -> Result<()> {
    if tokens.clone().value()? != JsonToken::Object {
        return tokens.skip();
    }
    tokens.value()?;
    while let Some(key) = tokens.key()? {
        let value = scalar(tokens)?;
        tags.push((key, value));
    }
    Ok(())
}

impl ZipkinSpan {
    fn tag(&self, name: &str) -> Option<&str> {
        self.tags.iter().find(|tag| tag.0 == name).map(|tag| tag.1.as_str())
    }

    fn kind(&self) -> u8 {
        match self.kind.as_str() {
            "SERVER" => SpanKind::SERVER.number(),
            "CLIENT" => SpanKind::CLIENT.number(),
            "PRODUCER" => SpanKind::PRODUCER.number(),
            "CONSUMER" => SpanKind::CONSUMER.number(),
            _ if self.tag("span.kind") == Some("internal") => SpanKind::INTERNAL.number(),
            _ => 0,
        }
    }

    fn status(&self) -> u8 {
        match (self.tag("otel.status_code"), self.tag("error")) {
            (Some("ERROR"), _) => StatusCode::ERROR.number(),
            (Some("OK"), _) => StatusCode::OK.number(),
            (_, Some(error)) if error != "false" => StatusCode::ERROR.number(),
            _ => 0,
        }
    }

    /// Appends a `ResourceSpans` with this span. Defaults are left out: a request may have many
    /// spans that are nearly empty.
    fn write(&self, request: &mut Vec<u8>) {
        let start = self.timestamp.saturating_mul(MICROSECOND);
        let end = match (self.timestamp, self.duration) {
            (0, _) | (_, 0) => 0,
            (_, duration) => start.saturating_add(duration.saturating_mul(MICROSECOND)),
        };
        let mut span = Vec::new();
        let texts = [
            (1, &self.trace_id[..]),
            (2, &self.span_id),
            (4, &self.parent_id),
            (5, self.name.as_bytes()),
        ];
        for (number, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            put_bytes(&mut span, number, text);
        }
        if self.kind() != 0 {
            span.extend_from_slice(&[6 << 3, self.kind()]);
        }
        for (number, time) in [(7_u8, start), (8, end)].into_iter().filter(|(_, time)| *time > 0) {
            span.push(number.unbounded_shl(3) | 1);
            span.extend_from_slice(&time.to_le_bytes());
        }
        self.tags.iter().for_each(|(name, value)| put_attribute(&mut span, 9, name, value));
        if self.status() != 0 {
            put_bytes(&mut span, 15, &[3 << 3, self.status()]);
        }
        let (mut scope, mut resource_spans) = (Vec::new(), Vec::new());
        put_bytes(&mut scope, 2, &span);
        if !self.service.is_empty() {
            let mut resource = Vec::new();
            put_attribute(&mut resource, 1, "service.name", &self.service);
            put_bytes(&mut resource_spans, 1, &resource);
        }
        put_bytes(&mut resource_spans, 2, &scope);
        put_bytes(request, 1, &resource_spans);
    }
}

/// Appends an attribute with a text.
fn put_attribute(out: &mut Vec<u8>, number: u32, name: &str, value: &str) {
    let (mut text, mut attribute) = (Vec::new(), Vec::new());
    put_bytes(&mut text, 1, value.as_bytes());
    put_bytes(&mut attribute, 1, name.as_bytes());
    put_bytes(&mut attribute, 2, &text);
    put_bytes(out, number, &attribute);
}
