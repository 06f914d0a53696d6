//! Series selectors and their two syntaxes.
//!
//! `http_request_duration{host="web-1",endpoint=~"/api/.*"}` is Prometheus' way,
//! `and(host:web-*,not(region:eu))` the tag search of IRONdb and CAQL (circonus/docs,
//! irondb/metric-names-tags-queries). Both are read into one [`Selector`]; `docs/selectors.md` has
//! the grammar for users. What is shown is always a tag search.
//!
//! A label has one value or none, and a value is never empty: so "the label is missing" and "its
//! value is the empty text" are the same, and are written as the exact empty text. Globs and
//! regexes match only labels that are there, as in a tag search; where Prometheus says otherwise,
//! [`Selector::label_matches`] adds the missing ones.
//!
//! Limits: [`LENGTH_MAX`], [`DEPTH_MAX`], [`REGEXES_MAX`] and [`REGEX_BYTES_MAX`], which together
//! bound what a selector from outside can take. Regexes are those of the `regex` crate, linear in
//! the text, without look-around.

mod format;
mod parse;
mod pattern;

use std::str::FromStr;

pub use pattern::{Pattern, REGEX_BYTES_MAX, Regex};

use hist::codec::header::Temporality;

use crate::series::{Series, SeriesKind, spell_unit};

/// Maximum length of a selector in bytes: some hundreds of conditions.
pub const LENGTH_MAX: usize = 16 << 10;
/// Maximum nesting of `and(…)`, `or(…)` and `not(…)`. Parsing and matching are recursive.
pub const DEPTH_MAX: usize = 32;
/// Maximum number of regexes of a selector. Each is compiled for both directions and caches as much
/// while it searches: about 128 MiB in the worst case.
pub const REGEXES_MAX: usize = 32;

/// Maximum number of texts of a regex such as `a|b` that are looked up one by one: a series is
/// compared with each of them.
const TEXTS_MAX: usize = 256;

/// Tag of the metric name. Prometheus' `__name__` is an alias.
pub const NAME: &str = "__name";
/// Tag of the unit.
pub const UNIT: &str = "__unit";
/// Tag of the kind, one of [`KINDS`].
pub const KIND: &str = "__kind";

/// Names of kinds in selectors.
pub const KINDS: [(SeriesKind, &str); 6] = [
    (SeriesKind::Histogram(Temporality::Delta), "delta-histogram"),
    (SeriesKind::Histogram(Temporality::Cumulative), "cumulative-histogram"),
    (SeriesKind::Counter(Temporality::Delta), "delta-counter"),
    (SeriesKind::Counter(Temporality::Cumulative), "cumulative-counter"),
    (SeriesKind::Gauge, "gauge"),
    (SeriesKind::Text, "text"),
];

/// A condition on series.
///
/// [`Selector::parse`] and the functions here return a normal form: `And` and `Or` have at least
/// two parts, none of which is `All`. Other values match and format correctly, but parse back to
/// the normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Every series.
    All,
    /// All conditions.
    And(Vec<Selector>),
    /// At least one condition.
    Or(Vec<Selector>),
    /// The opposite.
    Not(Box<Selector>),
    /// A condition on a label, or on [`NAME`], [`UNIT`] or [`KIND`].
    Tag {
        /// Name of the label.
        name: String,
        /// Condition on its value.
        pattern: Pattern,
    },
}

