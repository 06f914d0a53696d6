//! JSON bodies of requests, and times and texts in responses.

use jiff::Timestamp;
use notify::AlertMatcher;
use role::RouteError;
use role::json::Json::{self, Text};
use serde::de::DeserializeOwned;

/// Seconds of Go's zero time, which stands for an absent time.
const GO_ZERO_S: i64 = -62_135_596_800;

/// Reads a body; `expected` is an example.
pub(crate) fn read_body<T: DeserializeOwned>(body: &[u8], expected: &str) -> Result<T, RouteError> {
    let failed = |cause: String| {
        RouteError::BadRequest(format!("cannot read the body: {cause}; expected {expected}"))
    };
    if body.is_empty() {
        return Err(failed("it is empty".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| failed(error.to_string()))
}

/// A time of RFC 3339 in nanoseconds; `None` for Go's zero time. Times that nanoseconds since the
/// Unix epoch cannot express become the first or last one.
pub(crate) fn parse_time(name: &str, text: &str) -> Result<Option<i64>, RouteError> {
    let time: Timestamp = text.parse().map_err(|_| {
        let expected = "a time such as \"2026-11-09T12:30:00Z\"";
        RouteError::BadRequest(format!("{name}: found {text:?}, expected {expected}"))
    })?;
    let clamped = time.as_nanosecond().clamp(i64::MIN.into(), i64::MAX.into());
    let ns = i64::try_from(clamped).expect("BUG: the number is clamped");
    Ok((time.as_second() != GO_ZERO_S).then_some(ns))
}

/// A duration in nanoseconds.
pub(crate) fn parse_duration(name: &str, text: &str) -> Result<i64, RouteError> {
    let duration = decode::parse_duration(text).filter(|duration| *duration > 0);
    duration.ok_or_else(|| {
        let expected = "a duration above 0 such as \"30m\" or \"2h\"";
        RouteError::BadRequest(format!("{name}: found {text:?}, expected {expected}"))
    })
}

/// Matchers in Alertmanager's syntax.
pub(crate) fn parse_matchers<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<AlertMatcher>, RouteError> {
    let parse = |text| AlertMatcher::parse(text).map_err(bad_request);
    texts.into_iter().map(parse).collect()
}

/// An error of the request.
pub(crate) fn bad_request(error: impl std::fmt::Display) -> RouteError {
    RouteError::BadRequest(error.to_string())
}

/// RFC 3339.
pub(crate) fn rfc3339(ns: i64) -> Json {
    Text(Timestamp::from_nanosecond(ns.into()).map(|time| time.to_string()).unwrap_or_default())
}

/// A text.
pub(crate) fn text(text: impl Into<String>) -> Json {
    Text(text.into())
}

/// A value as it was sent.
pub(crate) fn value_json(value: &serde_json::Value) -> Json {
    use serde_json::Value;
    match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Json::Integer(integer.into()),
            None => role::json::number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(found) => text(found.as_str()),
        Value::Array(items) => Json::List(items.iter().map(value_json).collect()),
        Value::Object(fields) => Json::Map(
            fields.iter().map(|(name, value)| (name.clone(), value_json(value))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_go_clients_are_read() {
        let check =
            |text: &str, expected| assert_eq!(parse_time("t", text), Ok(expected), "{text}");
        check("1970-01-01T00:00:01.5Z", Some(1_500_000_000));
        check("1970-01-01T01:00:01+01:00", Some(1_000_000_000));
        check("0001-01-01T00:00:00Z", None);
        check("0001-01-01T00:00:00.000Z", None);
        check("9999-12-01T00:00:00Z", Some(i64::MAX));
        let RouteError::BadRequest(wrong) = parse_time("endsAt", "tomorrow").unwrap_err() else {
            panic!("not the error of a body");
        };
        assert!(
            wrong.starts_with("endsAt: found \"tomorrow\", expected a time such as"),
            "{wrong}"
        );
    }
}
