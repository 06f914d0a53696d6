//! Tables `[[rule]]` and `[[rule.criteria]]` of a rule file, before and after their check.

use std::collections::BTreeMap;

use decode::{DURATION_EXPECTED, Quantity, parse_duration};
use model::Selector;
use query::{Language, QueryRequest, Settings, execute, promql};
use regex::Regex;
use serde::Deserialize;
use toml::Spanned;

use super::criterion::{
    ComparisonKind, Criterion, Measure, NumberMeasure, TextPattern, ThresholdComparison,
};
use super::forecast::{FORECAST_WINDOW_MIN_NS, ForecastCriterion};
use super::formula::Formula;
use super::rule_absence::{AbsenceKey, RuleAbsence};
use super::shape_key::{BaselineKey, shape_measure};
use super::users_key::users_measure;
use super::{OwnCondition, RuleSource};
use crate::memory_series::MemorySeries;
use crate::rule_file::{AlertSettings, LabelMap, MissingData, RuleFileReader};

const SECOND_NS: i64 = 1_000_000_000;
/// Window of a rule that sets none.
const WINDOW_NS: i64 = 300 * SECOND_NS;
/// Bounds of a window.
const WINDOW_MIN_NS: i64 = SECOND_NS;
const WINDOW_MAX_NS: i64 = 31 * 86_400 * SECOND_NS;
/// Share of requests that must have moved, if a shape criterion sets none.
const MIN_SHIFT: f64 = 0.005;
/// Share of the outcomes that a forecast criterion needs, if it sets none.
const FORECAST_CHANCE: f64 = 0.5;

/// A rule as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTable {
    pub(super) name: Spanned<String>,
    select: Option<Spanned<String>>,
    promql: Option<Spanned<String>>,
    caql: Option<Spanned<String>>,
    formula: Option<Spanned<String>>,
    by: Option<Vec<String>>,
    window: Option<Spanned<String>>,
    min_count: Option<Spanned<u64>>,
    #[serde(rename = "for")]
    for_: Option<Spanned<String>>,
    keep_firing_for: Option<Spanned<String>>,
    parent: Option<Spanned<String>>,
    absence: Option<Spanned<AbsenceKey>>,
    severity: Option<Spanned<u8>>,
    #[serde(default)]
    criteria: Vec<Spanned<CriterionTable>>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    links: BTreeMap<String, String>,
    note: Option<String>,
    runbook_url: Option<String>,
}

/// A criterion as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CriterionTable {
    severity: Spanned<u8>,
    quantile: Option<Spanned<f64>>,
    count_above: Option<Spanned<Amount>>,
    share_above: Option<Spanned<Amount>>,
    statistic: Option<Spanned<String>>,
    text: Option<Spanned<String>>,
    text_changes: Option<Spanned<bool>>,
    absent: Option<Spanned<bool>>,
    after: Option<Spanned<String>>,
    shape_of: Option<Spanned<BaselineKey>>,
    min_shift: Option<Spanned<Amount>>,
    forecast: Option<Spanned<ForecastTable>>,
    oldest_in_flight: Option<Spanned<Amount>>,
    users_above: Option<Spanned<Amount>>,
    user_label: Option<Spanned<String>>,
    above: Option<Spanned<Amount>>,
    below: Option<Spanned<Amount>>,
    at_least: Option<Spanned<Amount>>,
    at_most: Option<Spanned<Amount>>,
    equals: Option<Spanned<Amount>>,
}

/// `forecast = { within = "3d", chance = "10%" }`, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForecastTable {
    within: Spanned<String>,
    chance: Option<Spanned<Amount>>,
}

/// A number, or a text with a unit: `0.25`, `"250ms"`, `"1%"`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Amount {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Amount::Integer(number) => number.to_string(),
            Amount::Float(number) => number.to_string(),
            Amount::Text(text) => text.clone(),
        }
    }

    fn quantity(&self) -> Option<Quantity> {
        let text = self.text();
        match text.trim().strip_suffix('%') {
            None => Quantity::parse(&text),
            Some(percent) => {
                let percent: f64 = percent.trim().parse().ok()?;
                Quantity::parse(&(percent / 100.0).to_string())
            }
        }
    }
}

