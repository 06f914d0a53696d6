//! Exemplars of ingest formats.
//!
//! Prometheus has ids as labels: `trace_id` and `span_id`, in any spelling of client libraries
//! (`traceID`, `TraceId`). An id of another form than hexadecimal digits stays an attribute. A time
//! of 0 means that it is unknown, as in OpenTelemetry: the sample's is used.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::protobuf::{FieldValue, MessageReader};
use model::{Exemplar, ExemplarAttributes, ExemplarSource};

use crate::input_error::InputError;

/// Why an exemplar was rejected, or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExemplarProblem {
    /// It cannot be parsed: rejected.
    Malformed,
    /// A trace or span id of another length: rejected.
    MalformedId,
    /// It has no value, or one that is not finite: rejected.
    InvalidValue,
    /// Its time is not within 64 bits of nanoseconds: rejected.
    InvalidTime,
    /// Further exemplars of a line or a series than are read: rejected, and counted once.
    TooMany,
    /// Accepted, with attributes cut off or left out.
    Truncated,
}

impl ExemplarProblem {
    /// All of them.
    pub const ALL: [ExemplarProblem; 6] = [
        ExemplarProblem::Malformed,
        ExemplarProblem::MalformedId,
        ExemplarProblem::InvalidValue,
        ExemplarProblem::InvalidTime,
        ExemplarProblem::TooMany,
        ExemplarProblem::Truncated,
    ];

    /// Its name, as in metrics.
    pub fn name(self) -> &'static str {
        match self {
            ExemplarProblem::Malformed => "malformed",
            ExemplarProblem::MalformedId => "malformed_id",
            ExemplarProblem::InvalidValue => "invalid_value",
            ExemplarProblem::InvalidTime => "invalid_time",
            ExemplarProblem::TooMany => "too_many",
            ExemplarProblem::Truncated => "truncated",
        }
    }
}

/// An exemplar or a problem; one whose attributes were cut is followed by the problem.
pub type DecodedExemplar = Result<Exemplar, ExemplarProblem>;

/// Milliseconds in nanoseconds.
const MILLISECOND: i64 = 1_000_000;

/// Passes on an exemplar of Prometheus with these labels.
pub(crate) fn from_labels<'a>(
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    value: f64,
    (time, source): (i64, ExemplarSource),
    each: &mut dyn FnMut(DecodedExemplar),
) {
    if !value.is_finite() {
        return each(Err(ExemplarProblem::InvalidValue));
    }
    let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
    let is_attribute = |(name, value): &(&str, &str)| match id_name(name) {
        Some("traceid") => !read_trace_id(value, &mut trace_id),
        Some("spanid") => !read_hex(value, &mut span_id),
        _ => true,
    };
    let (attributes, is_cut) = ExemplarAttributes::received(labels.filter(is_attribute));
    each(Ok(Exemplar { time, value, trace_id, span_id, attributes, source }));
    if is_cut {
        each(Err(ExemplarProblem::Truncated));
    }
}

/// Name of an id without separators and in lower case, if a label has one.
fn id_name(name: &str) -> Option<&'static str> {
    let is = |id: &str| {
        let letters = name.bytes().filter(|&byte| byte != b'_');
        letters.map(|byte| byte.to_ascii_lowercase()).eq(id.bytes())
    };
    ["traceid", "spanid"].into_iter().find(|id| is(id))
}

/// Reads a trace id of 128 bits, or of 64 as of Zipkin and Jaeger.
pub(crate) fn read_trace_id(text: &str, id: &mut [u8; 16]) -> bool {
    let mut half = [0; 8];
    if read_hex(text, &mut half) {
        *id = u128::from(u64::from_be_bytes(half)).to_be_bytes();
        return true;
    }
    read_hex(text, id)
}

