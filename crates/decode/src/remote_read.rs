//! Decoder of Prometheus' remote read: a request into queries.
//!
//! ```text
//! ReadRequest   1 queries (Query), 2 accepted_response_types (0: samples, 1: streamed chunks)
//! Query         1 start (ms), 2 end (ms), both inclusive, 3 matchers, 4 hints (ignored)
//! LabelMatcher  1 type (0 =, 1 !=, 2 =~, 3 !~), 2 name, 3 value
//! ```
//!
//! Limits: [`QUERIES_MAX`] queries with [`MATCHERS_MAX`] matchers each.
//!
//! Source: prometheus v0.315.0, `prompb/remote.proto`, `prompb/types.proto`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::protobuf::MessageReader;

use crate::input_error::{InputError, InputPosition};

/// Maximum number of queries of a request; Prometheus sends one.
pub const QUERIES_MAX: usize = 16;
/// Maximum number of matchers of a query.
pub const MATCHERS_MAX: usize = 64;

/// Query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadQuery {
    /// First time, in milliseconds since the Unix epoch.
    pub start_ms: i64,
    /// Last time.
    pub end_ms: i64,
    /// Conditions on the labels, all of which hold.
    pub matchers: Vec<ReadMatcher>,
}

/// Condition on a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadMatcher {
    /// Operator in PromQL: `=`, `!=`, `=~` or `!~`.
    pub operator: &'static str,
    /// Name of the label.
    pub name: String,
    /// Value, or regex of the whole value.
    pub value: String,
}

/// Reads a decompressed request of a client that accepts samples.
pub fn read_request(body: &[u8]) -> Result<Vec<ReadQuery>, InputError> {
    let mut request = MessageReader::new(body);
    let (mut queries, mut has_types, mut takes_samples) = (Vec::new(), false, false);
    while let Some((number, field)) = request.field()? {
        match number {
            1 if queries.len() == QUERIES_MAX => {
                let expected = format!("at most {QUERIES_MAX} queries");
                return Err(invalid(&request, &expected, "more"));
            }
            1 => queries.push(read_query(field.message()?)?),
            2 => field.varints(&mut |kind| {
                has_types = true;
                takes_samples |= kind == 0;
            })?,
            _ => {}
        }
    }
    if has_types && !takes_samples {
        let expected = "SAMPLES among the accepted response types";
        return Err(invalid(&request, expected, "STREAMED_XOR_CHUNKS only"));
    }
    Ok(queries)
}

fn read_query(mut message: MessageReader<'_>) -> Result<ReadQuery, InputError> {
    let mut query = ReadQuery::default();
    while let Some((number, field)) = message.field()? {
        match number {
            1 => query.start_ms = field.varint()?.cast_signed(),
            2 => query.end_ms = field.varint()?.cast_signed(),
            3 if query.matchers.len() == MATCHERS_MAX => {
                let expected = format!("at most {MATCHERS_MAX} matchers");
                return Err(invalid(&message, &expected, "more"));
            }
            3 => query.matchers.push(read_matcher(field.message()?)?),
            _ => {}
        }
    }
    Ok(query)
}

fn read_matcher(mut message: MessageReader<'_>) -> Result<ReadMatcher, InputError> {
    let mut matcher = ReadMatcher { operator: "=", ..ReadMatcher::default() };
    while let Some((number, field)) = message.field()? {
        match number {
            1 => {
                matcher.operator = match field.varint()? {
                    0 => "=",
                    1 => "!=",
                    2 => "=~",
                    3 => "!~",
                    other => {
                        let expected = "a type of a matcher, 0 to 3";
                        return Err(invalid(&message, expected, &other.to_string()));
                    }
                };
            }
            2 => matcher.name = field.text()?.to_owned(),
            3 => matcher.value = field.text()?.to_owned(),
            _ => {}
        }
    }
    Ok(matcher)
}

fn invalid(at: &MessageReader<'_>, expected: &str, found: &str) -> InputError {
    InputError::new(InputPosition::Byte(at.offset()), expected.to_owned(), found.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn matcher(kind: u8, name: &str, value: &str) -> Vec<u8> {
        let parts = [vec![1 << 3, kind], field(2, name.as_bytes()), field(3, value.as_bytes())];
        field(3, &parts.concat())
    }

    #[test]
    fn queries_have_their_times_and_matchers() {
        let times = [1 << 3, 0x90, 0x4e, 2 << 3, 0xa0, 0x9c, 0x01];
        let query = [&times[..], &matcher(0, "__name__", "up"), &matcher(3, "job", "a|b")].concat();
        // The hints (4) are ignored.
        let request = [field(1, &query), field(1, &field(4, &[8, 1])), vec![2 << 3, 1, 2 << 3, 0]];
        let of = |operator, name: &str, value: &str| ReadMatcher {
            operator,
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let expected = ReadQuery {
            start_ms: 10_000,
            end_ms: 20_000,
            matchers: vec![of("=", "__name__", "up"), of("!~", "job", "a|b")],
        };
        assert_eq!(read_request(&request.concat()).unwrap(), [expected, ReadQuery::default()]);
        assert_eq!(read_request(b"").unwrap(), []);
    }

    #[test]
    fn requests_that_cannot_be_answered_are_explained() {
        let error = |body: &[u8]| read_request(body).unwrap_err().to_string();
        assert!(error(&[2 << 3, 1]).contains("STREAMED_XOR_CHUNKS only"), "{}", error(&[16, 1]));
        assert!(error(&field(1, &matcher(4, "a", "b"))).contains("0 to 3"));
        let many = field(1, b"").repeat(QUERIES_MAX + 1);
        assert!(error(&many).contains("at most 16 queries"));
        assert!(read_request(&field(1, b"")[..1]).is_err());
    }
}
