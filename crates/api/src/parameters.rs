//! Query parameters from the URL and form bodies.
//!
//! Limits: a form has at most [`FORM_BYTES_MAX`] bytes, a request at most [`PARAMETERS_MAX`]
//! parameters.

use std::str::FromStr;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use http::header;
use model::Selector;
use model::selector::REGEXES_MAX;
use role::time_expr::{self, DURATION_SYNTAX, TIME_SYNTAX};

use crate::api_error::ApiError;
use crate::route::Parameter;

/// Maximum form size in bytes: expressions have up to 256 KiB, and escaping may triple this.
const FORM_BYTES_MAX: usize = 1 << 20;
/// Maximum number of parameters: dashboards send dozens of selectors.
const PARAMETERS_MAX: usize = 1000;
/// Maximum number of values of a parameter: every heatmap column has each threshold and quantile.
const PARAMETER_VALUES_MAX: usize = 100;

/// Parameters in request order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl<S: Sync> FromRequest<S> for Parameters {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Parameters, ApiError> {
        let mut parameters = Parameters::from_query(request.uri().query().unwrap_or(""))?;
        let kind = request.headers().get(header::CONTENT_TYPE);
        let is_form = kind
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
        if request.method() == http::Method::POST && is_form {
            let body = axum::body::to_bytes(request.into_body(), FORM_BYTES_MAX).await;
            let body = body.map_err(|error| {
                ApiError::BadRequest(format!(
                    "cannot read the form: {error}; the size limit is {FORM_BYTES_MAX} bytes"
                ))
            })?;
            let text = std::str::from_utf8(&body)
                .map_err(|_| ApiError::BadRequest("the form is not UTF-8".to_owned()))?;
            parameters.parse(text.trim_end())?;
        }
        Ok(parameters)
    }
}

impl Parameters {
    /// Parameters of a URL.
    pub(crate) fn from_query(text: &str) -> Result<Parameters, ApiError> {
        let mut parameters = Parameters::default();
        parameters.parse(text)?;
        Ok(parameters)
    }

    /// Parameters of a URL, of a request with another body than a form.
    pub(crate) fn of_uri(uri: &http::Uri) -> Result<Parameters, ApiError> {
        let mut parameters = Parameters::default();
        parameters.parse(uri.query().unwrap_or(""))?;
        Ok(parameters)
    }

    fn parse(&mut self, text: &str) -> Result<(), ApiError> {
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if self.0.len() >= PARAMETERS_MAX {
                return Err(ApiError::BadRequest(format!(
                    "limit of {PARAMETERS_MAX} parameters exceeded; send fewer"
                )));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| {
                decode(text)
                    .ok_or_else(|| ApiError::invalid_parameter(name, text, "UTF-8, with % escapes"))
            };
            self.0.push((decoded(name)?, decoded(value)?));
        }
        Ok(())
    }

    /// Rejects unknown names.
    pub(crate) fn reject_unknown(self, known: &[Parameter]) -> Result<Parameters, ApiError> {
        match self.0.iter().find(|(name, _)| known.iter().all(|known| known.name != *name)) {
            None => Ok(self),
            Some((name, _)) => {
                let known: Vec<&str> = known.iter().map(|known| known.name).collect();
                let known = known.join(", ");
                Err(ApiError::BadRequest(format!("unknown parameter {name:?}; allowed: {known}")))
            }
        }
    }

    /// Name and value pairs.
    pub(crate) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// The first non-empty value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).find(|value| !value.is_empty())
    }

    /// All values of a name.
    pub(crate) fn all<'a, 'b>(
        &'a self,
        name: &'b str,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        let values = self.0.iter().filter(move |(found, _)| found == name);
        values.map(|(_, value)| value.as_str())
    }

    /// A required value.
    pub(crate) fn required(&self, name: &str, expected: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| {
            ApiError::BadRequest(format!("parameter {name} is missing, expected {expected}"))
        })
    }

    /// A value parsed by a function.
    pub(crate) fn parse_with<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let parse =
            |text| read(text).ok_or_else(|| ApiError::invalid_parameter(name, text, expected));
        self.get(name).map(parse).transpose()
    }

    /// All values of a parameter, repeated or separated by commas.
    pub(crate) fn parse_all<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<T, ApiError>,
    ) -> Result<Vec<T>, ApiError> {
        let texts = self.all(name).flat_map(|text| text.split(',')).map(str::trim);
        let mut all = Vec::new();
        for text in texts.filter(|text| !text.is_empty()) {
            if all.len() == PARAMETER_VALUES_MAX {
                return Err(ApiError::BadRequest(format!(
                    "limit of {PARAMETER_VALUES_MAX} values of parameter {name} exceeded; use fewer"
                )));
            }
            all.push(read(text)?);
        }
        Ok(all)
    }

    /// A time.
    pub(crate) fn time(&self, name: &str, now: i64) -> Result<Option<i64>, ApiError> {
        self.parse_with(name, TIME_SYNTAX, |text| time_expr::parse_time_parameter(text, now))
    }

    /// A duration in nanoseconds.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.parse_with(name, DURATION_SYNTAX, time_expr::parse_duration_parameter)
    }

    /// The timeout of the query.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, ApiError> {
        Ok(self.duration("timeout")?.map(|ns| Duration::from_nanos(ns.unsigned_abs())))
    }

    /// A number of at most `max`, or the default.
    pub(crate) fn integer<T: FromStr + PartialOrd + std::fmt::Display + Copy>(
        &self,
        name: &str,
        default: T,
        max: T,
    ) -> Result<T, ApiError> {
        let expected = format!("a whole number up to {max}");
        let read = |text: &str| text.parse().ok().filter(|n| *n <= max);
        Ok(self.parse_with(name, &expected, read)?.unwrap_or(default))
    }

    /// A boolean: `true`, `1` or an empty value.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.all(name).next() {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(other) => Err(ApiError::invalid_parameter(name, other, "true or false")),
        }
    }

    /// A parsed selector.
    pub(crate) fn selector(&self, name: &str) -> Result<Option<Selector>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        parse_selector(name, text).map(Some)
    }

    /// The union of all selectors of a name; without any, all series. Call it on a blocking thread:
    /// regexes are expensive to compile.
    pub(crate) fn selectors(&self, name: &str) -> Result<Selector, ApiError> {
        let texts = self.all(name).filter(|text| !text.is_empty());
        let all = parse_all(name, texts, REGEXES_MAX, |text| parse_selector(name, text))?;
        Ok(if all.is_empty() { Selector::All } else { Selector::or(all) })
    }
}

