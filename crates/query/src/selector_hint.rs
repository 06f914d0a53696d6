//! What may have been meant by a selector that matches no series, or no histograms.

use std::collections::BTreeSet;

use model::selector::{NAME as NAME_TAG, Pattern, UNIT as UNIT_TAG};
use model::{Selector, Series, SeriesKind};

use crate::classic_buckets::bucket_counters;
use crate::edit_distance::edit_distance;
use crate::error::Result;
use crate::labels::{LabelSet, NAME};
use crate::prometheus_source::{BOUND, PrometheusSource, conditions, exact_name};
use crate::source::{SeriesHandle, Source};

/// Maximum number of series whose labels are compared.
const SERIES_MAX: usize = 10_000;
/// Maximum number of labels that are named.
const LABELS_NAMED: usize = 12;
/// Maximum number of label values that are named.
const VALUES_NAMED: usize = 5;
/// Maximum number of metrics that are named.
const NAMES_NAMED: usize = 3;
/// Least length of a metric's name that is looked for in the name of a selector.
const WORD_MIN: usize = 4;
/// Suffixes of Prometheus' names of the parts of a histogram or of a counter.
const SUFFIXES: [&str; 4] = ["_bucket", "_count", "_sum", "_total"];
const BUCKET: &str = "_bucket";

/// What may have been meant by a selector with a name that matches no series, or no histograms,
/// such as `did you mean the metric "latency"?`.
pub fn selector_hint(source: &dyn Source, selector: &Selector) -> Result<Option<String>> {
    let Some(name) = exact_name(selector) else { return Ok(None) };
    if let Some(hint) = classic_hint(source, selector, name)? {
        return Ok(Some(hint));
    }
    if source.select_count(selector)? > 0 {
        return Ok(None);
    }
    let mut named = source.select(&Selector::label_equals(NAME, name))?;
    named.truncate(SERIES_MAX);
    if !named.is_empty() {
        return Ok(Some(labels_hint(selector, &named)));
    }
    let stored = PrometheusSource::new(source, &|| false).stored_names(selector)?;
    if let Some(stored) = stored.first() {
        return Ok(Some(format!("stored as {stored}: select it by this name")));
    }
    let metrics = metric_names(source, name)?;
    Ok(name_hint(name, metrics.iter().map(String::as_str)))
}

/// What may have been meant by a name, of the names of metrics.
pub(crate) fn name_hint<'a>(
    name: &str,
    metrics: impl Iterator<Item = &'a str> + Clone,
) -> Option<String> {
    let near = nearest_metric(name, metrics.clone());
    let near = near.map(|name| format!("did you mean the metric {name:?}?"));
    near.or_else(|| common_words_hint(name, metrics))
}

/// Names of the metrics that may have been meant by a name. Buckets that were sent as counters have
/// the name of their histogram, unless theirs has the suffix of a part, too.
fn metric_names(source: &dyn Source, asked: &str) -> Result<BTreeSet<String>> {
    let is_part = asked.ends_with(BUCKET);
    let mut names = BTreeSet::new();
    for metric in source.metrics()? {
        let base = metric.name.strip_suffix(BUCKET).filter(|base| !is_part && !base.is_empty());
        names.insert(match base {
            Some(base) if has_bounds(source, &metric.name)? => base.to_owned(),
            _ => metric.name,
        });
    }
    Ok(names)
}

fn has_bounds(source: &dyn Source, name: &str) -> Result<bool> {
    let Ok(has_bound) = Selector::label_matches(BOUND, ".+") else { return Ok(false) };
    let named = Selector::label_equals(NAME_TAG, name);
    Ok(source.select_count(&Selector::and(vec![named, has_bound]))? > 0)
}

/// Nearest metric by its name without the suffix of a part; of several, one with the same suffix.
fn nearest_metric<'a>(asked: &str, metrics: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let base = without_suffix(asked);
    let suffix = &asked[base.len()..];
    let max = distance_max(base);
    let near = metrics.filter_map(|name| {
        let found = without_suffix(name);
        let distance = edit_distance(base, found, max)?;
        Some((distance, &name[found.len()..] != suffix, name))
    });
    near.min().map(|(_, _, name)| name)
}

