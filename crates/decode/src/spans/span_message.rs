//! Fields of a span and of its resource, borrowed from the request.
//!
//! Source: opentelemetry-proto, `trace/v1/trace.proto`. Events and links are not read.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::protobuf::MessageReader;
use model::ExemplarAttributes;
use protocol::fingerprint::SqlDialect;

use crate::input_error::InputError;
use crate::otlp::attributes::{parse_key_value, parse_label};

/// Maximum length of a text of a resource that becomes a label.
const RESOURCE_TEXT_BYTES_MAX: usize = 256;
/// Attributes of a resource that an exemplar has: where the span was.
const INSTANCE_ATTRIBUTES: [&str; 3] = ["host.name", "service.instance.id", "service.version"];
/// Maximum number of attributes that are read of a span for its exemplar.
const ATTRIBUTES_READ_MAX: usize = 128;
/// Service of spans without one, as SDKs name it.
const UNKNOWN_SERVICE: &str = "unknown_service";

/// Ids of a trace and of a span of it.
pub(super) type SpanIds = ([u8; 16], [u8; 8]);

/// A span.
#[derive(Clone, Debug)]
pub(super) struct SpanMessage<'a> {
    pub(super) trace_id: &'a [u8],
    pub(super) span_id: &'a [u8],
    pub(super) trace_state: &'a str,
    pub(super) parent_id: &'a [u8],
    pub(super) name: &'a str,
    pub(super) kind: SpanKind,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) status: StatusCode,
    message: MessageReader<'a>,
}

/// `SpanKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SpanKind(u8);

/// `Status.StatusCode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct StatusCode(u8);

impl SpanKind {
    pub(super) const INTERNAL: SpanKind = SpanKind(1);
    pub(super) const SERVER: SpanKind = SpanKind(2);
    pub(super) const CLIENT: SpanKind = SpanKind(3);
    pub(super) const PRODUCER: SpanKind = SpanKind(4);
    pub(super) const CONSUMER: SpanKind = SpanKind(5);

    fn new(number: u64) -> SpanKind {
        SpanKind(u8::try_from(number).ok().filter(|number| *number <= 5).unwrap_or(0))
    }

    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// Its name, as in labels of the span metrics connector.
    pub(super) fn name(self) -> &'static str {
        match self {
            SpanKind::INTERNAL => "SPAN_KIND_INTERNAL",
            SpanKind::SERVER => "SPAN_KIND_SERVER",
            SpanKind::CLIENT => "SPAN_KIND_CLIENT",
            SpanKind::PRODUCER => "SPAN_KIND_PRODUCER",
            SpanKind::CONSUMER => "SPAN_KIND_CONSUMER",
            _ => "SPAN_KIND_UNSPECIFIED",
        }
    }
}

impl StatusCode {
    pub(super) const OK: StatusCode = StatusCode(1);
    pub(super) const ERROR: StatusCode = StatusCode(2);

    fn new(number: u64) -> StatusCode {
        StatusCode(u8::try_from(number).ok().filter(|number| *number <= 2).unwrap_or(0))
    }

    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// Its name, as in labels of the span metrics connector.
    pub(super) fn name(self) -> &'static str {
        match self {
            StatusCode::OK => "STATUS_CODE_OK",
            StatusCode::ERROR => "STATUS_CODE_ERROR",
            _ => "STATUS_CODE_UNSET",
        }
    }
}

impl<'a> SpanMessage<'a> {
    pub(super) fn read(message: MessageReader<'a>) -> Result<SpanMessage<'a>, InputError> {
        let mut span = SpanMessage {
            trace_id: &[],
            span_id: &[],
            trace_state: "",
            parent_id: &[],
            name: "",
            kind: SpanKind::new(0),
            start: 0,
            end: 0,
            status: StatusCode::new(0),
            message: message.clone(),
        };
        let mut fields = message;
        while let Some((number, field)) = fields.field()? {
            match number {
                1 => span.trace_id = field.bytes()?,
                2 => span.span_id = field.bytes()?,
                3 => span.trace_state = field.text()?,
                4 => span.parent_id = field.bytes()?,
                5 => span.name = field.text()?,
                6 => span.kind = SpanKind::new(field.varint()?),
                7 => span.start = field.fixed64()?,
                8 => span.end = field.fixed64()?,
                15 => span.status = read_status(field.message()?)?,
                _ => {}
            }
        }
        Ok(span)
    }

    /// The ids, unless they are invalid: of another length, or zero.
    pub(super) fn ids(&self) -> Option<SpanIds> {
        let trace: [u8; 16] = self.trace_id.try_into().ok()?;
        let span: [u8; 8] = self.span_id.try_into().ok()?;
        (trace != [0; 16] && span != [0; 8]).then_some((trace, span))
    }

    /// The whole message.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.message.remaining()
    }

