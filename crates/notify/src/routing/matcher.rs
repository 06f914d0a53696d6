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
    fn invalid_matchers_are_rejected() {
        for text in ["", "job", "=a", "1a=b", "jo b=c", "job=\"a", "job=a\"", "job=~\"(\"", "a!b"] {
            assert!(AlertMatcher::parse(text).is_err(), "{text:?}");
        }
    }
}