/// A selector as it is mostly typed, such as `latency{host=~"a.*"}` or `{"rpc.took",host="a"}`; as
/// a list of tags if it has conditions that are written only so.
pub fn selector_text(selector: &Selector) -> String {
    let name = exact_name(selector).filter(|name| is_plain(name));
    let is_name = |part: &Selector| {
        matches!(part, Selector::Tag { name: of, pattern: Pattern::Exact(text) }
            if of == NAME_TAG && Some(text.as_str()) == name)
    };
    let others = conditions(selector).iter().filter(|part| !is_name(part));
    let matchers: Option<Vec<String>> = others.map(matcher_text).collect();
    match (name, matchers) {
        (Some(name), Some(matchers)) if matchers.is_empty() => name.to_owned(),
        (Some(name), Some(matchers)) if !is_word(name, ":") => {
            format!("{{{name:?},{}}}", matchers.join(","))
        }
        (name, Some(matchers)) if !matchers.is_empty() => {
            format!("{}{{{}}}", name.unwrap_or_default(), matchers.join(","))
        }
        _ => selector.to_string(),
    }
}

/// The same with one unit, such as `latency{__unit="ns"}`: selectors and PromQL take it.
pub fn unit_selector_text(selector: &Selector, unit: &str) -> String {
    let with_unit = Selector::label_equals(UNIT_TAG, unit);
    selector_text(&Selector::and(vec![selector.clone(), with_unit]))
}

/// Whether Prometheus takes a name without quotes.
pub(crate) fn is_word(name: &str, more: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || more.contains(c);
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "_:.".contains(c))
}

/// A condition as a matcher of Prometheus; `None` if it is written only as a tag.
fn matcher_text(part: &Selector) -> Option<String> {
    let (matched, negated) = match part {
        Selector::Not(part) => (&**part, true),
        part => (part, false),
    };
    let (name, value, is_regex) = match matched {
        Selector::Tag { name, pattern: Pattern::Exact(value) } => (name, value.clone(), false),
        Selector::Tag { name, pattern } => (name, regex_text(pattern)?, true),
        // A regex that matches the empty text, or a list of values.
        Selector::Or(parts) => {
            let Selector::Tag { name, .. } = parts.first()? else { return None };
            let text = |part: &Selector| match part {
                Selector::Tag { name: of, pattern } if of == name => Some(match pattern {
                    Pattern::Exact(value) => regex_escape(value),
                    pattern => regex_text(pattern)?,
                }),
                _ => None,
            };
            let texts: Option<Vec<String>> = parts.iter().map(text).collect();
            let mut texts = texts?;
            let has_regex = parts
                .iter()
                .any(|part| matches!(part, Selector::Tag { pattern: Pattern::Regex(_), .. }));
            if has_regex {
                texts.retain(|text| !text.is_empty());
            }
            (name, texts.join("|"), true)
        }
        _ => return None,
    };
    let operator = match (negated, is_regex) {
        (false, false) => "=",
        (true, false) => "!=",
        (false, true) => "=~",
        (true, true) => "!~",
    };
    let name = if name == NAME_TAG { NAME } else { name };
    match is_word(name, "") {
        true => Some(format!("{name}{operator}{value:?}")),
        false => is_plain(name).then(|| format!("{name:?}{operator}{value:?}")),
    }
}

/// The regex of Prometheus with the same meaning; `None` if there is none.
fn regex_text(pattern: &Pattern) -> Option<String> {
    match pattern {
        Pattern::Glob(glob) if glob == "*" => Some(".+".to_owned()),
        Pattern::Regex(regex) => {
            Some(regex.as_str().strip_prefix("^(?s:")?.strip_suffix(")$")?.to_owned())
        }
        Pattern::Exact(_) | Pattern::Glob(_) => None,
    }
}

