//! Conditions on labels.

use regex::{Regex, RegexBuilder};

use super::pattern;
use crate::labels::{LabelSet, NAME};

/// Bytes of a regex once compiled at the most, and of what it remembers while it searches.
pub const REGEX_SIZE_MAX: usize = 1 << 20;
/// How deep groups and classes of a regex nest at the most.
const REGEX_NESTING_MAX: u32 = 100;

/// A condition on a label; a label that is missing is the empty text.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// The label; `__name__` for the metric's name.
    pub name: String,
    /// How it is compared.
    pub op: MatchOp,
    /// With what.
    pub value: String,
    regex: Option<Regex>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum MatchOp {
    Equal,
    NotEqual,
    Regex,
    NotRegex,
}

impl MatchOp {
    /// As it is written.
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
    /// A condition; the error says what is wrong with the regex.
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

    /// That a label has a value.
    pub fn label_equals(name: impl Into<String>, value: impl Into<String>) -> Matcher {
        Matcher { name: name.into(), op: MatchOp::Equal, value: value.into(), regex: None }
    }

    /// Whether a value fulfils it.
    pub fn matches(&self, value: &str) -> bool {
        let is_found = match &self.regex {
            Some(regex) => regex.is_match(value),
            None => self.value == value,
        };
        is_found == matches!(self.op, MatchOp::Equal | MatchOp::Regex)
    }

    /// The regex of `=~` and `!~`, which is for the whole value.
    pub fn regex(&self) -> Option<&Regex> {
        self.regex.as_ref()
    }
}

/// Whether a label can have this name: any text but the empty one, as long as it is UTF-8. Bytes
/// that are none, as in `"\xff"`, were read as the replacement character.
pub fn is_label_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER)
}

/// A regex as PromQL has them: for the whole of a text, in which `.` is a line's end too, written
/// as in Go.
pub fn anchored_regex(text: &str) -> Result<Regex, String> {
    let failed = |why: &str| format!("error parsing regexp: {why}: `{text}`");
    let translated = pattern::translate(text).map_err(|why| failed(&why))?;
    RegexBuilder::new(&format!("^(?s:{translated})$"))
        .size_limit(REGEX_SIZE_MAX)
        .dfa_size_limit(REGEX_SIZE_MAX)
        .nest_limit(REGEX_NESTING_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(max) => {
                failed(&format!("more than {max} bytes once compiled (REGEX_SIZE_MAX)"))
            }
            error => {
                let shown = error.to_string();
                let why = shown.lines().last().unwrap_or_default().trim();
                failed(why.strip_prefix("error: ").unwrap_or(why))
            }
        })
}

/// Labels that matchers name with `=`. One that more than one of them is about is left out, unless
/// its first `=` comes after all the others: so Prometheus has it.
pub(crate) fn labels_from_matchers(matchers: &[Matcher]) -> LabelSet {
    let mut seen: Vec<&str> = Vec::new();
    let mut labels = LabelSet::default();
    for Matcher { name, op, value, .. } in matchers {
        if name == NAME {
            continue;
        }
        let is_first = *op == MatchOp::Equal && !seen.contains(&name.as_str());
        if is_first {
            seen.push(name);
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
