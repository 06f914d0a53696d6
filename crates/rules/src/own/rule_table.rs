//! Table `[[rule]]` of a rule file, before and after its check.

use std::collections::BTreeMap;

use decode::duration_text;
use model::Selector;
use query::{Language, QueryRequest, Settings, execute, promql};
use serde::Deserialize;
use toml::Spanned;

use super::criterion::{Criterion, Measure};
use super::criterion_table::{CriterionTable, criterion_of, severity};
use super::formula::Formula;
use super::rule_absence::{AbsenceKey, RuleAbsence};
use super::table_problem::{TableProblem, TableResult, duration, keep, problem};
use super::{OwnCondition, RuleSource};
use crate::memory_series::MemorySeries;
use crate::rule_file::{AlertSettings, LabelMap, MissingData, RuleFileReader};

const SECOND_NS: i64 = 1_000_000_000;
/// Window of a rule that sets none.
const WINDOW_NS: i64 = 300 * SECOND_NS;
/// Bounds of a window.
const WINDOW_MIN_NS: i64 = SECOND_NS;
const WINDOW_MAX_NS: i64 = 31 * 86_400 * SECOND_NS;
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

/// A duration that may be 0.
fn delay(written: Option<&Spanned<String>>) -> TableResult<i64> {
    match written {
        None => Ok(0),
        Some(text) if matches!(text.get_ref().trim(), "0" | "0s") => Ok(0),
        Some(text) => duration(text),
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
            (source.map_or("", |(text, _)| text.as_str()), duration_text(window_ns));
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
