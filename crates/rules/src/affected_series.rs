//! How many requests and users an alert affected: values above the threshold of its rule, from the
//! window before the alert began.
//!
//! The threshold is that of the criterion that holds, or the one that an expression of PromQL
//! contains ([`RuleThreshold`]). Only durations are requests: a value of another unit may be
//! anything. The distributions of the same series over time are the picture of the alert.

use std::ops::Range;

use decode::{Quantity, Unit};
use hist::{Bracket, Mixture};
use model::{Selector, SeriesKind, selector};
use query::promql::{self, ExprKind};
use query::{LabelSet, SeriesHandle, Source};
use store::TimeGrid;

use crate::affected_users::{USERS_MAX, UserSeries, count_above, with_rows};
use crate::alert_table::Alert;
use crate::evaluator::RuleQueryError;
use crate::own::{OwnCondition, is_exported_label, stream_labels};
use crate::replay::RuleThreshold;
use crate::rule_file::{LabelMap, Rule};

/// How far a rule without a range looks back, as Prometheus does.
const LOOKBACK_NS: i64 = 5 * 60 * 1_000_000_000;

/// Numbers of requests and users. `None` is unknown: the rule contains no threshold of durations,
/// or the threshold is within a bucket that is too wide to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AffectedCounts {
    /// Requests.
    pub requests: Option<u64>,
    /// Users or sessions.
    pub users: Option<u64>,
}

/// Distributions of the series of an alert over time.
#[derive(Clone, Debug)]
pub struct AlertColumns {
    /// Unit of the values, as of the series.
    pub unit: Option<Unit>,
    /// The threshold in this unit.
    pub threshold: Option<f64>,
    /// Values of each column.
    pub values: Vec<Mixture>,
}

/// Series whose values above a threshold are the requests that an alert affected.
#[derive(Clone, Debug)]
pub struct AffectedSeries {
    selector: Selector,
    /// Exact labels of the stream; `None` if the selector says all.
    stream: Option<AffectedStream>,
    /// `None` if the criterion has no threshold, or is about values below it.
    threshold: Option<Quantity>,
    start_ns: i64,
    end_ns: Option<i64>,
}

/// Labels by which an own rule merges series, and their values.
#[derive(Clone, Debug)]
struct AffectedStream {
    by: Option<Vec<String>>,
    labels: LabelSet,
}

impl AffectedStream {
    fn contains(&self, series: &LabelSet) -> bool {
        stream_labels(series, self.by.as_deref()) == self.labels
    }
}

/// What the alerts of a rule affect, read once from its expression.
#[derive(Clone, Debug)]
pub struct AffectedRule<'a> {
    rule: &'a Rule,
    /// Of a rule in PromQL: selector, threshold and window.
    parsed: Option<(Selector, Quantity, i64)>,
}

impl<'a> AffectedRule<'a> {
    /// That of a rule.
    pub fn of(rule: &'a Rule) -> AffectedRule<'a> {
        let parse = |expression: &str| {
            let RuleThreshold { threshold, selector } = RuleThreshold::of(expression)?;
            let (selector, threshold) = (parse_selector(&selector)?, parse_threshold(&threshold)?);
            Some((selector, threshold, longest_range_ns(expression)))
        };
        let is_own = rule.condition().is_some();
        AffectedRule { rule, parsed: (!is_own).then(|| parse(&rule.expression)).flatten() }
    }

    /// Series of an alert of the rule; `None` if it has no selector, or if its expression contains
    /// no threshold of a distribution.
    pub fn series(&self, alert: &Alert) -> Option<AffectedSeries> {
        if let Some(own) = self.rule.condition() {
            let criterion = alert.matched.as_ref().map(|matched| matched.criterion);
            let threshold = criterion.and_then(|criterion| own.upper_limit(criterion));
            let start_ns = alert.active_at_ns.saturating_sub(own.window_ns);
            let end_ns = alert.resolved_at_ns;
            return AffectedSeries::of_own(own, threshold, &alert.series, (start_ns, end_ns));
        }
        let (selector, threshold, window_ns) = self.parsed.clone()?;
        Some(AffectedSeries {
            selector: with_labels(selector, &alert.series),
            stream: None,
            threshold: Some(threshold),
            start_ns: alert.active_at_ns.saturating_sub(window_ns),
            end_ns: alert.resolved_at_ns,
        })
    }
}

/// Selector with further labels.
fn with_labels(selector: Selector, labels: &LabelSet) -> Selector {
    let equals = labels.iter().map(|(name, value)| Selector::label_equals(name, value));
    Selector::and([selector].into_iter().chain(equals).collect())
}

impl AffectedSeries {
    /// Series of a stream of an own rule in a range.
    pub(crate) fn of_stream(
        own: &OwnCondition,
        threshold: &Quantity,
        labels: &LabelSet,
        range: Range<i64>,
    ) -> Option<AffectedSeries> {
        AffectedSeries::of_own(own, Some(threshold), labels, (range.start, Some(range.end)))
    }

