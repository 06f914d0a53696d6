//! Conditions on spans: tags of Tempo's search in logfmt, and the part of TraceQL that Grafana's
//! search form writes: `{ a = "b" && resource.c != 1 && duration > 10ms }`.

use std::cmp::Ordering;

use decode::spans::trace::TraceSpan;
use role::time_expr;

use crate::api_error::ApiError;

const TRACEQL_EXPECTED: &str =
    "{ attribute = value && … } with =, !=, <, <=, > or >=, such as { span.http.route = \"/pay\" }";
const KINDS: [&str; 6] = ["unspecified", "internal", "server", "client", "producer", "consumer"];
const STATUSES: [&str; 3] = ["unset", "ok", "error"];

/// What a condition is on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SpanField {
    Name,
    Kind,
    Status,
    /// In nanoseconds.
    Duration,
    /// An attribute of the span or of its resource, of either, by its name.
    Attribute {
        of_span: bool,
        of_resource: bool,
        name: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
struct SpanCondition {
    field: SpanField,
    operator: &'static str,
    value: String,
}

/// Conditions that a span must meet, all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SpanFilter(Vec<SpanCondition>);

impl SpanField {
    fn parse(text: &str) -> SpanField {
        let attribute = |name: &str, of_span, of_resource| SpanField::Attribute {
            of_span,
            of_resource,
            name: name.to_owned(),
        };
        match text {
            "name" | "span:name" => SpanField::Name,
            "kind" | "span:kind" => SpanField::Kind,
            "status" | "span:status" => SpanField::Status,
            "duration" | "span:duration" => SpanField::Duration,
            text => match (text.strip_prefix("span."), text.strip_prefix("resource.")) {
                (Some(name), _) => attribute(name, true, false),
                (_, Some(name)) => attribute(name, false, true),
                _ => attribute(text.strip_prefix('.').unwrap_or(text), true, true),
            },
        }
    }

    /// Values of a span.
    fn values(&self, span: &TraceSpan<'_>, each: &mut dyn FnMut(&str)) {
        let name_of = |names: &[&'static str], number: u8| {
            names.get(usize::from(number)).copied().unwrap_or_default()
        };
        match self {
            SpanField::Name => each(span.name),
            SpanField::Kind => each(name_of(&KINDS, span.kind)),
            SpanField::Status => each(name_of(&STATUSES, span.status)),
            SpanField::Duration => each(&span.end.saturating_sub(span.start).to_string()),
            SpanField::Attribute { of_span, of_resource, name } => {
                let mut all = |(found, value): (String, String)| {
                    if found == *name {
                        each(&value);
                    }
                };
                if *of_span {
                    span.attributes().for_each(&mut all);
                }
                if *of_resource {
                    span.resource_attributes().for_each(&mut all);
                }
            }
        }
    }
}

/// A number as users write it, and exactly if it is whole: not `NaN`, `inf` or `007`, which are
/// texts.
fn number(text: &str) -> Option<(f64, Option<i128>)> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = match digits.as_bytes() {
        [b'0', rest @ ..] => !rest.first().is_some_and(u8::is_ascii_digit),
        [first, ..] => first.is_ascii_digit() || *first == b'.',
        [] => false,
    };
    let float = text.parse().ok().filter(|float: &f64| is_number && float.is_finite())?;
    Some((float, text.parse().ok()))
}

impl SpanCondition {
    /// Order of a value that a span has and the one of the condition. Only numbers have one in
    /// relation to a number, besides being equal or not.
    fn order(&self, found: &str) -> Option<Ordering> {
        match (number(found), number(&self.value)) {
            (Some((_, Some(found))), Some((_, Some(value)))) => Some(found.cmp(&value)),
            (Some((found, _)), Some((value, _))) => found.partial_cmp(&value),
            (None, Some(_)) if self.operator.starts_with(['<', '>']) => None,
            _ => Some(found.cmp(&self.value)),
        }
    }

    fn is_met(&self, span: &TraceSpan<'_>) -> bool {
        let mut is_met = false;
        self.field.values(span, &mut |found| {
            is_met |= self.order(found).is_some_and(|order| match self.operator {
                "=" => order.is_eq(),
                "!=" => order.is_ne(),
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            });
        });
        is_met
    }
}

impl SpanFilter {
    /// Tags: `key=value`, separated by spaces; values may be quoted.
    pub(super) fn from_tags(text: &str) -> Result<SpanFilter, ApiError> {
        let invalid =
            || ApiError::invalid_parameter("tags", text, "key=value, separated by spaces");
        let (mut conditions, mut rest) = (Vec::new(), text.trim());
        while !rest.is_empty() {
            let (name, value) = rest.split_once('=').ok_or_else(invalid)?;
            let (value, after) = split_value(value, ' ').ok_or_else(invalid)?;
            let field = SpanField::parse(name.trim());
            conditions.push(SpanCondition { field, operator: "=", value });
            rest = after.trim();
        }
        Ok(SpanFilter(conditions))
    }

