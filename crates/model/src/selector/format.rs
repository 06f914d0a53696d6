//! Formatting of selectors as tag searches.

use std::fmt::{Display, Formatter, Result, Write};

use super::parse::{is_plain_in_name, is_plain_in_value};
use super::{Pattern, Selector};

/// The output parses to the same selector, if that is in normal form and not longer than
/// [`super::LENGTH_MAX`].
impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            // A tag condition must be inside a list: alone it would be parsed as a metric name.
            Selector::Tag { .. } => write!(f, "and({})", NestedSelector(self)),
            _ => write!(f, "{}", NestedSelector(self)),
        }
    }
}

/// Selector within a list.
struct NestedSelector<'a>(&'a Selector);

impl Display for NestedSelector<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.0 {
            Selector::All => f.write_char('*'),
            Selector::And(parts) if parts.is_empty() => f.write_char('*'),
            Selector::Or(parts) if parts.is_empty() => f.write_str("not(*)"),
            Selector::And(parts) => write_list(f, "and", parts),
            Selector::Or(parts) => write_list(f, "or", parts),
            Selector::Not(part) => write!(f, "not({})", NestedSelector(part)),
            Selector::Tag { name, pattern } => {
                if is_bare(name, is_plain_in_name) {
                    f.write_str(name)?;
                } else {
                    write_exact(f, name)?;
                }
                f.write_char(':')?;
                match pattern {
                    Pattern::Exact(text) if is_bare(text, is_plain_in_value) => f.write_str(text),
                    Pattern::Exact(text) => write_exact(f, text),
                    Pattern::Glob(glob)
                        if is_bare(&glob.replace(['*', '?'], "x"), is_plain_in_value) =>
                    {
                        f.write_str(glob)
                    }
                    Pattern::Glob(glob) => write_quoted(f, glob),
                    Pattern::Regex(regex) => write_slashed(f, regex.as_str()),
                }
            }
        }
    }
}

fn write_list(f: &mut Formatter<'_>, word: &str, parts: &[Selector]) -> Result {
    for (at, part) in parts.iter().enumerate() {
        write!(f, "{}{}", if at == 0 { word } else { "" }, if at == 0 { '(' } else { ',' })?;
        write!(f, "{}", NestedSelector(part))?;
    }
    f.write_char(')')
}

fn is_bare(text: &str, is_plain: fn(char) -> bool) -> bool {
    !text.is_empty() && !text.starts_with(['/', '[']) && text.chars().all(is_plain)
}

fn write_exact(f: &mut Formatter<'_>, text: &str) -> Result {
    if text.contains(['*', '?']) {
        f.write_str("[exact]")?;
    }
    write_quoted(f, text)
}

fn write_quoted(f: &mut Formatter<'_>, text: &str) -> Result {
    f.write_char('"')?;
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(c)?;
    }
    f.write_char('"')
}

fn write_slashed(f: &mut Formatter<'_>, regex: &str) -> Result {
    f.write_char('/')?;
    let mut chars = regex.chars();
    while let Some(c) = chars.next() {
        match c {
            '/' => f.write_str("\\/")?,
            '\\' => {
                f.write_char(c)?;
                chars.next().map_or(Ok(()), |next| f.write_char(next))?;
            }
            c => f.write_char(c)?,
        }
    }
    f.write_char('/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::selector::Regex;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[a-c/:.=*?-]{0,5}", r#"["'\\ ,(){}\[\]\na*?/`é]{0,6}"#, ".{0,4}"]
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        prop_oneof![
            text().prop_map(Pattern::Exact),
            (text(), "[*?]", text()).prop_map(|(a, star, b)| Pattern::Glob(a + &star + &b)),
            r#"([ab/"., ]|\\[/\\.d"]|\(a\|/\)|[*+]){0,6}"#
                .prop_filter_map("no regex", |text| Regex::search(&text).ok())
                .prop_map(Pattern::Regex),
        ]
    }

    fn selector() -> impl Strategy<Value = Selector> {
        let name = text().prop_filter("a tag has a name", |name| !name.is_empty());
        let leaf = prop_oneof![
            1 => Just(Selector::All),
            9 => (name, pattern()).prop_map(|(name, pattern)| Selector::tag(name, pattern)),
        ];
        leaf.prop_recursive(4, 24, 4, |part| {
            let parts = || prop::collection::vec(part.clone(), 0..4);
            prop_oneof![
                parts().prop_map(Selector::and),
                parts().prop_map(Selector::or),
                part.prop_map(Selector::negate),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn formatted_selectors_round_trip(selector in selector()) {
            let shown = selector.to_string();
            prop_assert_eq!(Selector::parse(&shown), Ok(selector), "{}", shown);
        }

        #[test]
        fn random_text_does_not_panic(
            text in prop_oneof![
                ".{0,30}",
                r#"(and\(|or\(|not\(|[a-b:,)*?/{}"'`=~! \\\[\]]|\[exact\]|\[re\]){0,20}"#,
                r#"[ab]{0,2}\{([ab"] ?(=|=~|!=|!~) ?["'`][ab\\.*|/]{0,5}["'`],?){0,3}\}?"#,
            ],
        ) {
            match Selector::parse(&text) {
                Ok(selector) => {
                    let shown = selector.to_string();
                    prop_assert_eq!(Selector::parse(&shown), Ok(selector), "{}", shown);
                }
                Err(error) => prop_assert!(error.column <= text.chars().count() + 1),
            }
        }
    }
}