    fn of_own(
        own: &OwnCondition,
        threshold: Option<&Quantity>,
        labels: &LabelSet,
        (start_ns, end_ns): (i64, Option<i64>),
    ) -> Option<AffectedSeries> {
        // The labels of the series may have other names: those of the stream are compared.
        let of_series = labels.filter(|name| !is_exported_label(name));
        Some(AffectedSeries {
            selector: with_labels(own.selector()?.clone(), &of_series),
            stream: Some(AffectedStream { by: own.by.clone(), labels: labels.clone() }),
            threshold: threshold.cloned(),
            start_ns,
            end_ns,
        })
    }

    /// Number of values above the threshold, whatever they measure, in a range that has an end;
    /// `None` without distributions of one unit that the threshold can be converted to.
    pub(crate) fn values_above(&self, source: &dyn Source) -> query::Result<Option<Bracket>> {
        let handles = self.histograms(source)?;
        let unit = handles.first().map_or("", |first| &first.unit);
        let is_same = handles.iter().all(|handle| handle.unit == unit);
        let threshold = self.threshold.as_ref().filter(|_| is_same);
        let threshold =
            threshold.and_then(|threshold| threshold.value_in(Unit::parse(unit).as_ref()));
        let (Some(threshold), Some(end_ns)) = (threshold, self.end_ns) else { return Ok(None) };
        let step = end_ns.saturating_sub(self.start_ns).max(1);
        let grid = TimeGrid { start: self.start_ns, step, columns: 1 };
        let series: Vec<&SeriesHandle> = handles.iter().collect();
        let read = source.histograms(&series, grid)?;
        let values = read.values.into_iter().next().unwrap_or_default();
        Ok(Some(count_above(&values, threshold).unwrap_or(Bracket::exact(0.0))))
    }

    /// Whether all of the series are of a metric and have all of `labels`.
    pub fn is_within(&self, metric: &str, labels: &LabelMap) -> bool {
        let has = |name: &str, value: &str| requires(&self.selector, name, value);
        has(selector::NAME, metric) && labels.iter().all(|(name, value)| has(name, value))
    }

    /// The distributions among the series.
    fn histograms(&self, source: &dyn Source) -> query::Result<Vec<SeriesHandle>> {
        let mut handles = source.select_with_classic(&self.selector)?;
        handles.retain(|handle| {
            matches!(handle.kind, SeriesKind::Histogram(_))
                && self.stream.as_ref().is_none_or(|stream| stream.contains(&handle.labels))
        });
        Ok(handles)
    }

