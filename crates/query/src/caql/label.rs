//! Label format language (`%n`, `%tv{host}`).
//!
//! ```text
//! %d               number in the set, from 1
//! %n   %cn         name without tags; canonical name
//! %t{c} %tv{c}     `c:value`; the value alone; several of one category are joined by commas
//! %t{*} %tv{*}     all tags except those whose category begins with `__`
//! %t-{…} %tv-{…}   the same, only of categories that are not the same in the whole set; also written %-t{…}
//! %%               a percent sign
//! ```
//! Any other percent sign stands for itself.

use std::collections::{BTreeMap, BTreeSet};

/// Parsed label format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFormat {
    parts: Vec<FormatPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FormatPart {
    Text(String),
    Number,
    Name,
    Canonical,
    Tags {
        /// Tag category; `None` for all tags.
        category: Option<String>,
        is_value_only: bool,
        is_differing_only: bool,
    },
}

/// Identity of a stream: name, canonical name, tags.
#[derive(Clone, Copy, Debug)]
pub struct StreamIdentity<'a> {
    /// Metric name without tags.
    pub name: &'a str,
    /// Name with tags.
    pub canonical: &'a str,
    /// Category and value, sorted. A value may be empty; a category may occur several times.
    pub tags: &'a [(String, String)],
}

/// Labels for a set of streams: format i for stream i, the last format for the remaining streams.
pub fn labels(formats: &[LabelFormat], streams: &[StreamIdentity<'_>]) -> Vec<String> {
    let parts = || formats.iter().flat_map(|format| &format.parts);
    let needs_differing =
        parts().any(|part| matches!(part, FormatPart::Tags { is_differing_only: true, .. }));
    let differing = if needs_differing { differing_categories(streams) } else { BTreeSet::new() };
    let format_of = |at: usize| formats.get(at).or(formats.last());
    let label = |(at, stream)| {
        format_of(at).map_or_else(String::new, |format| format.render(at + 1, stream, &differing))
    };
    streams.iter().enumerate().map(label).collect()
}

/// Categories whose values differ between streams.
fn differing_categories<'a>(streams: &[StreamIdentity<'a>]) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut rest = streams.iter().map(by_category);
    let Some(first) = rest.next() else { return found };
    for other in rest {
        let keys = first.keys().chain(other.keys());
        found.extend(keys.filter(|key| first.get(*key) != other.get(*key)));
    }
    found
}

fn by_category<'a>(stream: &StreamIdentity<'a>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (category, value) in stream.tags {
        found.entry(category.as_str()).or_default().push(value.as_str());
    }
    found
}

impl LabelFormat {
    /// Parses a label format.
    pub fn parse(text: &str) -> Result<LabelFormat, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            let Some((part, after)) = parse_code(rest)? else {
                plain.push('%');
                rest = rest.strip_prefix("%%").unwrap_or(&rest[1..]);
                continue;
            };
            if !plain.is_empty() {
                parts.push(FormatPart::Text(std::mem::take(&mut plain)));
            }
            parts.push(part);
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(FormatPart::Text(plain));
        }
        Ok(LabelFormat { parts })
    }

    fn render(
        &self,
        number: usize,
        stream: &StreamIdentity<'_>,
        differing: &BTreeSet<&str>,
    ) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                FormatPart::Text(text) => out.push_str(text),
                FormatPart::Number => out.push_str(&number.to_string()),
                FormatPart::Name => out.push_str(stream.name),
                FormatPart::Canonical => out.push_str(stream.canonical),
                FormatPart::Tags { category, is_value_only, is_differing_only } => {
                    let is_meant = |found: &str| match category {
                        Some(category) => found == category,
                        None => !found.starts_with("__"),
                    };
                    let tags = stream.tags.iter().filter(|(found, _)| {
                        is_meant(found)
                            && (!is_differing_only || differing.contains(found.as_str()))
                    });
                    let texts: Vec<String> = match is_value_only {
                        true => {
                            tags.map(|(_, value)| value.clone()).filter(|v| !v.is_empty()).collect()
                        }
                        false => tags.map(format_tag).collect(),
                    };
                    out.push_str(&texts.join(","));
                }
            }
        }
        out
    }
}

