//! Conditions on a value: exact, glob, regex.

use super::SelectorError;

/// Maximum size of a compiled regex in bytes, and of its cache. `/api/.*` takes 2 KiB,
/// `\w+@\w+\.com` about 100 KiB of Unicode tables; `\w{20}` still fits.
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// Condition on a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This value. The empty text matches a missing label.
    Exact(String),
    /// The whole value; `*` matches any characters and `?` one. Never matches a missing label.
    Glob(String),
    /// Matches anywhere in the value. Never matches a missing label.
    Regex(Regex),
}

impl Pattern {
    /// Whether a value matches; a missing label is the empty text.
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Pattern::Exact(text) => text == value,
            Pattern::Glob(glob) => !value.is_empty() && glob_matches(glob, value),
            Pattern::Regex(regex) => !value.is_empty() && regex.is_match(value),
        }
    }

    /// A text with which all values begin that match; empty if none is known.
    pub fn begin(&self) -> &str {
        match self {
            Pattern::Exact(text) => text,
            Pattern::Glob(glob) => glob.split(['*', '?']).next().unwrap_or_default(),
            Pattern::Regex(regex) => &regex.begin,
        }
    }
}

/// On a mismatch, the last `*` consumes one more character: at most glob length times value length
/// steps.
fn glob_matches(glob: &str, value: &str) -> bool {
    let (mut glob, mut value) = (glob.chars(), value.chars());
    let mut star = None;
    loop {
        let mut ahead = glob.clone();
        match (ahead.next(), value.clone().next()) {
            (Some('*'), _) => {
                star = Some((ahead.clone(), value.clone()));
                glob = ahead;
                continue;
            }
            (None, None) => return true,
            (Some(pattern_char), Some(found)) if pattern_char == '?' || pattern_char == found => {
                glob = ahead;
                value.next();
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = &mut star else { return false };
        if from.next().is_none() {
            return false;
        }
        (glob, value) = (after.clone(), from.clone());
    }
}

/// A compiled regex. Equality compares the source text.
#[derive(Clone, Debug)]
pub struct Regex {
    regex: regex::Regex,
    /// Text with which all texts begin that match.
    begin: String,
    /// Set for a regex that matches any text which begins like this: most searches have that form.
    prefix: Option<TextPrefix>,
}

/// Begin of a text, `api-` of the regex `api-.*`.
#[derive(Clone, Debug)]
struct TextPrefix {
    text: String,
    /// Whether the text is longer: `api-.+`.
    is_longer: bool,
}

impl Regex {
    /// A regex that matches anywhere in a value.
    pub fn search(source: &str) -> Result<Regex, SelectorError> {
        compile(&without_escaped_slashes(source)).map_err(|error| regex_error(source, &error))
    }

    /// A regex that matches the whole value, as in Prometheus: `.` also matches a newline.
    pub fn anchored(source: &str) -> Result<Regex, SelectorError> {
        // First without the group: `a)|(b` is invalid, and the added parentheses must not make it
        // valid.
        Regex::search(source)?;
        let regex = Regex::search(&format!("^(?s:{source})$"))
            .map_err(|error| SelectorError { found: format!("the regex {source:?}"), ..error })?;
        Ok(Regex { prefix: TextPrefix::of(source), begin: literal_begin(source), ..regex })
    }

    /// Whether it matches a text.
    pub fn is_match(&self, text: &str) -> bool {
        match &self.prefix {
            Some(prefix) => prefix.is_of(text),
            None => self.regex.is_match(text),
        }
    }

    /// Source text, with unescaped slashes.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }
}

impl TextPrefix {
    fn of(source: &str) -> Option<TextPrefix> {
        let (begin, is_longer) = match source.strip_suffix(".*") {
            Some(begin) => (begin, false),
            None => (source.strip_suffix(".+")?, true),
        };
        let [text] = <[String; 1]>::try_from(literal_alternatives(begin)?).ok()?;
        Some(TextPrefix { text, is_longer })
    }

    fn is_of(&self, text: &str) -> bool {
        text.strip_prefix(&*self.text).is_some_and(|rest| !(self.is_longer && rest.is_empty()))
    }
}

/// A text with which all texts begin that an anchored regex matches, `api-` of `api-[0-9]+`; empty
/// if none is known.
fn literal_begin(source: &str) -> String {
    let mut begin = String::new();
    if source.contains('|') {
        return begin;
    }
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                // Before `<` and `>` it is a boundary of a word.
                Some(c) if c.is_ascii_punctuation() && !matches!(c, '<' | '>') => begin.push(c),
                _ => break,
            },
            // The text before it need not be there.
            '*' | '?' | '{' => {
                begin.pop();
                break;
            }
            '+' => {
                // `a+{0,1}` is a repetition of a repetition.
                if chars.as_str().trim_start_matches('+').starts_with(['*', '?', '{']) {
                    begin.pop();
                }
                break;
            }
            '.' | '(' | ')' | '[' | ']' | '}' | '^' | '$' => break,
            c => begin.push(c),
        }
    }
    begin
}

