//! Matchers of labels: `name="value"`, `!=`, `=~`, `!~`. A missing label is empty; a regular
//! expression matches the whole value.

use regex::Regex;

use super::AlertLabels;

/// A condition on one label.
#[derive(Clone, Debug)]
pub struct AlertMatcher {
    name: String,
    is_negated: bool,
    pattern: LabelPattern,
}

#[derive(Clone, Debug)]
enum LabelPattern {
    Equal(String),
    Regex(Regex),
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
    /// Parses a matcher. Quotes around the value are optional; in quotes, `\"`, `\\` and `\n` are
    /// escapes.
    pub fn parse(text: &str) -> Result<AlertMatcher, MatcherError> {
        let failed =
            |reason: &str| MatcherError { text: text.to_owned(), reason: reason.to_owned() };
        let trimmed = text.trim();
        let at = trimmed.find(['=', '!']).ok_or_else(|| failed("no operator"))?;
        let (name, rest) = trimmed.split_at(at);
        let name = name.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let starts_well = name.starts_with(|c: char| !c.is_ascii_digit());
        if !starts_well || !name.chars().all(is_name) {
            return Err(failed("invalid label name"));
        }
        let operator = OPERATORS.iter().find(|(operator, ..)| rest.starts_with(operator));
        let (operator, is_negated, is_regex) = operator.ok_or_else(|| failed("no operator"))?;
        let value = unquote(rest[operator.len()..].trim());
        let value = value.ok_or_else(|| failed("invalid quotes or escape"))?;
        let pattern = match is_regex {
            false => LabelPattern::Equal(value),
            true => {
                let regex = Regex::new(&format!("^(?s:{value})$"));
                LabelPattern::Regex(regex.map_err(|error| failed(&error.to_string()))?)
            }
        };
        Ok(AlertMatcher { name: name.to_owned(), is_negated: *is_negated, pattern })
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
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}{operator}\"{value}\"")
    }

    pub(crate) fn matches(&self, labels: &AlertLabels) -> bool {
        let value = labels.get(&self.name).map_or("", String::as_str);
        let is_match = match &self.pattern {
            LabelPattern::Equal(expected) => value == expected,
            LabelPattern::Regex(regex) => regex.is_match(value),
        };
        is_match != self.is_negated
    }
}

fn unquote(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix('"') else {
        return (!text.contains('"')).then(|| text.to_owned());
    };
    let inner = inner.strip_suffix('"')?;
    let mut value = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return None,
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                c @ ('"' | '\\') => value.push(c),
                _ => return None,
            },
            c => value.push(c),
        }
    }
    Some(value)
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
        for text in ["", "job", "=a", "1a=b", "jo b=c", "job=\"a", "job=a\"", "job=~\"(\"", "a!b"] {
            assert!(AlertMatcher::parse(text).is_err(), "{text:?}");
        }
    }
}