/// Several selector texts, each parsed by `read`. Together they may have as many regexes as a
/// single one: all are held in memory during the query.
pub(crate) fn parse_all<'a>(
    name: &str,
    texts: impl Iterator<Item = &'a str>,
    regexes_max: usize,
    read: impl Fn(&str) -> Result<Selector, ApiError>,
) -> Result<Vec<Selector>, ApiError> {
    let (mut all, mut regexes) = (Vec::new(), 0);
    for text in texts {
        let selector = read(text)?;
        regexes += selector.regex_count();
        if regexes > regexes_max {
            return Err(ApiError::BadRequest(format!(
                "limit of {regexes_max} regexes exceeded by all values of {name} together \
                 ({regexes}); use fewer"
            )));
        }
        all.push(selector);
    }
    Ok(all)
}

/// Description of the selector syntax.
pub(crate) const SELECTOR_SYNTAX: &str =
    "a selector such as latency, latency{host=\"a\"} or and(host:web-*)";

fn parse_selector(name: &str, text: &str) -> Result<Selector, ApiError> {
    Selector::parse(text).map_err(|error| {
        let error_head = ApiError::invalid_parameter(name, text, SELECTOR_SYNTAX);
        ApiError::BadRequest(format!("{}: {error}", error_head.message()))
    })
}

/// Decodes `+` and `%` escapes.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route;

    fn parse(text: &str) -> Result<Parameters, ApiError> {
        let mut parameters = Parameters::default();
        parameters.parse(text).map(|()| parameters)
    }

    #[track_caller]
    fn check<T: std::fmt::Debug>(outcome: Result<T, ApiError>, expected: &str) {
        assert_eq!(outcome.unwrap_err().message(), expected);
    }

    #[test]
    fn escapes_are_decoded() {
        let parameters =
            parse("query=sum+by(%C3%A9)%28a%29&match[]=a&match%5B%5D=b&empty").unwrap();
        assert_eq!(parameters.get("query"), Some("sum by(é)(a)"));
        assert_eq!(parameters.all("match[]").collect::<Vec<_>>(), ["a", "b"]);
        assert!(parameters.flag("empty").unwrap() && !parameters.flag("other").unwrap());
    }

    #[test]
    fn regex_limit_is_shared_by_all_values() {
        let parse_selectors = |values: usize, regexes: usize| {
            let value = format!("and({})&", vec!["a:/b/"; regexes].join(","));
            parse(&format!("selector={value}").repeat(values)).unwrap().selectors("selector")
        };
        assert_eq!(parse_selectors(4, 8).unwrap().regex_count(), REGEXES_MAX);
        check(
            parse_selectors(3, 11),
            "limit of 32 regexes exceeded by all values of selector together (33); use fewer",
        );
        assert_eq!(parse("selector=&a=b").unwrap().selectors("selector"), Ok(Selector::All));
    }

    #[test]
    fn invalid_parameters_are_named() {
        check(parse("a=%f"), r#"parameter a: found "%f", expected UTF-8, with % escapes"#);
        check(parse("a=%ff"), r#"parameter a: found "%ff", expected UTF-8, with % escapes"#);
        let found = parse("from=noon&limit=9&step=x&selector={a").unwrap();
        check(
            found.time("from", 0),
            "parameter from: found \"noon\", expected a time such as 2026-11-09T12:30:00Z, Unix \
             seconds, nanoseconds as 1794225600000000000ns, now or -2h",
        );
        check(
            found.integer("limit", 1, 8),
            r#"parameter limit: found "9", expected a whole number up to 8"#,
        );
        check(
            found.duration("step"),
            r#"parameter step: found "x", expected a duration such as 30s, 5m, 1h30m or 250ms, or seconds"#,
        );
        check(
            found.required("query", "an expression"),
            "parameter query is missing, expected an expression",
        );
        check(
            found.clone().reject_unknown(&[route::FROM, route::TO]),
            r#"unknown parameter "limit"; allowed: from, to"#,
        );
        assert!(
            found.selector("selector").unwrap_err().message().starts_with(
                "parameter selector: found \"{a\", expected a selector such as latency"
            )
        );
        let many = "a=1&".repeat(1001);
        check(parse(&many), "limit of 1000 parameters exceeded; send fewer");
    }
}