/// The texts that a regex such as `a|b\.c` matches as a whole; `None` if it is no list of texts.
pub(super) fn literal_alternatives(source: &str) -> Option<Vec<String>> {
    let mut alternatives = vec![String::new()];
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        let literal = match c {
            '|' => {
                alternatives.push(String::new());
                continue;
            }
            // Before `<` and `>` it is a boundary of a word.
            '\\' => chars.next().filter(|c| c.is_ascii_punctuation() && !matches!(c, '<' | '>'))?,
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            c => c,
        };
        alternatives.last_mut()?.push(literal);
    }
    Some(alternatives)
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Regex {}

fn compile(source: &str) -> Result<Regex, regex::Error> {
    let mut builder = regex::RegexBuilder::new(source);
    builder.size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX);
    builder.build().map(|regex| Regex { regex, begin: String::new(), prefix: None })
}

/// The line of the regex crate's error that names the cause.
fn regex_error(source: &str, error: &regex::Error) -> SelectorError {
    let (found, expected) = match error {
        regex::Error::CompiledTooBig(max) => {
            (format!("the regex {source:?}"), format!("a regex of at most {max} compiled bytes"))
        }
        error => {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            (format!("the invalid regex {source:?} ({reason})"), "a valid regex".to_owned())
        }
    };
    SelectorError { column: 1, found, expected }
}

/// Removes the escapes of slashes, so that one regex has one source text.
fn without_escaped_slashes(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('/') => out.push('/'),
                Some(next) => out.extend(['\\', next]),
                None => out.push('\\'),
            },
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(glob: &str, value: &str, expected: bool) {
        assert_eq!(glob_matches(glob, value), expected, "{glob} {value}");
    }

    #[test]
    fn globs() {
        check("*", "", true);
        check("a*c*e", "abcde", true);
        check("a*c*e", "abcdef", false);
        check("*ab", "aab", true);
        check("?ü?", "süß", true);
        check("??", "ü", false);
        check("a.c", "abc", false);
        check("", "a", false);
        check("a**", "a", true);
    }

    proptest! {
        #[test]
        fn globs_equal_their_regexes(glob in "[ab*?]{0,8}", value in "[ab]{0,8}") {
            let regex = Regex::anchored(&glob.replace('*', ".*").replace('?', ".")).unwrap();
            let is_matching = glob_matches(&glob, &value);
            prop_assert_eq!(is_matching, regex.is_match(&value));
            prop_assert!(!is_matching || value.starts_with(Pattern::Glob(glob).begin()));
        }
    }

    proptest! {
        #[test]
        fn prefixes_equal_their_regexes(
            begin in r"([ab|.*\-]|\\-|\\\.){0,4}",
            end in r"(\.\*|\.\+|)",
            value in "[ab.\n-]{0,6}",
        ) {
            if let Ok(regex) = Regex::anchored(&format!("{begin}{end}")) {
                prop_assert_eq!(regex.is_match(&value), regex.regex.is_match(&value), "{:?}", regex);
            }
        }
    }

    proptest! {
        #[test]
        fn values_begin_as_their_pattern(
            source in r"(a|b|\\.|\\-|\[ab\]|\(a\)|\.|\*|\+|\?|\{0,1\}|\||-){0,6}",
            values in prop::collection::vec("[ab.-]{0,5}", 8),
        ) {
            let Ok(regex) = Regex::anchored(&source) else { return Ok(()) };
            for value in values.iter().filter(|value| regex.regex.is_match(value)) {
                prop_assert!(value.starts_with(&regex.begin), "{source:?} {value:?}");
            }
        }
    }

    #[test]
    fn texts_of_a_regex() {
        let texts = |source| literal_alternatives(source).map(|texts| texts.join(" "));
        assert_eq!(texts(r"a\.b|c-d|").as_deref(), Some("a.b c-d "));
        assert_eq!(texts("s\u{fc}\u{df}").as_deref(), Some("s\u{fc}\u{df}"));
        for other in ["a.b", "a|b*", "(a)", "[ab]", "a$", r"\d", r"\<a", r"a\", "a{2}"] {
            assert_eq!(texts(other), None, "{other}");
        }
        let prefix = |source| Regex::anchored(source).unwrap().prefix.map(|prefix| prefix.text);
        assert_eq!(prefix(r"api\-0.*").as_deref(), Some("api-0"));
        assert_eq!(prefix(".+").as_deref(), Some(""));
        let begin = |source| Regex::anchored(source).unwrap().begin;
        for (source, expected) in [
            ("api-000.*", "api-000"),
            ("api-0[0-9]+", "api-0"),
            ("api?-.*", "ap"),
            ("api+x", "api"),
            (r"a\.b\d", "a.b"),
            ("a|b", ""),
            ("(?i)a", ""),
        ] {
            assert_eq!(begin(source), expected, "{source}");
        }
        for other in [r"a\.*", "a|b.*", "a", ".*a.*"] {
            assert_eq!(prefix(other), None, "{other}");
        }
    }

    #[test]
    fn invalid_regex_is_rejected() {
        assert!(Regex::anchored("a)|(b").is_err());
        assert!(Regex::anchored("(?x) a # and so on").is_err());
        let error = Regex::search(r"\w{1000}").unwrap_err();
        assert_eq!(error.expected, "a regex of at most 1048576 compiled bytes");
        let error = Regex::search("a(b").unwrap_err();
        assert!(error.found.ends_with("(unclosed group)"), "{}", error.found);
    }
}
