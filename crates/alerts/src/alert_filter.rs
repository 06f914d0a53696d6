//! Search in alerts and in their history: by text, labels and severity.

use notify::{AlertLabels, AlertMatcher};
use role::{Parameter, RouteError, RouteQuery};

use crate::json_body::parse_matchers;

/// Parameters of a search.
pub(crate) const TEXT: Parameter = Parameter::text(
    "text",
    "text in the name, a label, the note and the like, upper and lower case alike; default: all",
);
pub(crate) const MATCHER: Parameter =
    Parameter::text("matcher", "matcher of labels, such as host=~\"db.*\"; all must match").many();
pub(crate) const SEVERITY: Parameter =
    Parameter::integer("severity", "1 (worst) to 5; default: all").many();

/// What a search selects.
#[derive(Debug, Default)]
pub(crate) struct AlertFilter {
    /// In lower case.
    text: Option<String>,
    matchers: Vec<AlertMatcher>,
    severities: Vec<u8>,
}

impl AlertFilter {
    pub(crate) fn read(query: &RouteQuery) -> Result<AlertFilter, RouteError> {
        let severity = |text: &str| match text.parse() {
            Ok(severity @ 1..=5) => Ok(severity),
            _ => Err(RouteError::Parameter {
                name: "severity".to_owned(),
                found: text.to_owned(),
                expected: "1 (worst) to 5".to_owned(),
            }),
        };
        Ok(AlertFilter {
            text: query.get("text").map(str::to_lowercase),
            matchers: parse_matchers(query.all("matcher").filter(|text| !text.is_empty()))?,
            severities: query
                .all("severity")
                .filter(|text| !text.is_empty())
                .map(severity)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether an alert is selected; `texts` are those besides its labels.
    pub(crate) fn accepts(&self, labels: &AlertLabels, severity: u8, texts: &[&str]) -> bool {
        (self.severities.is_empty() || self.severities.contains(&severity))
            && self.matchers.iter().all(|matcher| matcher.matches(labels))
            && self.text.as_ref().is_none_or(|wanted| {
                let has = |text: &str| text.to_lowercase().contains(wanted);
                let in_label = |(name, value): (&String, &String)| has(&format!("{name}={value}"));
                texts.iter().any(|text| has(text)) || labels.iter().any(in_label)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(pairs: &[(&str, &str)]) -> Result<AlertFilter, RouteError> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        AlertFilter::read(&RouteQuery::new(pairs.collect()))
    }

    /// Whether a search selects an alert of severity 2 with a label and a note.
    #[track_caller]
    fn check(pairs: &[(&str, &str)], expected: bool) {
        let labels: AlertLabels = [("host".to_owned(), "DB1".to_owned())].into();
        let filter = filter(pairs).expect("valid parameters");
        assert_eq!(filter.accepts(&labels, 2, &["a note"]), expected, "{pairs:?}");
    }

    #[test]
    fn all_conditions_must_hold() {
        check(&[], true);
        check(&[("text", "")], true);
        check(&[("text", "NOTE")], true);
        check(&[("text", "host=db")], true);
        check(&[("text", "other")], false);
        check(&[("matcher", "host=~\"DB.*\"")], true);
        check(&[("matcher", "host=DB1"), ("matcher", "zone=a")], false);
        check(&[("severity", "2")], true);
        check(&[("severity", "1"), ("severity", "3")], false);
        check(&[("severity", "1"), ("severity", "2"), ("text", "x")], false);
        assert!(filter(&[("severity", "6")]).is_err());
        assert!(filter(&[("matcher", "=")]).is_err());
    }
}