    /// Counts affected requests and users until `now_ns`, or until the alert resolved. `user_label`
    /// tells users apart; without it, a label of sessions does, if the series have one.
    pub fn count(
        &self,
        source: &dyn Source,
        now_ns: i64,
        user_label: Option<&str>,
    ) -> Result<AffectedCounts, RuleQueryError> {
        let failed = |error: query::Error| RuleQueryError(error.to_string());
        let end_ns = self.end_ns.unwrap_or(now_ns);
        let grid = TimeGrid {
            start: self.start_ns,
            step: end_ns.saturating_sub(self.start_ns),
            columns: 1,
        };
        if grid.step <= 0 || self.threshold.is_none() {
            return Ok(AffectedCounts::default());
        }
        let handles = self.histograms(source).map_err(failed)?;
        let Some(threshold) =
            handles.first().and_then(|first| self.threshold_in(&handles, &first.unit))
        else {
            return Ok(AffectedCounts::default());
        };
        let above = |series: &[&SeriesHandle]| {
            let read = source.histograms(series, grid).map_err(failed)?;
            let values = read.values.into_iter().next().unwrap_or_default();
            Ok::<_, RuleQueryError>(count_above(&values, threshold))
        };
        let all: Vec<&SeriesHandle> = handles.iter().collect();
        let Some(requests) = above(&all)? else { return Ok(AffectedCounts::default()) };
        let active = with_rows(source, handles, &(self.start_ns..end_ns));
        let users = UserSeries::of(&active, user_label);
        // Of users that cannot be read the requests are known nevertheless.
        let users = users.and_then(|users| users.count(USERS_MAX, &above).ok());
        Ok(AffectedCounts { requests: known(requests), users: users.and_then(known) })
    }

    /// Distributions of the series by columns; `None` if there are no distributions, or if their
    /// units differ.
    pub fn columns(
        &self,
        source: &dyn Source,
        grid: TimeGrid,
    ) -> Result<Option<AlertColumns>, RuleQueryError> {
        let failed = |error: query::Error| RuleQueryError(error.to_string());
        let handles = self.histograms(source).map_err(failed)?;
        let Some(first) = handles.first() else { return Ok(None) };
        if handles.iter().any(|handle| handle.unit != first.unit) {
            return Ok(None);
        }
        let unit = Unit::parse(&first.unit);
        let threshold =
            self.threshold.as_ref().and_then(|threshold| threshold.value_in(unit.as_ref()));
        let all: Vec<&SeriesHandle> = handles.iter().collect();
        let values = source.histograms(&all, grid).map_err(failed)?.values;
        Ok(Some(AlertColumns { unit, threshold, values }))
    }

    /// The threshold in the unit of the values, which must be a duration, and the same of all
    /// series.
    fn threshold_in(&self, handles: &[SeriesHandle], unit: &str) -> Option<f64> {
        let known = Unit::parse(unit)?;
        known.in_nanoseconds()?;
        let is_same = handles.iter().all(|handle| handle.unit == unit);
        self.threshold.as_ref()?.value_in(Some(&known)).filter(|_| is_same)
    }
}

/// Whether a selector has the condition that a label has a value.
fn requires(selector: &Selector, label: &str, value: &str) -> bool {
    match selector {
        Selector::And(parts) => parts.iter().any(|part| requires(part, label, value)),
        one => *one == Selector::label_equals(label, value),
    }
}

/// A number, unless its bounds are too far from each other to tell one.
fn known(count: Bracket) -> Option<u64> {
    (!count.is_wide()).then_some(count.estimate.round() as u64)
}

/// A threshold of PromQL: a number is in the unit of the values.
fn parse_threshold(text: &str) -> Option<Quantity> {
    match promql::parse(text, &promql::Options::all()).ok()?.kind {
        ExprKind::Number(number) => Quantity::parse(&number.to_string()),
        ExprKind::Duration(seconds) => Quantity::parse(&format!("{seconds}s")),
        _ => None,
    }
}

fn parse_selector(text: &str) -> Option<Selector> {
    match promql::parse(text, &promql::Options::all()).ok()?.kind {
        ExprKind::Selector(selector) => promql::selector_of(&selector).ok(),
        _ => None,
    }
}

/// The longest range of an expression, `[5m]` or `[5m:1m]`.
fn longest_range_ns(expression: &str) -> i64 {
    let ranges = expression.split('[').skip(1).filter_map(|rest| {
        let end = rest.find([']', ':'])?;
        promql::parse_duration(rest[..end].trim()).ok()
    });
    ranges.max().unwrap_or(LOOKBACK_NS)
}