fn regex_escape(text: &str) -> String {
    let escaped = |c: char| match r"\.+*?()|[]{}^$".contains(c) {
        true => format!("\\{c}"),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Metrics with all words of a name in theirs, side by side, or all of whose words are in it: a
/// prefix or a suffix that a sender adds, or is expected to add.
fn common_words_hint<'a>(name: &str, metrics: impl Iterator<Item = &'a str>) -> Option<String> {
    let asked = words(name);
    let has = |all: &[&str], some: &[&str]| {
        !some.is_empty() && all.windows(some.len()).any(|window| window == some)
    };
    let is_common = |metric: &&'a str| {
        let stored = words(metric);
        has(&stored, &asked) || (metric.len() >= WORD_MIN && has(&asked, &stored))
    };
    let mut found: Vec<&str> = metrics.filter(is_common).collect();
    model::sort::by_key(&mut found, |metric| (metric.len(), *metric));
    found.dedup();
    match &found[..] {
        [] => None,
        [one] => Some(format!("did you mean the metric {one:?}?")),
        many => {
            let more = many.len().saturating_sub(NAMES_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named = many[..many.len().min(NAMES_NAMED)].join(", ");
            Some(format!("did you mean one of the metrics {named}{more}?"))
        }
    }
}

/// Buckets that were sent as counters are no histograms where a label divides them, or a command
/// reads them. If none of them has the labels of the selector: which label that is.
fn classic_hint(source: &dyn Source, selector: &Selector, name: &str) -> Result<Option<String>> {
    let base = name.strip_suffix(BUCKET).unwrap_or(name);
    let buckets = format!("{base}{BUCKET}");
    let mut found = source.select(&Selector::label_equals(NAME, &buckets))?;
    let is_bucket = |handle: &SeriesHandle| {
        !matches!(handle.kind, SeriesKind::Histogram(_)) && !handle.labels.get(BOUND).is_empty()
    };
    found.retain(is_bucket);
    if found.is_empty() {
        return Ok(None);
    }
    let selected = match bucket_counters(selector) {
        Some(counters) => source.select(&counters)?.iter().any(is_bucket),
        // A condition on the bounds.
        None => true,
    };
    if !selected {
        if source.select_count(selector)? > 0 {
            return Ok(None);
        }
        for handle in &mut found {
            let labels = handle.labels.iter().filter(|(label, _)| *label != BOUND);
            handle.labels = LabelSet::new(labels);
        }
        found.extend(source.select(&Selector::label_equals(NAME, base))?);
        found.truncate(SERIES_MAX);
        return Ok(Some(labels_hint(selector, &found)));
    }
    let matchers = exact_labels(selector).map(|(label, value)| format!("{label}={value:?}"));
    let matchers = matchers.collect::<Vec<_>>().join(",");
    let matchers = if matchers.is_empty() { matchers } else { format!("{{{matchers}}}") };
    Ok(Some(format!(
        "stored as buckets, the counters {buckets}: select these, or read {base} as a histogram, \
         as in topdeck query 'histogram_count_above(250ms, \
         sum(exact_increase({base}{matchers}[5m])))' (docs/prometheus.md)"
    )))
}

/// Labels of a selector with an exact value.
fn exact_labels(selector: &Selector) -> impl Iterator<Item = (&str, &str)> {
    conditions(selector).iter().filter_map(|part| match part {
        Selector::Tag { name, pattern: Pattern::Exact(value) }
            if name != NAME_TAG && !name.starts_with("__") && name != BOUND =>
        {
            Some((name.as_str(), value.as_str())).filter(|(_, value)| !value.is_empty())
        }
        _ => None,
    })
}

/// Which label of a selector no series of its metric has.
fn labels_hint(selector: &Selector, series: &[SeriesHandle]) -> String {
    let wrong = exact_labels(selector).find_map(|(name, value)| label_hint(name, value, series));
    let unmatched = || conditions(selector).iter().find_map(|part| regex_hint(part, series));
    wrong.or_else(unmatched).unwrap_or_else(|| {
        format!("no series of the metric has all of these labels; it has {}", labels(series))
    })
}

fn label_hint(name: &str, value: &str, series: &[SeriesHandle]) -> Option<String> {
    let values = series.iter().map(|handle| handle.labels.get(name));
    let values: BTreeSet<&str> = values.filter(|value| !value.is_empty()).collect();
    if values.contains(value) {
        return None;
    }
    if !values.is_empty() {
        let near = nearest(value, values.into_iter().map(|value| (value, value)));
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        return Some(format!("label {name:?} has no value {value:?}{near}"));
    }
    let names = label_names(series);
    let more = match nearest(name, names.into_iter().map(|other| (other, other))) {
        Some(near) => format!("; did you mean {near:?}?"),
        None => format!("; the metric has {}", labels(series)),
    };
    Some(format!("no series has the label {name:?}{more}"))
}

/// Which regex matches no value of its label, and values that it could have matched.
fn regex_hint(part: &Selector, series: &[SeriesHandle]) -> Option<String> {
    let Selector::Tag { name, pattern: Pattern::Regex(_) } = part else { return None };
    if name.starts_with("__") || name == BOUND {
        return None;
    }
    let values = series.iter().map(|handle| handle.labels.get(name));
    let values: BTreeSet<&str> = values.filter(|value| !value.is_empty()).collect();
    let is_matched = |value: &str| {
        let one = Series::new("one", SeriesKind::Gauge).with_label(name, value);
        part.matches(&one)
    };
    if values.iter().any(|value| is_matched(value)) {
        return None;
    }
    if values.is_empty() {
        return Some(format!(
            "no series has the label {name:?}; the metric has {}",
            labels(series)
        ));
    }
    let more = if values.len() > VALUES_NAMED { " and others" } else { "" };
    let named: Vec<&str> = values.into_iter().take(VALUES_NAMED).collect();
    Some(format!(
        "no value of label {name:?} matches the regex, which must match all of a value; it has {}{more}",
        named.join(", ")
    ))
}

fn label_names(series: &[SeriesHandle]) -> BTreeSet<&str> {
    let all = series.iter().flat_map(|handle| handle.labels.iter().map(|(name, _)| name));
    all.filter(|name| *name != NAME).collect()
}

/// `the labels host, zone`.
fn labels(series: &[SeriesHandle]) -> String {
    let names = label_names(series);
    let more = if names.len() > LABELS_NAMED { " and others" } else { "" };
    let shown: Vec<&str> = names.into_iter().take(LABELS_NAMED).collect();
    match shown.is_empty() {
        true => "no labels".to_owned(),
        false => format!("the labels {}{more}", shown.join(", ")),
    }
}

/// Nearest name, of pairs of what is compared and what is returned.
fn nearest<'a>(found: &str, names: impl Iterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let max = distance_max(found);
    let near = names.filter_map(|(compared, name)| {
        let distance = edit_distance(found, compared, max)?;
        Some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

/// Maximum number of edits between a name and one that was meant.
fn distance_max(found: &str) -> usize {
    1 + found.chars().count().min(40) / 3
}

/// Words of a name without the suffix of a part.
fn words(name: &str) -> Vec<&str> {
    let is_separator = |c: char| !c.is_alphanumeric();
    without_suffix(name).split(is_separator).filter(|word| !word.is_empty()).collect()
}

fn without_suffix(name: &str) -> &str {
    SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `and(__name:rpc.durtion)` was answered to who typed `rpc.durtion`.
    #[test]
    fn a_selector_is_named_as_it_was_typed() {
        let typed = ["rpc.durtion", r#"a:b{zone="a b",__unit="ms"}"#, "and(host:web-*)", "*"];
        for typed in typed {
            assert_eq!(selector_text(&Selector::parse(typed).unwrap()), typed);
        }
        for regex in [
            r#"a{b=~"c.+"}"#,
            r#"{a=~"x.*"}"#,
            r#"{host="x",zone!="y"}"#,
            r#"a{b!~"c.*|d[0-9]",e!="f",g=~".+",h=""}"#,
            r#"a{b=~"c|d\\.e"}"#,
            r#"{__name__=~"a_.*",b="c"}"#,
            r#"a{b=~"(c.*)?"}"#,
            r#"a{b!~"c|d"}"#,
            r#"{"http.server.duration","service.name"="shop"}"#,
            r#"a{"service.name"=~"s.*",b="c"}"#,
        ] {
            let selector = Selector::parse(regex).unwrap();
            assert_eq!(selector_text(&selector), regex);
        }
        // What only a list of tags says.
        for tags in ["and(__name:a,b:/c/)", "and(__name:a,or(b:c,d:e))", "and(__name:a*,b:c*)"] {
            assert_eq!(selector_text(&Selector::parse(tags).unwrap()), tags);
        }
    }

    /// A misspelt histogram was answered with the name of its buckets.
    #[test]
    fn nearest_metric_has_the_same_suffix_if_there_is_one() {
        let metrics = ["a_seconds", "a_seconds_count", "a_seconds_sum", "b_total"];
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(nearest_metric(name, metrics.into_iter()), expected, "{name}");
        };
        check("a_secnds", Some("a_seconds"));
        check("a_secnds_sum", Some("a_seconds_sum"));
        check("a_secnds_bucket", Some("a_seconds"));
        check("b", Some("b_total"));
        check("something_else", None);
    }

    /// A counter `sd_hits` was asked for as `hits`, and the answer was "no data".
    #[test]
    fn metric_with_a_prefix_is_found_by_the_name_without_it_and_the_other_way_round() {
        let metrics = ["sd_hits", "took", "web.api.took", "web.api.sent", "id", "web_api_size"];
        let check = |name: &str, expected: Option<&str>| {
            let found = common_words_hint(name, metrics.into_iter());
            assert_eq!(found.as_deref(), expected, "{name}");
        };
        check("hits", Some(r#"did you mean the metric "sd_hits"?"#));
        check("hits_total", Some(r#"did you mean the metric "sd_hits"?"#));
        check("shop_web_took_bucket", Some(r#"did you mean the metric "took"?"#));
        check("api_took", Some("did you mean one of the metrics took, web.api.took?"));
        let three = "did you mean one of the metrics web.api.sent, web.api.took, web_api_size?";
        check("api", Some(three));
        check("web.api", Some(three));
        // Neither a part of a word nor a short name.
        check("hit", None);
        check("user_id_count", None);
        let many = ["a.hits", "b.hits", "c.hits", "d.hits"];
        let found = common_words_hint("hits", many.into_iter());
        let expected = "did you mean one of the metrics a.hits, b.hits, c.hits and 1 more?";
        assert_eq!(found.as_deref(), Some(expected));
    }
}