    /// Dialect of the statement that the name is.
    pub(super) fn dialect(&self) -> SqlDialect {
        let system = self.attributes().find_map(|attribute| {
            let (key, value) = parse_key_value(attribute?).ok()?;
            match key {
                "db.system" | "db.system.name" => value?.field().ok()??.1.text().ok(),
                _ => None,
            }
        });
        match system.unwrap_or_default() {
            "mariadb" => SqlDialect::of_protocol("mysql"),
            system => SqlDialect::of_protocol(system),
        }
    }

    /// Its attributes and those of its instance, and whether some were cut off or left out.
    pub(super) fn exemplar_attributes(
        &self,
        instance: &[(String, String)],
    ) -> (ExemplarAttributes, bool) {
        let mut is_invalid = false;
        let own = self.attributes().take(ATTRIBUTES_READ_MAX).filter_map(|attribute| {
            let label = attribute.and_then(|attribute| parse_label(attribute).ok());
            is_invalid |= label.is_none();
            label
        });
        let own: Vec<(String, String)> = own.collect();
        let pairs = own.iter().chain(instance).map(|(name, value)| (name.as_str(), value.as_str()));
        let (attributes, is_cut) = ExemplarAttributes::received(pairs);
        (attributes, is_cut || is_invalid || own.len() >= ATTRIBUTES_READ_MAX)
    }

    /// Its attributes; `None` is one that is malformed.
    fn attributes(&self) -> impl Iterator<Item = Option<MessageReader<'a>>> {
        let mut fields = self.message.clone();
        std::iter::from_fn(move || {
            // The span was read before: its fields are valid.
            while let Ok(Some((number, field))) = fields.field() {
                if number == 9 {
                    return Some(field.message().ok());
                }
            }
            None
        })
    }
}

fn read_status(mut message: MessageReader<'_>) -> Result<StatusCode, InputError> {
    let mut status = 0;
    while let Some((number, field)) = message.field()? {
        if number == 3 {
            status = field.varint()?;
        }
    }
    Ok(StatusCode::new(status))
}

/// What is read of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SpanResource {
    pub(super) service: String,
    pub(super) namespace: String,
    /// Attributes of exemplars.
    pub(super) instance: Vec<(String, String)>,
}

impl SpanResource {
    pub(super) fn read(message: Option<MessageReader<'_>>) -> Result<SpanResource, InputError> {
        let mut resource = SpanResource::default();
        let mut fields = message.unwrap_or_else(|| MessageReader::new(&[]));
        while let Some((number, field)) = fields.field()? {
            if number != 1 {
                continue;
            }
            let attribute = field.message()?;
            let (key, _) = parse_key_value(attribute.clone())?;
            let is_instance = INSTANCE_ATTRIBUTES.contains(&key);
            if !is_instance && !["service.name", "service.namespace"].contains(&key) {
                continue;
            }
            let Ok((name, mut value)) = parse_label(attribute) else { continue };
            value.truncate(value.floor_char_boundary(RESOURCE_TEXT_BYTES_MAX));
            match name.as_str() {
                "service.name" => resource.service = value,
                "service.namespace" => resource.namespace = value,
                _ if resource.instance.len() < INSTANCE_ATTRIBUTES.len() => {
                    resource.instance.push((name, value));
                }
                _ => {}
            }
        }
        if resource.service.is_empty() {
            resource.service = UNKNOWN_SERVICE.to_owned();
        }
        Ok(resource)
    }
}
