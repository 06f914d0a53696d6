//! Matchers of labels: `name="value"`, `!=`, `=~`, `!~`. A missing label is empty; a regular
//! expression matches the whole value.
//!
//! The syntax is that of Alertmanager's classic parser (`pkg/labels/parse.go`), and names may be
//! any text, in quotes if they have blanks or special characters.

use std::fmt;

use regex::{Regex, RegexBuilder};

use super::AlertLabels;

/// Longest name or value of a matcher in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Maximum size of a compiled regular expression in bytes, and of its cache; `\w{20}` still fits.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A condition on one label.
#[derive(Clone, Debug)]
pub struct AlertMatcher {
    name: String,
    value: String,
    is_negated: bool,
    /// `None` for a comparison.
    regex: Option<Regex>,
}

/// A matcher is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read matcher {text:?}: {reason}")]
pub struct MatcherError {
    text: String,
    reason: String,
}

/// Operators; a longer one is before its prefix.
const OPERATORS: [(&str, bool, bool); 4] =
    [("=~", false, true), ("!~", true, true), ("!=", true, false), ("=", false, false)];

impl AlertMatcher {
    /// A matcher of a label name and a value.
    pub fn new(
        name: &str,
        value: &str,
        is_regex: bool,
        is_equal: bool,
    ) -> Result<AlertMatcher, MatcherError> {
        let failed = |reason: &str| {
            let text = format!("{name}={value}").chars().take(100).collect();
            MatcherError { text, reason: reason.to_owned() }
        };
        if name.is_empty() {
            return Err(failed("invalid label name; expected a name that is not empty"));
        }
        if name.len().max(value.len()) > TEXT_BYTES_MAX {
            return Err(failed("length limit (4 KiB) of names and values exceeded"));
        }
        let regex = match is_regex {
            false => None,
            true => {
                let regex = RegexBuilder::new(&format!("^(?:{value})$"))
                    .size_limit(REGEX_BYTES_MAX)
                    .dfa_size_limit(REGEX_BYTES_MAX)
                    .build();
                Some(regex.map_err(|error| failed(&error.to_string()))?)
            }
        };
        let (name, value) = (name.to_owned(), value.to_owned());
        Ok(AlertMatcher { name, value, is_negated: !is_equal, regex })
    }

    /// Parses a matcher. Quotes are optional; `\"`, `\\` and `\n` are escapes, other backslashes
    /// are literal.
    pub fn parse(text: &str) -> Result<AlertMatcher, MatcherError> {
        let failed =
            |reason: &str| MatcherError { text: text.to_owned(), reason: reason.to_owned() };
        let trimmed = text.trim();
        let (name, rest) = split_name(trimmed)
            .ok_or_else(|| failed("no operator, expected a matcher such as severity=\"page\""))?;
        let operator = OPERATORS.iter().find(|(operator, ..)| rest.starts_with(operator));
        let (operator, is_negated, is_regex) = operator
            .ok_or_else(|| failed("no operator, expected =, !=, =~ or !~ after the label name"))?;
        let value = unquote(rest[operator.len()..].trim());
        let value = value.ok_or_else(|| failed("invalid quotes"))?;
        let matcher = AlertMatcher::new(&name, &value, *is_regex, !is_negated);
        matcher.map_err(|error| failed(&error.reason))
    }

    /// Label name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Value or regular expression.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether the value is a regular expression.
    pub fn is_regex(&self) -> bool {
        self.regex.is_some()
    }

    /// Whether the label has to match; otherwise it must not.
    pub fn is_equal(&self) -> bool {
        !self.is_negated
    }

    /// Operator between name and value.
    pub(crate) fn operator(&self) -> &'static str {
        let found = OPERATORS.iter().find(|(_, is_negated, is_regex)| {
            (*is_negated, *is_regex) == (self.is_negated, self.is_regex())
        });
        found.expect("BUG: every combination has an operator").0
    }

    /// A matcher of an operator.
    pub(crate) fn of_operator(name: &str, operator: &str, value: &str) -> Option<AlertMatcher> {
        let (_, is_negated, is_regex) = OPERATORS.iter().find(|known| known.0 == operator)?;
        AlertMatcher::new(name, value, *is_regex, !is_negated).ok()
    }

    /// Parses several matchers with commas between them, in braces or not, as Alertmanager does.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<AlertMatcher>, MatcherError> {
        let inner = text.trim();
        let inner =
            inner.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(inner);
        let (mut is_quoted, mut is_escaped) = (false, false);
        let is_separator = |c: char| {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = is_quoted,
                '"' => is_quoted = !is_quoted,
                _ => return c == ',' && !is_quoted,
            }
            false
        };
        let mut parts: Vec<&str> = inner.split(is_separator).collect();
        if parts.last().is_some_and(|last| last.trim().is_empty()) {
            parts.pop();
        }
        parts.into_iter().map(AlertMatcher::parse).collect()
    }

    /// A matcher of `match` and `match_re` of old Alertmanager files.
    pub(crate) fn text_of(name: &str, operator: &str, value: &str) -> String {
        format!("{name}{operator}\"{}\"", escape(value))
    }

    /// Whether an alert with these labels matches.
    pub fn matches(&self, labels: &AlertLabels) -> bool {
        self.matches_value(labels.get(&self.name).map_or("", String::as_str))
    }

    /// Whether a missing label matches.
    pub(crate) fn matches_empty(&self) -> bool {
        self.matches_value("")
    }

    fn matches_value(&self, value: &str) -> bool {
        let is_match = match &self.regex {
            None => value == self.value,
            Some(regex) => regex.is_match(value),
        };
        is_match != self.is_negated
    }
}

