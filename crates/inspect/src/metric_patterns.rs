//! Selection of metrics by name patterns with `*`.

use shm::snapshot::ProcessSeries;

use crate::values;

/// Patterns, any of which may match; no pattern selects every metric.
#[derive(Clone, Debug)]
pub struct MetricPatterns(Vec<String>);

impl MetricPatterns {
    /// Metrics whose names match one of the patterns; all metrics if there is none.
    pub fn new(patterns: &[String]) -> MetricPatterns {
        MetricPatterns(patterns.to_vec())
    }

    /// Whether a metric matches: by its name, or by name and labels as printed.
    pub fn matches(&self, metric: &ProcessSeries) -> bool {
        let fits = |pattern: &String| {
            matches_glob(pattern, &metric.name)
                || pattern.contains('{') && matches_glob(pattern, &values::series_name(metric))
        };
        self.0.is_empty() || self.0.iter().any(fits)
    }

    /// Message if no metric matches.
    pub fn no_match_message(&self, process: &str, metrics: &[ProcessSeries]) -> String {
        const NAMES_MAX: usize = 20;
        let mut names: Vec<&str> = metrics.iter().map(|metric| &metric.name[..]).collect();
        model::sort::by(&mut names, Ord::cmp);
        names.dedup();
        if names.is_empty() {
            return format!("{process} has no metrics yet");
        }
        let more = names.len().saturating_sub(NAMES_MAX);
        let listed = names[..names.len() - more].join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{process} has no metric {}; it has: {listed}{more}", self.0.join(" "))
    }
}

/// Whether a text matches a pattern. Each `*` matches as little as possible, which finds a match if
/// there is one.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_anything() {
        for (pattern, text) in [
            ("a", "a"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "abc"),
            ("a*b*c", "axbbxc"),
            ("*b*", "abc"),
            ("", ""),
        ] {
            assert!(matches_glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*a", "a"), ("*b", "abc"), ("b*", "abc"), ("a*x*c", "abc"), ("", "a")]
        {
            assert!(!matches_glob(pattern, text), "{pattern} {text}");
        }
    }
}