/// Reads hexadecimal digits, exactly as many as there are bytes for.
pub(crate) fn read_hex<const N: usize>(text: &str, bytes: &mut [u8; N]) -> bool {
    let digits = text.as_bytes().as_chunks::<2>();
    if digits.0.len() != N || !digits.1.is_empty() {
        return false;
    }
    let mut read = [0; N];
    for (byte, digits) in read.iter_mut().zip(digits.0) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let Some((high, low)) = digit(digits[0]).zip(digit(digits[1])) else { return false };
        *byte = (high.unbounded_shl(4) | low) as u8;
    }
    *bytes = read;
    true
}

/// Reads an `Exemplar` of OpenTelemetry: 2 time_unix_nano, 3 as_double, 4 span_id, 5 trace_id,
/// 6 as_int, 7 filtered_attributes.
pub(crate) fn from_otlp(
    message: MessageReader<'_>,
    parse_label: &dyn Fn(MessageReader<'_>) -> Option<(String, String)>,
    each: &mut dyn FnMut(DecodedExemplar),
) {
    match read_otlp(message, parse_label) {
        Ok(Ok((exemplar, is_cut))) => {
            each(Ok(exemplar));
            if is_cut {
                each(Err(ExemplarProblem::Truncated));
            }
        }
        Ok(Err(problem)) => each(Err(problem)),
        Err(_) => each(Err(ExemplarProblem::Malformed)),
    }
}

/// The exemplar, and whether attributes were cut.
type OtlpExemplar = Result<(Exemplar, bool), ExemplarProblem>;

fn read_otlp(
    mut message: MessageReader<'_>,
    parse_label: &dyn Fn(MessageReader<'_>) -> Option<(String, String)>,
) -> Result<OtlpExemplar, InputError> {
    let (mut time, mut value) = (0_u64, None);
    let (mut span, mut trace): (&[u8], &[u8]) = (&[], &[]);
    let mut labels = Vec::new();
    while let Some((number, field)) = message.field()? {
        match number {
            2 => time = field.fixed64()?,
            3 => value = Some(field.double()?),
            4 => span = field.bytes()?,
            5 => trace = field.bytes()?,
            6 => value = Some(field.fixed64()? as i64 as f64),
            7 => match parse_label(field.message()?) {
                Some(label) => labels.push(label),
                None => return Ok(Err(ExemplarProblem::Malformed)),
            },
            _ => {}
        }
    }
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return Ok(Err(ExemplarProblem::InvalidValue));
    };
    let Ok(time) = i64::try_from(time) else { return Ok(Err(ExemplarProblem::InvalidTime)) };
    let (trace_id, span_id) = match (read_id(trace), read_id(span)) {
        (Some(trace), Some(span)) => (trace, span),
        _ => return Ok(Err(ExemplarProblem::MalformedId)),
    };
    let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let (attributes, is_cut) = ExemplarAttributes::received(pairs);
    let source = ExemplarSource::Otlp;
    Ok(Ok((Exemplar { time, value, trace_id, span_id, attributes, source }, is_cut)))
}

/// An id; zeros if it is absent.
fn read_id<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    match bytes {
        [] => Some([0; N]),
        bytes => bytes.try_into().ok(),
    }
}