/// Problem at a byte of the file.
#[derive(Debug)]
pub(super) struct TableProblem {
    pub(super) byte: usize,
    pub(super) message: String,
}

pub(super) type TableResult<T> = Result<T, TableProblem>;

pub(super) fn problem<T, V>(at: &Spanned<V>, message: impl Into<String>) -> TableResult<T> {
    Err(TableProblem { byte: at.span().start, message: message.into() })
}

/// The value, if there is no problem.
fn keep<T>(result: TableResult<T>, problems: &mut Vec<TableProblem>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}

pub(super) fn duration(written: &Spanned<String>) -> TableResult<i64> {
    let text = written.get_ref();
    match parse_duration(text) {
        Some(ns) => Ok(ns),
        None => problem(written, format!("found {text:?}, {DURATION_EXPECTED}")),
    }
}

/// A duration that may be 0.
fn delay(written: Option<&Spanned<String>>) -> TableResult<i64> {
    match written {
        None => Ok(0),
        Some(text) if matches!(text.get_ref().trim(), "0" | "0s") => Ok(0),
        Some(text) => duration(text),
    }
}

fn quantity(key: &str, written: &Spanned<Amount>) -> TableResult<Quantity> {
    match written.get_ref().quantity() {
        Some(quantity) => Ok(quantity),
        None => {
            let found = written.get_ref().text();
            problem(
                written,
                format!(
                    "{key}: found {found:?}, expected a number such as 0.25, \"250ms\" or \"1%\""
                ),
            )
        }
    }
}

fn severity(written: &Spanned<u8>) -> TableResult<u8> {
    match *written.get_ref() {
        found @ 1..=5 => Ok(found),
        found => problem(written, format!("severity: found {found}, expected 1 (worst) to 5")),
    }
}

/// What the check of a rule needs besides its table.
pub(super) struct RuleContext<'a> {
    pub(super) options: &'a promql::Options,
    /// Key of the file.
    pub(super) absence: AbsenceKey,
    pub(super) read: RuleFileReader<'a>,
}

/// A rule after its check.
pub(super) struct CheckedRule {
    pub(super) expression: String,
    pub(super) settings: AlertSettings,
}

