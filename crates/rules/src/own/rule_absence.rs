//! Absence of streams of a rule: one alert of the rule, however many of its streams are silent.
//!
//! Every rule with a selector has it, unless `absence = false` or a criterion `absent` says
//! otherwise; a rule with a query only with `absence = true`. Its alert has the label
//! [`ABSENCE_LABEL`] instead of those of a stream, so that a source that stops is one alert of each
//! rule.

use std::sync::LazyLock;

use decode::{DURATION_EXPECTED, duration_text, parse_duration, rounded_duration_text};
use query::{LabelSet, NAME};
use serde::Deserialize;

use super::absence::ABSENT_AFTER_WITHOUT_INTERVAL_NS;

/// Label of the alert, with the value `true`.
pub(super) const ABSENCE_LABEL: &str = "absence";
/// Prefix of the label that streams have in place of [`ABSENCE_LABEL`], if their series have this
/// one: a stream with the labels of the alert could not be told apart from it. Prometheus has the
/// same prefix for labels of targets.
const EXPORTED_PREFIX: &str = "exported_";

static ABSENCE_SERIES: LazyLock<LabelSet> =
    LazyLock::new(|| LabelSet::new([(ABSENCE_LABEL, "true")]));

/// Labels of the alert of absent streams, in place of those of a stream.
pub(crate) fn absence_series() -> LabelSet {
    ABSENCE_SERIES.clone()
}

/// Whether these are the labels of the alert of absent streams.
pub(crate) fn is_absence_series(series: &LabelSet) -> bool {
    series.len() == 1 && *series == *ABSENCE_SERIES
}

/// Labels of the stream of a series: without the metric name, or those of `by`.
pub(crate) fn stream_labels(series: &LabelSet, by: Option<&[String]>) -> LabelSet {
    let labels = match by {
        None => series.filter(|name| name != NAME),
        Some(by) => series.filter(|name| by.iter().any(|wanted| wanted == name)),
    };
    if !labels.iter().any(|(name, _)| is_absence_label(name)) {
        return labels;
    }
    // All of them: two streams never have the same labels because of the prefix.
    let exported = |(name, value): (&str, &str)| match is_absence_label(name) {
        true => (format!("{EXPORTED_PREFIX}{name}"), value.to_owned()),
        false => (name.to_owned(), value.to_owned()),
    };
    LabelSet::new(labels.iter().map(exported))
}

/// Whether a label of a stream may have another name in its series.
pub(crate) fn is_exported_label(name: &str) -> bool {
    name.strip_prefix(EXPORTED_PREFIX).is_some_and(is_absence_label)
}

/// The label of absences, with any number of prefixes.
fn is_absence_label(name: &str) -> bool {
    name.ends_with(ABSENCE_LABEL) && name.trim_start_matches(EXPORTED_PREFIX) == ABSENCE_LABEL
}

/// Absence of streams of a rule, after its check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RuleAbsence {
    /// 1 (worst) to 5.
    pub(crate) severity: u8,
    /// Silence from which a stream is absent; `None`: a multiple of the learned interval.
    pub(crate) after_ns: Option<i64>,
    /// In words.
    pub(crate) text: String,
}

impl RuleAbsence {
    /// Longest silence of a stream that is not absent, as far as intervals are not known.
    pub(crate) fn silence_ns(&self) -> i64 {
        self.after_ns.unwrap_or(0).max(ABSENT_AFTER_WITHOUT_INTERVAL_NS)
    }
}

/// A stream that is absent.
#[derive(Clone, Debug)]
pub(crate) struct AbsentStream {
    /// Of a query, the name of a metric.
    pub(crate) labels: LabelSet,
    /// End of its newest row.
    pub(super) newest_row_ns: Option<i64>,
    /// Silence after which it is absent.
    pub(super) absent_after_ns: i64,
}

impl AbsentStream {
    /// `{host="a"}, for more than 30 s: the last at 2026-11-28 14:23:10Z`.
    pub(crate) fn text(&self) -> String {
        let AbsentStream { labels, newest_row_ns, absent_after_ns } = self;
        let silence = rounded_duration_text(*absent_after_ns);
        let second = |ns: i64| jiff::Timestamp::from_second(ns.div_euclid(1_000_000_000)).ok();
        let last = newest_row_ns.and_then(second).map_or_else(String::new, |last| {
            format!(": the last at {}", last.to_string().replacen('T', " ", 1))
        });
        format!("{labels}, for more than {silence}{last}")
    }
}

/// Streams of a rule that are absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbsentStreams {
    pub(crate) streams: Vec<AbsentStream>,
    /// Number of streams, or of metrics that a query reads.
    pub(crate) watched: usize,
    /// End of the oldest of their newest rows.
    pub(crate) oldest_row_ns: Option<i64>,
    /// Whether there are streams of which it is not known yet whether they are absent.
    pub(crate) is_uncertain: bool,
}

impl AbsentStreams {
    pub(super) fn push(&mut self, stream: AbsentStream) {
        let oldest_ns = self.oldest_row_ns.into_iter().chain(stream.newest_row_ns).min();
        self.oldest_row_ns = oldest_ns;
        self.streams.push(stream);
    }
}

/// Key `absence` of a rule or a file, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "absence: expected false, true, or { after = \"10min\", severity = 3 }"
)]
pub(super) enum AbsenceKey {
    Switch(bool),
    Limits(AbsenceLimits),
}

/// `absence = { after = "10min", severity = 3 }`, as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AbsenceLimits {
    after: Option<String>,
    severity: Option<u8>,
}

impl AbsenceKey {
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, AbsenceKey::Switch(false))
    }

    /// The absence of a rule with this expression, whose criteria have this severity; `None` if it
    /// is switched off. The error is the cause.
    pub(super) fn check(
        &self,
        expression: &str,
        severity: u8,
    ) -> Result<Option<RuleAbsence>, String> {
        let limits = match self {
            AbsenceKey::Switch(false) => return Ok(None),
            AbsenceKey::Switch(true) => AbsenceLimits::default(),
            AbsenceKey::Limits(limits) => limits.clone(),
        };
        let severity = limits.severity.unwrap_or(severity);
        if !(1..=5).contains(&severity) {
            return Err(format!("absence: found severity {severity}, expected 1 (worst) to 5"));
        }
        let after_ns = match &limits.after {
            None => None,
            Some(text) => match parse_duration(text) {
                Some(ns) => Some(ns),
                None => return Err(format!("absence: found {text:?}, {DURATION_EXPECTED}")),
            },
        };
        let time = after_ns.map_or_else(|| "5 intervals".to_owned(), duration_text);
        let text = format!("streams without data for {time} of {expression}");
        Ok(Some(RuleAbsence { severity, after_ns, text }))
    }
}