/// Reads an `Exemplar` of a scrape: 1 label, 2 value, 3 timestamp.
pub(crate) fn from_scrape(
    bytes: &[u8],
    parse_label: impl Fn(MessageReader<'_>) -> Result<(String, String), InputError>,
    parse_timestamp: impl Fn(MessageReader<'_>) -> Result<Option<i64>, InputError>,
    each: &mut dyn FnMut(DecodedExemplar),
) {
    let read = || {
        let (mut labels, mut value, mut time) = (Vec::new(), 0.0, Some(0));
        let mut message = MessageReader::new(bytes);
        while let Some((number, field)) = message.field()? {
            match number {
                1 => labels.push(parse_label(field.message()?)?),
                2 => value = field.double()?,
                3 => time = parse_timestamp(field.message()?)?,
                _ => {}
            }
        }
        Ok::<_, InputError>((labels, value, time))
    };
    match read() {
        Ok((labels, value, Some(time))) => {
            let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            from_labels(pairs, value, (time, ExemplarSource::Scrape), each);
        }
        Ok((.., None)) => each(Err(ExemplarProblem::InvalidTime)),
        Err(_) => each(Err(ExemplarProblem::Malformed)),
    }
}

/// Reads an `Exemplar` of remote write: 1 labels, 2 value, 3 timestamp in milliseconds.
/// `read_label` appends the names and values of a field of labels.
pub(crate) fn from_remote_write(
    mut message: MessageReader<'_>,
    read_label: &dyn Fn(FieldValue<'_>, &mut Vec<String>) -> Option<()>,
    each: &mut dyn FnMut(DecodedExemplar),
) {
    let mut read = || {
        let (mut texts, mut value, mut time) = (Vec::new(), 0.0, 0_i64);
        while let Some((number, field)) = message.field().ok()? {
            match number {
                1 => read_label(field, &mut texts)?,
                2 => value = field.double().ok()?,
                3 => time = field.varint().ok()? as i64,
                _ => {}
            }
        }
        texts.len().is_multiple_of(2).then_some((texts, value, time))
    };
    let Some((texts, value, time)) = read() else { return each(Err(ExemplarProblem::Malformed)) };
    let Some(time) = time.checked_mul(MILLISECOND) else {
        return each(Err(ExemplarProblem::InvalidTime));
    };
    let pairs = texts.as_chunks::<2>().0.iter().map(|[name, value]| (&**name, &**value));
    from_labels(pairs, value, (time, ExemplarSource::RemoteWrite), each);
}

/// A text of a label, no longer than what shows that it is cut: a request may refer to a long text
/// very often.
pub(crate) fn label_text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let end = text.ceil_char_boundary(model::EXEMPLAR_VALUE_BYTES_MAX.saturating_add(1));
    text.get(..end).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(labels: &[(&str, &str)]) -> Vec<DecodedExemplar> {
        let mut found = Vec::new();
        let pairs = labels.iter().copied();
        from_labels(pairs, 1.5, (7, ExemplarSource::Scrape), &mut |one| found.push(one));
        found
    }

    #[track_caller]
    fn check(labels: &[(&str, &str)], ids: (u128, u64), attributes: &[(&str, &str)]) {
        let [Ok(found)] = &read(labels)[..] else { panic!("{:?}", read(labels)) };
        assert_eq!(u128::from_be_bytes(found.trace_id), ids.0);
        assert_eq!(u64::from_be_bytes(found.span_id), ids.1);
        assert_eq!(found.attributes.iter().collect::<Vec<_>>(), attributes);
        assert_eq!((found.time, found.value), (7, 1.5));
    }

    #[test]
    fn ids_are_read_in_any_spelling() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let id = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
        check(
            &[("trace_id", trace), ("span_id", "b7ad6b7169203331")],
            (id, 0xb7ad_6b71_6920_3331),
            &[],
        );
        check(&[("traceID", &trace.to_uppercase()), ("user", "u1")], (id, 0), &[("user", "u1")]);
        check(&[("TraceId", "b7ad6b7169203331")], (0xb7ad_6b71_6920_3331, 0), &[]);
        check(&[], (0, 0), &[]);
    }

    #[test]
    fn other_ids_are_attributes() {
        for id in ["oHg5SJYRHA0", "0af7651916cd43dd8448eb211c80319", "+f", "é"] {
            check(&[("trace_id", id)], (0, 0), &[("trace_id", id)]);
            check(&[("span_id", id)], (0, 0), &[("span_id", id)]);
        }
    }

    #[test]
    fn long_attributes_are_cut_and_counted() {
        let found = read(&[("sql", &"x".repeat(100_000))]);
        assert!(matches!(&found[..], [Ok(_), Err(ExemplarProblem::Truncated)]));
        let text = label_text("é".repeat(1_000).as_bytes()).unwrap();
        assert!((257..260).contains(&text.len()), "{}", text.len());
        assert_eq!(label_text(b"short").as_deref(), Some("short"));
        assert_eq!(label_text(&[0xff]), None);
    }
}