impl RuleTable {
    /// Checks the rule, and returns all its problems. Some keys of one with unknown keys may be
    /// missing.
    pub(super) fn check(
        &self,
        context: &RuleContext<'_>,
        has_unknown_keys: bool,
    ) -> Result<CheckedRule, Vec<TableProblem>> {
        let mut problems = Vec::new();
        if self.name.get_ref().is_empty() {
            keep(problem::<(), _>(&self.name, "the name of a rule is empty"), &mut problems);
        }
        let window_ns = keep(self.window(), &mut problems);
        let for_ns = keep(delay(self.for_.as_ref()), &mut problems);
        let keep_firing_for_ns = keep(delay(self.keep_firing_for.as_ref()), &mut problems);
        let source = keep(self.source(context.options), &mut problems);
        let criteria =
            self.criteria(source.as_ref(), window_ns.unwrap_or(WINDOW_NS), context, &mut problems);
        let is_formula = self.formula.is_some();
        if criteria.is_empty() && problems.is_empty() && !is_formula && !has_unknown_keys {
            let message = "the rule has no criteria; add [[rule.criteria]]";
            keep(problem::<(), _>(&self.name, message), &mut problems);
        }
        let (Some(window_ns), Some(for_ns), Some(keep_firing_for_ns), Some((expression, source))) =
            (window_ns, for_ns, keep_firing_for_ns, source)
        else {
            return Err(problems);
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let absence = self.absence(&context.absence, &expression, &source, &criteria);
        let absence = absence.map_err(|problem| vec![problem])?;
        let own = OwnCondition {
            absence,
            source,
            window_ns,
            by: self.by.clone(),
            min_count: self.min_count.as_ref().map_or(1, |count| *count.get_ref()).max(1),
            criteria,
            parent: self.parent.as_ref().map(|parent| parent.get_ref().clone()),
        };
        let settings = AlertSettings {
            for_ns,
            keep_firing_for_ns,
            annotations: self.annotations(),
            missing_data: MissingData::Hold { presence: expression.clone() },
            condition: Some(own.into()),
        };
        Ok(CheckedRule { expression, settings })
    }

    fn window(&self) -> TableResult<i64> {
        let Some(written) = &self.window else { return Ok(WINDOW_NS) };
        let window_ns = duration(written)?;
        match (WINDOW_MIN_NS..=WINDOW_MAX_NS).contains(&window_ns) {
            true => Ok(window_ns),
            false => problem(written, "window: expected 1 s to 31 d"),
        }
    }

    fn source(&self, options: &promql::Options) -> TableResult<(String, RuleSource)> {
        let written = [
            ("select", &self.select),
            ("promql", &self.promql),
            ("caql", &self.caql),
            ("formula", &self.formula),
        ];
        let mut set = written.iter().filter_map(|(key, text)| Some((*key, text.as_ref()?)));
        let Some((key, text)) = set.next() else {
            return problem(
                &self.name,
                "the rule reads nothing; set select, promql, caql or formula",
            );
        };
        if let Some((other, at)) = set.next() {
            return problem(at, format!("found both {key} and {other}; remove one"));
        }
        let failed = |cause: String| TableProblem {
            byte: text.span().start,
            message: format!("cannot parse {key}: {cause}"),
        };
        let query = text.get_ref();
        let source = match key {
            "select" => {
                let selector = Selector::parse(query).map_err(|error| failed(error.to_string()))?;
                RuleSource::Selector(selector)
            }
            "formula" => RuleSource::Formula(Formula::parse(query).map_err(failed)?),
            "promql" => {
                promql::parse(query, options).map_err(|error| failed(error.to_string()))?;
                RuleSource::Query(Language::PromQl)
            }
            _ => {
                check_caql(query, options).map_err(|error| failed(error.to_string()))?;
                RuleSource::Query(Language::Caql)
            }
        };
        if self.by.is_some() && matches!(source, RuleSource::Query(_)) {
            return problem(text, format!("{key} with by; aggregate in the query, or use select"));
        }
        Ok((query.clone(), source))
    }

    fn formula_criterion(&self, formula: &str) -> TableResult<Criterion> {
        if let Some(first) = self.criteria.first() {
            return problem(first, "a formula has no criteria; set severity of the rule");
        }
        let severity = self.severity.as_ref().map_or(Ok(2), severity)?;
        Ok(Criterion { severity, measure: Measure::Formula, text: formula.to_owned() })
    }

    /// Criteria without problems. Those of a rule whose source has a problem are checked, too.
    fn criteria(
        &self,
        source: Option<&(String, RuleSource)>,
        window_ns: i64,
        context: &RuleContext<'_>,
        problems: &mut Vec<TableProblem>,
    ) -> Vec<Criterion> {
        if let Some((formula, RuleSource::Formula(_))) = source {
            return keep(self.formula_criterion(formula), problems).into_iter().collect();
        }
        if self.formula.is_some() {
            return Vec::new();
        }
        if let Some(severity) = &self.severity {
            let message = "severity is a key of [[rule.criteria]], or of a formula";
            keep(problem::<(), _>(severity, message), problems);
        }
        let is_selector = match source {
            Some((_, source)) => matches!(source, RuleSource::Selector(_)),
            None => self.promql.is_none() && self.caql.is_none(),
        };
        let (expression, window) =
            (source.map_or("", |(text, _)| text.as_str()), render_duration(window_ns));
        let text = |measure: String| match is_selector {
            true => format!("{measure} of {expression} within {window}"),
            false => format!("{measure} of {expression}"),
        };
        let selector_window = is_selector.then_some(window_ns);
        let read = (selector_window, context.read);
        let criteria = self.criteria.iter();
        criteria.filter_map(|criterion| criterion_of(criterion, read, &text, problems)).collect()
    }

    /// Absence of its data: by default an alert of the mildest severity of its criteria. A query
    /// has none by default: series of errors may only exist when there are some.
    fn absence(
        &self,
        of_file: &AbsenceKey,
        expression: &str,
        source: &RuleSource,
        criteria: &[Criterion],
    ) -> TableResult<Option<RuleAbsence>> {
        let has_samples = !matches!(source, RuleSource::Formula(_));
        let has_criterion = criteria.iter().any(Criterion::is_absence);
        if let Some(written) = self.absence.as_ref().filter(|it| it.get_ref().is_on()) {
            if !has_samples {
                let message = "absence needs select or a query: a formula has no samples";
                return problem(written, message);
            }
            if has_criterion {
                return problem(written, "found both absence and a criterion absent; remove one");
            }
        }
        if !has_samples || has_criterion {
            return Ok(None);
        }
        let severity = criteria.iter().map(|criterion| criterion.severity).max().unwrap_or(5);
        match &self.absence {
            Some(written) => {
                let checked = written.get_ref().check(expression, severity);
                checked.or_else(|cause| problem(written, cause))
            }
            None if !matches!(source, RuleSource::Selector(_)) => Ok(None),
            // Its problems are those of the file.
            None => Ok(of_file.check(expression, severity).unwrap_or_default()),
        }
    }

    fn annotations(&self) -> LabelMap {
        let mut annotations: LabelMap = self.links.clone();
        let texts = [("note", &self.note), ("runbook_url", &self.runbook_url)];
        for (name, text) in texts {
            annotations.extend(text.clone().map(|text| (name.to_owned(), text)));
        }
        annotations
    }
}

/// Plans a CAQL query, and evaluates it over nothing.
fn check_caql(text: &str, options: &promql::Options) -> query::Result<()> {
    let (start, end, step) = (0, WINDOW_NS, WINDOW_NS);
    let (language, options) = (Language::Caql, *options);
    let request = QueryRequest { text, language, start, end, step, options };
    execute(&MemorySeries::default(), &request, &Settings::default(), &|| false).map(drop)
}

/// A duration as it is written in a file: `5min`.
fn render_duration(ns: i64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let whole = units.iter().find(|(seconds, _)| ns % (seconds * SECOND_NS) == 0);
    match whole {
        Some((seconds, unit)) => format!("{}{unit}", ns / (seconds * SECOND_NS)),
        None => format!("{}ms", ns / 1_000_000),
    }
}

fn criterion_of(
    written: &Spanned<CriterionTable>,
    (selector_window, read): (Option<i64>, RuleFileReader<'_>),
    text: &dyn Fn(String) -> String,
    problems: &mut Vec<TableProblem>,
) -> Option<Criterion> {
    let table = written.get_ref();
    let severity = keep(severity(&table.severity), problems);
    let (measure, words) = keep(table.measure(written, selector_window, read), problems)?;
    Some(Criterion { severity: severity?, measure, text: text(words) })
}

/// A comparison, its key and its text.
pub(super) type ComparisonParts = (ThresholdComparison, &'static str, String);

fn forecast_measure(
    written: &Spanned<ForecastTable>,
    comparison: Option<ComparisonParts>,
    selector_window: Option<i64>,
) -> TableResult<(Measure, String)> {
    let ForecastTable { within, chance } = written.get_ref();
    let Some(window_ns) = selector_window else {
        return problem(written, "this criterion needs select: a query has no samples");
    };
    if window_ns < FORECAST_WINDOW_MIN_NS {
        return problem(written, "forecast: the window is shorter than 1h; set window = \"7d\"");
    }
    let bound = comparison.filter(|(bound, ..)| bound.kind != ComparisonKind::Equals);
    let Some((bound, _, words)) = bound else {
        return problem(written, "forecast needs a bound; set above, below, at_least or at_most");
    };
    let within_ns = duration(within)?;
    let share = match chance {
        None => FORECAST_CHANCE,
        Some(chance) => match quantity("chance", chance)?.value_in(None) {
            Some(share) if (0.01..=0.99).contains(&share) => share,
            _ => return problem(chance, "chance: expected 0.01 to 0.99, or \"1%\" to \"99%\""),
        },
    };
    let likely = chance.as_ref().map_or_else(String::new, |chance| {
        format!(" with a chance of {}", chance.get_ref().text())
    });
    let words = format!("forecast for {}{likely} {words}", within.get_ref());
    Ok((Measure::Forecast(ForecastCriterion { bound, within_ns, chance: share }), words))
}

impl CriterionTable {
    /// The measure, and its text. `selector_window` is the window of a rule with a selector.
    fn measure(
        &self,
        at: &Spanned<CriterionTable>,
        selector_window: Option<i64>,
        read: RuleFileReader<'_>,
    ) -> TableResult<(Measure, String)> {
        let comparison = self.comparison(at)?;
        let special = self.special_measure(selector_window.is_some(), read)?;
        let numbers = self.number_measures()?;
        let count = usize::from(special.is_some()) + numbers.len();
        let others = [self.forecast.is_some(), self.users_above.is_some()];
        if count + others.into_iter().map(usize::from).sum::<usize>() > 1 {
            return problem(at, "the criterion has two measures; write two criteria");
        }
        if let Some(forecast) = &self.forecast {
            return forecast_measure(forecast, comparison, selector_window);
        }
        if let Some(written) = &self.users_above {
            let limit = (quantity("users_above", written)?, written.get_ref().text());
            let label = self.user_label.as_ref().map(|label| label.get_ref().clone());
            return users_measure(written, limit, label, comparison, selector_window.is_some());
        }
        if let Some(label) = &self.user_label {
            return problem(label, "user_label belongs to users_above");
        }
        match (special, comparison) {
            (Some(measure), None) => Ok(measure),
            (Some(_), Some((_, key, _))) => {
                problem(at, format!("{key} does not belong to this criterion; remove it"))
            }
            (None, None) => problem(
                at,
                "the criterion compares nothing; set above, below, at_least, at_most or equals",
            ),
            (None, Some((comparison, _, words))) => {
                let first = numbers.into_iter().next();
                let (measure, name) =
                    first.unwrap_or_else(|| (NumberMeasure::Value, "value".to_owned()));
                Ok((Measure::Number(measure, comparison), format!("{name} {words}")))
            }
        }
    }

    fn comparison(&self, at: &Spanned<CriterionTable>) -> TableResult<Option<ComparisonParts>> {
        let written = [
            (ComparisonKind::Above, &self.above),
            (ComparisonKind::Below, &self.below),
            (ComparisonKind::AtLeast, &self.at_least),
            (ComparisonKind::AtMost, &self.at_most),
            (ComparisonKind::Equals, &self.equals),
        ];
        let mut set = written.iter().filter_map(|(kind, amount)| Some((*kind, amount.as_ref()?)));
        let Some((kind, amount)) = set.next() else { return Ok(None) };
        if set.next().is_some() {
            return problem(at, "the criterion has two comparisons; write two criteria");
        }
        let threshold = quantity(kind.key(), amount)?;
        let words = format!("{} {}", kind.key().replace('_', " "), amount.get_ref().text());
        Ok(Some((ThresholdComparison { kind, threshold }, kind.key(), words)))
    }

    fn number_measures(&self) -> TableResult<Vec<(NumberMeasure, String)>> {
        let mut found = Vec::new();
        if let Some(written) = &self.quantile {
            let q = *written.get_ref();
            if !(0.0..=1.0).contains(&q) {
                return problem(written, format!("quantile: found {q}, expected 0 to 1"));
            }
            found.push((NumberMeasure::Quantile(q), format!("quantile {q}")));
        }
        if let Some(written) = &self.count_above {
            let limit = quantity("count_above", written)?;
            let text = format!("requests above {}", written.get_ref().text());
            found.push((NumberMeasure::CountAbove(limit), text));
        }
        if let Some(written) = &self.share_above {
            let limit = quantity("share_above", written)?;
            let text = format!("share of requests above {}", written.get_ref().text());
            found.push((NumberMeasure::ShareAbove(limit), text));
        }
        if let Some(written) = &self.statistic {
            let measure = match written.get_ref().as_str() {
                "value" => NumberMeasure::Value,
                "rate" => NumberMeasure::Rate,
                "count" => NumberMeasure::Count,
                "min" => NumberMeasure::Min,
                "max" => NumberMeasure::Max,
                "mean" => NumberMeasure::Mean,
                other => {
                    let known = ["value", "rate", "count", "min", "max", "mean"];
                    return problem(written, unknown_name("statistic", other, &known));
                }
            };
            found.push((measure, written.get_ref().clone()));
        }
        Ok(found)
    }

    fn special_measure(
        &self,
        is_selector: bool,
        read: RuleFileReader<'_>,
    ) -> TableResult<Option<(Measure, String)>> {
        let mut found = Vec::new();
        if let Some(written) = &self.text {
            let parsed = Regex::new(written.get_ref())
                .and_then(|regex| Regex::new(&format!("^(?s:{regex})$")));
            let regex = parsed.or_else(|error| {
                // The last line has the cause, those before show the place.
                let cause = error.to_string().lines().last().unwrap_or_default().to_owned();
                let cause = cause.trim_start_matches("error: ");
                problem(written, format!("text: cannot parse regular expression: {cause}"))
            })?;
            let words = format!("text matches {:?}", written.get_ref());
            found.push((Measure::TextMatch(TextPattern(regex)), words, written.span()));
        }
        if let Some(written) = self.text_changes.as_ref().filter(|it| *it.get_ref()) {
            found.push((Measure::TextChange, "text changes".to_owned(), written.span()));
        }
        if let Some(written) = self.absent.as_ref().filter(|it| *it.get_ref()) {
            let after_ns = self.after.as_ref().map(duration).transpose()?;
            let words = match &self.after {
                Some(after) => format!("no data for {}", after.get_ref()),
                None => "no data for 5 intervals".to_owned(),
            };
            found.push((Measure::Absence(after_ns), words, written.span()));
        } else if let Some(after) = &self.after {
            return problem(after, "after belongs to absent = true");
        }
        if let Some(written) = &self.shape_of {
            let (measure, words) = shape_measure(written, self.min_shift()?, read)?;
            found.push((measure, words, written.span()));
        } else if let Some(min_shift) = &self.min_shift {
            return problem(min_shift, "min_shift belongs to shape_of");
        }
        if let Some(written) = &self.oldest_in_flight {
            let least = quantity("oldest_in_flight", written)?;
            let words = format!("operation in flight for {}", written.get_ref().text());
            found.push((Measure::OldestInFlight(least), words, written.span()));
        }
        if !is_selector && let Some((_, _, span)) = found.first() {
            let message = "this criterion needs select: a query has no samples".to_owned();
            return Err(TableProblem { byte: span.start, message });
        }
        if let [_, (_, _, second), ..] = &found[..] {
            let message = "the criterion has two measures; write two criteria".to_owned();
            return Err(TableProblem { byte: second.start, message });
        }
        Ok(found.pop().map(|(measure, words, _)| (measure, words)))
    }

    fn min_shift(&self) -> TableResult<f64> {
        let Some(written) = &self.min_shift else { return Ok(MIN_SHIFT) };
        let share = quantity("min_shift", written)?.value_in(None);
        match share.filter(|share| (0.0..1.0).contains(share)) {
            Some(share) => Ok(share),
            None => problem(written, "min_shift: expected a share such as 0.01 or \"1%\""),
        }
    }
}

pub(super) fn nearest_name<'a>(
    found: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let max = 1 + found.chars().count().min(40) / 3;
    let near = known.filter_map(|name| {
        let distance = query::edit_distance(found, name, max)?;
        Some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

/// `unknown statistic "rat"; did you mean "rate"?`.
pub(super) fn unknown_name(what: &str, found: &str, known: &[&str]) -> String {
    match nearest_name(found, known.iter().copied()) {
        Some(name) => format!("unknown {what} {found:?}; did you mean {name:?}?"),
        None => format!("unknown {what} {found:?}; known: {}", known.join(", ")),
    }
}