fn format_tag((category, value): &(String, String)) -> String {
    match value.as_str() {
        "" => category.clone(),
        value => format!("{category}:{value}"),
    }
}

/// Code at the start of a text, and the remaining text.
fn parse_code(text: &str) -> Result<Option<(FormatPart, &str)>, String> {
    for (code, part) in
        [("%d", FormatPart::Number), ("%n", FormatPart::Name), ("%cn", FormatPart::Canonical)]
    {
        if let Some(after) = text.strip_prefix(code) {
            return Ok(Some((part, after)));
        }
    }
    const TAGS: [(&str, bool, bool); 6] = [
        ("%t{", false, false),
        ("%tv{", true, false),
        ("%t-{", false, true),
        ("%tv-{", true, true),
        ("%-t{", false, true),
        ("%-tv{", true, true),
    ];
    for (code, is_value_only, is_differing_only) in TAGS {
        let Some(after) = text.strip_prefix(code) else { continue };
        let Some((category, after)) = after.split_once('}') else {
            return Err(format!("`{code}` has no closing }}: write {code}host}}"));
        };
        let category = Some(category.to_owned()).filter(|category| category != "*");
        return Ok(Some((FormatPart::Tags { category, is_value_only, is_differing_only }, after)));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels of the streams `req{dc=eu,host=c}`, `req{dc=us,host=a}` and
    /// `req{dc=us,host=b,x,x=1,x=2,__y=z}`.
    #[track_caller]
    fn check(formats: &[&str], expected: [&str; 3]) {
        let formats: Vec<_> =
            formats.iter().map(|text| LabelFormat::parse(text).unwrap()).collect();
        let tags = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(c, v)| ((*c).to_owned(), (*v).to_owned())).collect()
        };
        let c = tags(&[("dc", "eu"), ("host", "c"), ("svc", "s")]);
        let a = tags(&[("dc", "us"), ("host", "a"), ("svc", "s")]);
        let b = tags(&[
            ("__y", "z"),
            ("dc", "us"),
            ("host", "b"),
            ("svc", "s"),
            ("x", ""),
            ("x", "1"),
            ("x", "2"),
        ]);
        let identity = |tags, canonical| StreamIdentity { name: "req", canonical, tags };
        let streams = [identity(&c[..], "req|C"), identity(&a, "req|A"), identity(&b, "req|B")];
        assert_eq!(labels(&formats, &streams), expected);
    }

    #[test]
    fn codes() {
        check(&["%d"], ["1", "2", "3"]);
        check(&["%n!"], ["req!", "req!", "req!"]);
        check(&["%cn"], ["req|C", "req|A", "req|B"]);
        check(&["%t{host}"], ["host:c", "host:a", "host:b"]);
        check(&["%tv{host}"], ["c", "a", "b"]);
        check(&["%t{x}/%tv{x}"], ["/", "/", "x,x:1,x:2/1,2"]);
        check(&["%tv{__y}"], ["", "", "z"]);
        check(
            &["%t{*}"],
            ["dc:eu,host:c,svc:s", "dc:us,host:a,svc:s", "dc:us,host:b,svc:s,x,x:1,x:2"],
        );
        check(&["%tv-{*}"], ["eu,c", "us,a", "us,b,1,2"]);
        check(&["%n %t-{dc}%-t{svc}"], ["req dc:eu", "req dc:us", "req dc:us"]);
    }

    #[test]
    fn unknown_codes_are_literal() {
        check(&["100 % %%n %x %"], ["100 % %n %x %"; 3]);
        check(&[""], [""; 3]);
        assert!(LabelFormat::parse("%tv{host").is_err());
    }

    #[test]
    fn the_last_format_is_for_the_rest() {
        check(&["a", "b %d"], ["a", "b 2", "b 3"]);
        check(&[], [""; 3]);
    }

    #[test]
    fn alone_nothing_differs() {
        let format = LabelFormat::parse("%n%t-{*}").unwrap();
        let tags = [("a".to_owned(), "b".to_owned())];
        let stream = StreamIdentity { name: "req", canonical: "req", tags: &tags };
        assert_eq!(labels(&[format], &[stream]), ["req"]);
    }
}