impl Selector {
    /// Parses a selector in either syntax.
    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        parse::parse(text)
    }

    /// All conditions; every series if there are none.
    pub fn and(mut parts: Vec<Selector>) -> Selector {
        parts.retain(|part| *part != Selector::All);
        match parts.len() {
            0 => Selector::All,
            1 => parts.remove(0),
            _ => Selector::And(parts),
        }
    }

    /// At least one condition; no series if there are none.
    pub fn or(mut parts: Vec<Selector>) -> Selector {
        match parts.len() {
            0 => Selector::negate(Selector::All),
            1 => parts.remove(0),
            _ if parts.contains(&Selector::All) => Selector::All,
            _ => Selector::Or(parts),
        }
    }

    /// The opposite.
    pub fn negate(part: Selector) -> Selector {
        Selector::Not(Box::new(part))
    }

    /// A label with exactly this value; for the empty value, series without the label.
    pub fn label_equals(name: impl Into<String>, value: impl Into<String>) -> Selector {
        Selector::tag(name, Pattern::Exact(value.into()))
    }

    /// A label whose whole value matches the regex; a missing label is the empty text: Prometheus'
    /// `=~`.
    pub fn label_matches(name: impl Into<String>, regex: &str) -> Result<Selector, SelectorError> {
        let name = name.into();
        // Dashboards send these regexes when the user selected nothing.
        match regex {
            ".*" => return Ok(Selector::All),
            ".+" => return Ok(Selector::tag(name, Pattern::Glob("*".to_owned()))),
            _ => {}
        }
        // As dashboards write a list of values. Other conditions than those on labels have rules of
        // their own for exact texts.
        let texts = pattern::literal_alternatives(regex).filter(|_| !name.starts_with("__"));
        if let Some(texts) = texts.filter(|texts| texts.len() <= TEXTS_MAX) {
            let equals = |text: String| Selector::label_equals(name.clone(), text);
            return Ok(Selector::or(texts.into_iter().map(equals).collect()));
        }
        let regex = Regex::anchored(regex)?;
        let missing = regex.is_match("").then(|| Selector::label_equals(name.clone(), ""));
        let present = Selector::tag(name, Pattern::Regex(regex));
        Ok(Selector::or(missing.into_iter().chain([present]).collect()))
    }

    /// A label whose value matches the pattern.
    pub fn tag(name: impl Into<String>, pattern: Pattern) -> Selector {
        let name = name.into();
        let name = if name == "__name__" { NAME.to_owned() } else { name };
        let pattern = match pattern {
            Pattern::Exact(unit) if name == UNIT => Pattern::Exact(spell_unit(&unit).to_owned()),
            pattern => pattern,
        };
        Selector::Tag { name, pattern }
    }

    /// Whether the series matches.
    pub fn matches(&self, series: &Series) -> bool {
        match self {
            Selector::All => true,
            Selector::And(parts) => parts.iter().all(|part| part.matches(series)),
            Selector::Or(parts) => parts.iter().any(|part| part.matches(series)),
            Selector::Not(part) => !part.matches(series),
            Selector::Tag { name, pattern } => pattern.matches(tag_value(series, name)),
        }
    }

    /// Number of regexes, to check combined selectors against [`REGEXES_MAX`].
    pub fn regex_count(&self) -> usize {
        match self {
            Selector::All => 0,
            Selector::And(parts) | Selector::Or(parts) => {
                parts.iter().map(Selector::regex_count).sum()
            }
            Selector::Not(part) => part.regex_count(),
            Selector::Tag { pattern, .. } => usize::from(matches!(pattern, Pattern::Regex(_))),
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Selector, SelectorError> {
        Selector::parse(text)
    }
}

/// Value of a tag, empty if the series has no such tag.
fn tag_value<'a>(series: &'a Series, name: &str) -> &'a str {
    match name {
        NAME => series.name(),
        UNIT => series.unit(),
        KIND => kind_name(series.kind()),
        name => series.label(name).unwrap_or_default(),
    }
}

/// Names of kinds in earlier versions, and their names today. Selectors with them are rejected.
const RENAMED_KINDS: [(&str, &str); 4] = [
    ("histogram", "delta-histogram"),
    ("count", "delta-counter"),
    ("cumulative-count", "cumulative-counter"),
    ("counter", "cumulative-counter"),
];

/// The earlier and today's name of a kind, if a condition on the kind means the earlier one: it
/// matches no other kind.
pub fn renamed_kind(pattern: &Pattern) -> Option<(&'static str, &'static str)> {
    let is_known = KINDS.iter().any(|(_, word)| pattern.matches(word));
    RENAMED_KINDS.into_iter().find(|(old, _)| !is_known && pattern.matches(old))
}

/// Name of a kind in selectors.
pub fn kind_name(kind: SeriesKind) -> &'static str {
    let (_, word) =
        KINDS.iter().find(|(known, _)| *known == kind).expect("BUG: every kind has a keyword");
    word
}

