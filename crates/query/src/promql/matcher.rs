//! Label matchers.

use regex::{Regex, RegexBuilder};

use super::pattern;
use crate::labels::{LabelSet, NAME};

/// Maximum size in bytes of a compiled regex, and of its search cache.
pub(crate) const REGEX_SIZE_MAX: usize = 1 << 20;
/// Maximum nesting of groups and classes of a regex.
const REGEX_NESTING_MAX: u32 = 100;

/// Label matcher; a missing label equals the empty string.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// Label name; `__name__` for the metric name.
    pub name: String,
    /// Match operator.
    pub op: MatchOp,
    /// Value or regex.
    pub value: String,
    regex: Option<Regex>,
}

/// Match operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum MatchOp {
    Equal,
    NotEqual,
    Regex,
    NotRegex,
}

impl MatchOp {
    /// Text in an expression.
    pub fn text(self) -> &'static str {
        match self {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        }
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Matcher) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl Eq for Matcher {}

impl Matcher {
    /// Creates a matcher; the error describes an invalid regex.
    pub fn new(
        name: impl Into<String>,
        op: MatchOp,
        value: impl Into<String>,
    ) -> Result<Matcher, String> {
        let value = value.into();
        let regex = match op {
            MatchOp::Regex | MatchOp::NotRegex => Some(anchored_regex(&value)?),
            MatchOp::Equal | MatchOp::NotEqual => None,
        };
        Ok(Matcher { name: name.into(), op, value, regex })
    }

    /// Matcher for an equal value.
    pub fn label_equals(name: impl Into<String>, value: impl Into<String>) -> Matcher {
        Matcher { name: name.into(), op: MatchOp::Equal, value: value.into(), regex: None }
    }

    /// Whether a value matches.
    pub fn matches(&self, value: &str) -> bool {
        let is_found = match &self.regex {
            Some(regex) => regex.is_match(value),
            None => self.value == value,
        };
        is_found == matches!(self.op, MatchOp::Equal | MatchOp::Regex)
    }

    /// Regex of `=~` and `!~`, anchored at both ends.
    pub fn regex(&self) -> Option<&Regex> {
        self.regex.as_ref()
    }
}

/// Whether a string can be a label name: any non-empty UTF-8 string. Invalid bytes, as in `"\xff"`,
/// were decoded as the replacement character.
pub(crate) fn is_label_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER)
}

/// PromQL regex in Go's syntax: anchored at both ends, and `.` matches a newline.
pub(crate) fn anchored_regex(text: &str) -> Result<Regex, String> {
    build_regex(text, |translated| format!("^(?s:{translated})$"))
}

/// Regex in Go's syntax that matches anywhere in a text, as functions of Go's `regexp` do.
pub fn unanchored_regex(text: &str) -> Result<Regex, String> {
    build_regex(text, |translated| translated)
}

/// Compiles a regex in Go's syntax; `frame` adds to what the `regex` crate reads.
fn build_regex(text: &str, frame: impl FnOnce(String) -> String) -> Result<Regex, String> {
    let failed = |reason: &str| format!("error parsing regexp: {reason}: `{text}`");
    let translated = pattern::translate(text).map_err(|reason| failed(&reason))?;
    RegexBuilder::new(&frame(translated))
        .size_limit(REGEX_SIZE_MAX)
        .dfa_size_limit(REGEX_SIZE_MAX)
        .nest_limit(REGEX_NESTING_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(max) => {
                failed(&format!("compiled regex exceeds {max} bytes (REGEX_SIZE_MAX)"))
            }
            error => {
                let error_text = error.to_string();
                let reason = error_text.lines().last().unwrap_or_default().trim();
                failed(reason.strip_prefix("error: ").unwrap_or(reason))
            }
        })
}

/// Labels of matchers with `=`. A label with several matchers is left out, unless its first `=` is
/// the last of them, as in Prometheus.
pub(crate) fn labels_from_matchers(matchers: &[Matcher]) -> LabelSet {
    let mut names: Vec<&str> = Vec::new();
    let mut labels = LabelSet::default();
    for Matcher { name, op, value, .. } in matchers {
        if name == NAME {
            continue;
        }
        let is_first = *op == MatchOp::Equal && !names.contains(&name.as_str());
        if is_first {
            names.push(name);
        }
        labels = labels.with(name, if is_first { value } else { "" });
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(matchers: &[(&str, MatchOp, &str)], expected: &str) {
        let matcher = |(name, op, value): &(&str, MatchOp, &str)| {
            Matcher::new(*name, *op, *value).expect("a good matcher")
        };
        let matchers: Vec<Matcher> = matchers.iter().map(matcher).collect();
        assert_eq!(labels_from_matchers(&matchers).to_string(), expected);
    }

    #[test]
    fn labels_match_prometheus() {
        use MatchOp::{Equal, Regex};
        check(&[(NAME, Equal, "x"), ("job", Equal, "a")], r#"{job="a"}"#);
        check(&[("job", Equal, "a"), ("job", Equal, "b"), ("foo", Equal, "c")], r#"{foo="c"}"#);
        check(&[("job", Equal, "a"), ("job", Regex, ".+")], "{}");
        check(&[("job", Regex, ".+"), ("job", Equal, "a")], r#"{job="a"}"#);
        check(&[("job", Equal, "a"), ("job", Regex, ".+"), ("job", Equal, "a")], "{}");
        check(&[("job", Equal, "")], "{}");
    }
}