impl fmt::Display for AlertMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.chars().any(is_special) {
            write!(f, "\"{}\"", escape(&self.name))?;
        } else {
            f.write_str(&self.name)?;
        }
        write!(f, "{}\"{}\"", self.operator(), escape(&self.value))
    }
}

fn is_special(c: char) -> bool {
    c.is_whitespace() || "{}!=~,\\\"'`".contains(c)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The label name, and the rest from the operator on.
fn split_name(text: &str) -> Option<(String, &str)> {
    if let Some(inner) = text.strip_prefix('"') {
        let mut is_escaped = false;
        let is_end = |c: char| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        };
        let end = inner.find(is_end)?;
        let name = unquote(text.get(..end + 2)?)?;
        return Some((name, inner[end + 1..].trim_start()));
    }
    let (name, rest) = text.split_at(text.find(['=', '!'])?);
    let name = name.trim();
    (!name.is_empty() && !name.contains(is_special)).then(|| (name.to_owned(), rest))
}

/// The text without quotes and escapes.
fn unquote(text: &str) -> Option<String> {
    let (inner, is_quoted) = match text.strip_prefix('"') {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    let mut value = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return (is_quoted && chars.as_str().is_empty()).then_some(value),
            '\\' => match chars.next() {
                Some('n') => value.push('\n'),
                Some(c @ ('"' | '\\')) => value.push(c),
                other => {
                    value.push('\\');
                    value.extend(other);
                }
            },
            c => value.push(c),
        }
    }
    (!is_quoted).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(matcher: &str, value: Option<&str>, expected: bool) {
        let labels = value.map(|value| ("job".to_owned(), value.to_owned())).into_iter().collect();
        assert_eq!(AlertMatcher::parse(matcher).unwrap().matches(&labels), expected, "{matcher}");
    }

    #[test]
    fn a_missing_label_is_empty_and_a_regex_matches_the_whole_value() {
        check("job=\"a\"", Some("a"), true);
        check("job = a", Some("a"), true);
        check("job!=a", None, true);
        check("job=\"\"", None, true);
        check("job=~\"a|b\"", Some("b"), true);
        check("job=~a", Some("ab"), false);
        check("job=~\"a|b\"", Some("bc"), false);
        check("job!~\"a.*\"", Some("abc"), false);
        check("job=~\".+\"", None, false);
        check(r#"job="a\"b\\""#, Some("a\"b\\"), true);
    }

    #[test]
    fn a_list_of_matchers_is_split_at_commas_outside_quotes() {
        let check = |text: &str, expected: usize| {
            assert_eq!(
                AlertMatcher::parse_list(text).map(|list| list.len()),
                Ok(expected),
                "{text}"
            );
        };
        check("job=a", 1);
        check(r#"{job="a,b\",c", zone!=x,}"#, 2);
        check("a=b,c=~d", 2);
        check("{}", 0);
        assert!(AlertMatcher::parse_list("a=b,,c=d").is_err());
        let text = AlertMatcher::text_of("job", "=~", "a\\.b\"c");
        let labels = [("job".to_owned(), "a.b\"c".to_owned())].into();
        assert!(AlertMatcher::parse(&text).unwrap().matches(&labels), "{text}");
    }

    #[test]
    fn invalid_matchers_are_rejected() {
        for text in ["", "job", "=a", "jo b=c", "job=\"a", "job=a\"", "job=~\"(\"", "a!b", "\"a=b"]
        {
            assert!(AlertMatcher::parse(text).is_err(), "{text:?}");
        }
        // A silence has up to 100 of them, and is kept.
        let error = AlertMatcher::parse(r"job=~\w{800}").unwrap_err().to_string();
        assert!(error.contains("exceeds size limit"), "{error}");
        assert!(AlertMatcher::parse(r"job=~\w{20}").is_ok());
    }

    #[test]
    fn matchers_are_written_as_alertmanager_writes_them() {
        let check = |text: &str, expected: &str| {
            let matcher = AlertMatcher::parse(text).unwrap();
            assert_eq!(matcher.to_string(), expected);
            let again = AlertMatcher::parse(expected).unwrap();
            assert_eq!((again.name(), again.value()), (matcher.name(), matcher.value()));
        };
        check("job=a", "job=\"a\"");
        check("job!~ a|b ", "job!~\"a|b\"");
        // Backslashes that are no escape are literal.
        check(r#"host=~"10\.0""#, r#"host=~"10\\.0""#);
        check(r#"note="say \"hi\"""#, r#"note="say \"hi\"""#);
        check(r#""a b"!="c""#, r#""a b"!="c""#);
        check("host.name=a", "host.name=\"a\"");
    }

    #[test]
    fn a_regex_of_alertmanager_does_not_match_line_breaks() {
        check("job=~a.b", Some("a\nb"), false);
        check("job=~\"(?s)a.b\"", Some("a\nb"), true);
    }
}