/// Selector syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: found {found}, expected {expected}")]
pub struct SelectorError {
    /// Position in characters, from 1.
    pub column: usize,
    /// The text at that position.
    pub found: String,
    /// What the parser expected.
    pub expected: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> Series {
        Series::new("http_request_duration", SeriesKind::Histogram(Temporality::Delta))
            .with_unit("ns")
            .with_label("host", "web-1")
            .with_label("endpoint", "/api/users")
            .with_label("zone", "b12")
            .validate()
            .unwrap()
    }

    #[track_caller]
    fn check(selector: &str, expected: bool) {
        let selector = Selector::parse(selector).unwrap();
        assert_eq!(selector.matches(&series()), expected, "{selector}");
    }

    #[test]
    fn names_alone() {
        check("http_request_duration", true);
        check("http_request", false);
        check("http_*", true);
        check("/^http_.*on$/", true);
        check("*", true);
        check("{}", true);
    }

    #[test]
    fn regexes_are_counted() {
        let of = |text: &str| Selector::parse(text).unwrap().regex_count();
        assert_eq!(of("latency{host=\"a\"}"), 0);
        assert_eq!(of("and(a:/x/,not(or(b:/y/,c:z)),d:/w/)"), 3);
    }

    #[test]
    fn prometheus_regexes_are_anchored() {
        check(r#"{host=~"web"}"#, false);
        check(r#"{host=~"web.*"}"#, true);
        check(r#"{host=~"x|web-1"}"#, true);
        check(r#"{host=~"web-|x"}"#, false);
        check(r#"{host=~"web-1"}"#, true);
        check(r#"{host=~"web\\-1|x"}"#, true);
        check(&format!(r#"{{host=~"{}web-1"}}"#, "x|".repeat(2 * TEXTS_MAX)), true);
        check(r#"{host!~"web"}"#, true);
        check(r#"{__name__=~"http_.*",__kind="delta-histogram"}"#, true);
    }

    #[test]
    fn earlier_names_of_kinds_are_rejected_with_the_new_name() {
        for (old, new) in RENAMED_KINDS {
            assert!(KINDS.iter().any(|(_, word)| *word == new), "{new}");
            for text in [format!("and(__kind:{old})"), format!("{{__kind!=\"{old}\"}}")] {
                let error = Selector::parse(&text).unwrap_err();
                assert_eq!(error.expected, format!("its new name {new}"), "{text}");
            }
        }
        let error = Selector::parse(r#"{__kind=~"histogram|count"}"#).unwrap_err();
        let expected = "column 10: found kind \"histogram\", expected its new name delta-histogram";
        assert_eq!(error.to_string(), expected);
        check(r#"{__kind=~"count|delta-.*"}"#, true);
    }

    #[test]
    fn missing_label_is_the_empty_string() {
        check(r#"{region=""}"#, true);
        check(r#"{region!=""}"#, false);
        check(r#"{region!="eu"}"#, true);
        check(r#"{region=~"eu|"}"#, true);
        check(r#"{region=~".*"}"#, true);
        check(r#"{region=~".+"}"#, false);
        check(r#"{region!~"e?"}"#, false);
        check(r#"{host=~"()"}"#, false);
        check(r#"and(region:"")"#, true);
        check(r#"and(host:"")"#, false);
    }

    #[test]
    fn tag_search_requires_the_tag() {
        check("and(host)", true);
        check("and(region)", false);
        check("and(region:*)", false);
        check("and(region:/.*/)", false);
        check("not(region:eu)", true);
        check("and(host:web-?,or(zone:a,zone:/^b[0-9]+$/),not(region:eu))", true);
        check("and(zone:/^b$/)", false);
        check("and(zone:/1/)", true);
        check("and(endpoint:/api/users)", true);
        check(r"and(endpoint:/^\/api\//)", true);
        check("and(endpoint:[exact]/api/users)", true);
        check("and(endpoint:[exact]/api/*)", false);
        check("and(__unit:ns,__kind:*histogram)", true);
        check("and(__kind:cumulative-*)", false);
    }
}