    /// A set of spans of TraceQL, by conditions that are all to be met.
    pub(super) fn from_traceql(text: &str) -> Result<SpanFilter, ApiError> {
        let invalid = || ApiError::invalid_parameter("q", text, TRACEQL_EXPECTED);
        let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let (mut conditions, mut rest) = (Vec::new(), inner.ok_or_else(invalid)?.trim());
        if rest == "true" {
            rest = "";
        }
        while !rest.is_empty() {
            let end = rest.find(['=', '!', '<', '>']).ok_or_else(invalid)?;
            let (name, after) = rest.split_at(end);
            let operators = ["!=", "<=", ">=", "=", "<", ">"];
            let operator = operators.into_iter().find(|operator| after.starts_with(operator));
            let operator = operator.ok_or_else(invalid)?;
            let value = after[operator.len()..].trim_start();
            // Regular expressions are not supported.
            let is_quoted = value.starts_with('"');
            let (value, after) = split_value(value, '&')
                .filter(|(value, _)| is_word(name.trim()) && (is_quoted || is_word(value)))
                .ok_or_else(invalid)?;
            let field = SpanField::parse(name.trim());
            let value = match field {
                SpanField::Duration => {
                    time_expr::parse_duration_parameter(&value).ok_or_else(invalid)?.to_string()
                }
                _ => value,
            };
            conditions.push(SpanCondition { field, operator, value });
            rest = match after.trim() {
                "" => "",
                after => after.strip_prefix("&&").ok_or_else(invalid)?.trim(),
            };
        }
        Ok(SpanFilter(conditions))
    }

    pub(super) fn and(mut self, other: SpanFilter) -> SpanFilter {
        self.0.extend(other.0);
        self
    }

    pub(super) fn is_met(&self, span: &TraceSpan<'_>) -> bool {
        self.0.iter().all(|condition| condition.is_met(span))
    }
}

/// Passes on the values of an attribute, as a condition names it.
pub(super) fn each_value(name: &str, span: &TraceSpan<'_>, each: &mut dyn FnMut(&str)) {
    SpanField::parse(name).values(span, each);
}

/// Whether a text needs no quotes in TraceQL, as a name or a value. Otherwise it may be of an
/// expression that is not supported.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(|it: char| it.is_whitespace() || "|&{}()=!<>~\"`".contains(it))
}

/// A value, perhaps in double quotes, and what follows it; without quotes it ends at a separator.
fn split_value(text: &str, separator: char) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(separator).unwrap_or(text.len());
        return Some((text[..end].trim().to_owned(), &text[end..]));
    };
    let (mut value, mut characters) = (String::new(), quoted.char_indices());
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, &quoted[at + 1..])),
            (_, '\\') => value.push(characters.next()?.1),
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(q: &str, expected: &[(&str, &str, &str)]) {
        let conditions = expected.iter().map(|(field, operator, value)| {
            let operators = ["!=", "<=", ">=", "=", "<", ">"];
            let operator = operators.into_iter().find(|known| known == operator).unwrap();
            SpanCondition { field: SpanField::parse(field), operator, value: (*value).to_owned() }
        });
        assert_eq!(SpanFilter::from_traceql(q), Ok(SpanFilter(conditions.collect())), "{q}");
    }

    #[test]
    fn conditions_of_searches_are_parsed() {
        check("{}", &[]);
        check(" { true } ", &[]);
        check("{name=\"GET /a && b\"}", &[("name", "=", "GET /a && b")]);
        check(
            "{ resource.service.name = \"a\\\"b\" && duration >= 1.5s && status = error && .n!=3}",
            &[
                ("resource.service.name", "=", "a\"b"),
                ("duration", ">=", "1500000000"),
                ("status", "=", "error"),
                ("n", "!=", "3"),
            ],
        );
        let invalid =
            "{a} {a=\"b} {a=~\"b\"} {=1} {a=} {a=1}&&{b=2} {a=1}>>{b=2} {a=b||c=d} {(a=1)}";
        let spaced = [
            "",
            "{a=1} | count()",
            "{ status = error || status = ok }",
            "{a=1} && {b=2}",
            "{a=1} >> {b=2}",
            "{a=\"1\"} && {b=2}",
            "{ a = 1 && {b=2}",
            "{ a = b c }",
            "{ a = `b` }",
        ];
        for invalid in invalid.split(' ').chain(spaced) {
            let found = SpanFilter::from_traceql(invalid);
            assert!(found.is_err(), "{invalid}: {found:?}");
        }
        let tags = SpanFilter::from_tags("service.name=shop http.url=\"a b\" ").unwrap();
        let names: Vec<&str> = tags.0.iter().map(|condition| condition.value.as_str()).collect();
        assert_eq!(names, ["shop", "a b"]);
        assert!(SpanFilter::from_tags("a b").is_err());
    }

    #[test]
    fn numbers_are_compared_as_numbers_and_texts_as_texts() {
        let is_met = |found: &str, operator: &'static str, value: &str| {
            let field = SpanField::Name;
            let value = value.to_owned();
            let order = SpanCondition { field, operator, value }.order(found);
            order.map(|order| order as i8)
        };
        for (found, operator, value, expected) in [
            ("9", ">", "10", Some(-1)),
            ("1.5", "=", "1.50", Some(0)),
            ("9007199254740993", "=", "9007199254740992", Some(1)),
            ("-3", "<", "2.5", Some(-1)),
            ("NaN", "=", "NaN", Some(0)),
            ("inf", "=", "infinity", Some(-1)),
            ("007", "=", "7", Some(-1)),
            ("Timeout", ">=", "500", None),
            ("Timeout", "!=", "500", Some(1)),
            ("b", ">", "a", Some(1)),
        ] {
            assert_eq!(is_met(found, operator, value), expected, "{found} {operator} {value}");
        }
    }
}
