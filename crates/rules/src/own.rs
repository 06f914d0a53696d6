//! Own rules: criteria on the streams of a selector, of a query, or of other rules.
//!
//! An own rule is an alerting rule of a group like those of Prometheus: the same table holds its
//! alerts, and the same snapshot carries them across a restart. Only its condition is another one:
//! for each stream, the first criterion of a list that certainly holds gives the severity. A stream
//! without data, or whose values cannot be read, resolves nothing.

mod absence;
mod clock_step;
mod criterion;
mod criterion_table;
mod evaluation;
mod finding_cache;
mod forecast;
mod formula;
mod read_recorder;
mod rule_absence;
mod rule_order;
mod rule_table;
mod saved_baseline;
mod shape_change;
mod shape_key;
mod shared_windows;
mod stream_reader;
mod table_problem;
mod toml_file;
mod users_above;
mod users_key;

pub(crate) use absence::StreamArrivals;
pub(crate) use clock_step::{ClockStepBack, ClockSteps, EvaluationClock, EvaluationGap, RowsAhead};
pub(crate) use evaluation::{OperandState, OwnInputs, StreamElement, StreamFindings, evaluate_own};
pub(crate) use finding_cache::FindingCache;
pub(crate) use read_recorder::QuerySelectors;
pub(crate) use rule_absence::{
    AbsentStream, RuleAbsence, absence_series, is_absence_series, is_exported_label, stream_labels,
};
pub(crate) use shared_windows::SharedWindows;
pub(crate) use stream_reader::query_selectors;
pub(crate) use toml_file::parse_toml_rule_file;

use decode::Quantity;
use model::Selector;
use query::Language;

use criterion::{Criterion, Measure};
use formula::Formula;

/// Condition of an own rule.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnCondition {
    pub(crate) source: RuleSource,
    /// Length of the window before the time of an evaluation.
    pub(crate) window_ns: i64,
    /// Labels by which series are merged; `None`: each series is a stream.
    pub(crate) by: Option<Vec<String>>,
    /// Number of values in the window below which nothing is known.
    pub(crate) min_count: u64,
    /// In order: the first one that holds gives the severity.
    pub(crate) criteria: Vec<Criterion>,
    /// Absence of its streams; `None` if it is of no interest, or a criterion.
    pub(crate) absence: Option<RuleAbsence>,
    /// Rule that holds this one while it fires at severity 1.
    pub(crate) parent: Option<String>,
}

/// What an own rule reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RuleSource {
    /// Stored series.
    Selector(Selector),
    /// Result of a query.
    Query(Language),
    /// States of other rules of the file.
    Formula(Formula),
}

impl OwnCondition {
    /// Selector of the series; `None` for a query or a formula.
    pub fn selector(&self) -> Option<&Selector> {
        match &self.source {
            RuleSource::Selector(selector) => Some(selector),
            RuleSource::Query(_) | RuleSource::Formula(_) => None,
        }
    }

    /// What its expression is: `selector`, `promql`, `caql` or `formula`.
    pub fn language(&self) -> &'static str {
        match &self.source {
            RuleSource::Selector(_) => "selector",
            RuleSource::Query(Language::PromQl) => "promql",
            RuleSource::Query(Language::Caql) => "caql",
            RuleSource::Formula(_) => "formula",
        }
    }

    /// Whether it reads series of a selector.
    pub fn has_selector(&self) -> bool {
        self.selector().is_some()
    }

    /// Whether it is the result of a query.
    pub fn is_query(&self) -> bool {
        matches!(self.source, RuleSource::Query(_))
    }

    /// A criterion in words, such as `p99 above 250ms within 5 min`. The absence of streams comes
    /// after the others.
    pub fn criterion_text(&self, index: usize) -> String {
        let text = match self.criteria.get(index) {
            Some(criterion) => Some(&criterion.text),
            None => self.absence.as_ref().map(|absence| &absence.text),
        };
        text.cloned().unwrap_or_default()
    }

    /// Whether it follows when rows of its streams arrive.
    fn follows_rows(&self) -> bool {
        self.absence.is_some() || self.criteria.iter().any(Criterion::is_absence)
    }

    /// What a forecast tells the time of: `full` if a gauge rises to a bound, `used up` if it falls
    /// to one. The value of such a criterion is the time until then, in seconds: p10, p50 and p90
    /// of the outcomes.
    pub fn forecast_event(&self, index: usize) -> Option<&'static str> {
        match &self.criteria.get(index)?.measure {
            Measure::Forecast(forecast) if forecast.is_rise() => Some("full"),
            Measure::Forecast(_) => Some("used up"),
            _ => None,
        }
    }

    /// Limit of the values of a distribution that a criterion is about, as PromQL writes it, such
    /// as `250ms`; `None` if it is about something else.
    pub fn limit_text(&self, criterion: usize) -> Option<String> {
        self.upper_limit(criterion).map(|limit| limit.to_string().replace(' ', ""))
    }

    /// That of the first criterion that has one.
    pub(crate) fn first_limit_text(&self) -> Option<String> {
        self.first_limit().map(|(text, _)| text)
    }

    /// The same with its text.
    pub(crate) fn first_limit(&self) -> Option<(String, &Quantity)> {
        let limit = |criterion| Some((self.limit_text(criterion)?, self.upper_limit(criterion)?));
        (0..self.criteria.len()).find_map(limit)
    }

    /// The limit of good values of a criterion, if it is one on a distribution.
    pub(crate) fn upper_limit(&self, criterion: usize) -> Option<&Quantity> {
        self.criteria.get(criterion)?.upper_limit()
    }

    /// Rule that holds this one while it fires at severity 1.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// Names of the rules of its formula.
    pub(crate) fn operands(&self) -> Vec<&str> {
        let mut names = Vec::new();
        if let RuleSource::Formula(formula) = &self.source {
            formula.each_name(&mut |name| names.push(name));
        }
        names
    }

    /// Names of the rules whose states it reads.
    pub fn dependencies(&self) -> Vec<&str> {
        let mut names = self.operands();
        names.extend(self.parent.as_deref());
        names
    }
}
