//! Runner of rule tests.

use decode::duration_text;
use query::{Settings, Source, StepValue, promql};

use super::alert_comparison::compare_alerts;
use super::server_series::ServerSeries;
use super::{AlertExpectation, ExpressionExpectation, RuleTest, RuleTestFailure, RuleTestFile};
use crate::evaluator::{OverlayEvaluator, RuleSample};
use crate::group::{EvaluatedGroup, GroupDefaults, IterationInputs, RuleHealth};
use crate::memory_series::MemorySeries;
use crate::overlay::{SampleOverlay, SourceEvaluator};
use crate::rule_file::{ProblemSeverity, Rule, RuleFile, RuleGroup};

/// What a test can do about a threshold with a unit.
const UNIT_HINT: &str = "; in a test, the unit is that of the name (x_seconds) or of the label \
                         __unit__ (x{__unit__=\"ms\"})";

/// Runs the tests whose names satisfy a predicate, over rule files.
pub fn run_rule_tests(
    file: &RuleTestFile,
    rule_files: &[RuleFile],
    options: &promql::Options,
    is_selected: &dyn Fn(&str) -> bool,
) -> Vec<RuleTestFailure> {
    let mut failures = Vec::new();
    for test in file.tests.iter().filter(|test| is_selected(&test.name)) {
        let mut run = TestRun {
            file,
            test,
            options,
            // promtool evaluates subqueries without a step at the evaluation interval.
            settings: Settings {
                subquery_step: file.evaluation_interval_ns,
                ..Settings::default()
            },
            series: MemorySeries::default(),
            server_series: None,
            loaded_to_ns: None,
            groups: Vec::new(),
            failures: &mut failures,
        };
        if run.load(rule_files) && run.evaluate() {
            run.check_expressions();
        }
    }
    failures
}

/// Test in progress.
struct TestRun<'a> {
    file: &'a RuleTestFile,
    test: &'a RuleTest,
    options: &'a promql::Options,
    settings: Settings,
    series: MemorySeries,
    /// The same for own rules, if there are some.
    server_series: Option<ServerSeries>,
    /// Samples up to this time are visible.
    loaded_to_ns: Option<i64>,
    groups: Vec<EvaluatedGroup>,
    failures: &'a mut Vec<RuleTestFailure>,
}

impl TestRun<'_> {
    fn fail(&mut self, position: Option<crate::rule_file::FilePosition>, message: String) {
        let test = self.test.name.clone();
        self.failures.push(RuleTestFailure { test, position, message });
    }

    /// Loads the rule files. Returns whether they are free of errors.
    fn load(&mut self, rule_files: &[RuleFile]) -> bool {
        let interval_ns = self.test.interval_ns;
        let defaults = GroupDefaults { interval_ns, ..GroupDefaults::default() };
        let before = self.failures.len();
        for problem in rule_files.iter().flat_map(|file| &file.problems) {
            if problem.severity == ProblemSeverity::Error {
                self.fail(None, problem.to_string());
            }
        }
        for group in rule_files.iter().flat_map(|file| &file.groups) {
            let mut group = group.clone();
            if is_own(&group) {
                self.server_series.get_or_insert_default();
                // Time in which nothing is evaluated does not count for absences.
                group.interval_ns = Some(self.file.evaluation_interval_ns);
            }
            self.groups.push(EvaluatedGroup::new(group, &defaults));
        }
        // As in promtool, groups that are not named are equal to the first one that is.
        let order = &self.file.group_order;
        model::sort::by_key(&mut self.groups, |group| {
            order.iter().position(|name| name == group.name()).unwrap_or(0)
        });
        self.failures.len() == before
    }

    /// Evaluates all groups up to the last expectation. Returns whether no rule failed.
    fn evaluate(&mut self) -> bool {
        let alerts = self.test.alerts.iter().map(|expected| expected.time_ns);
        let expressions = self.test.expressions.iter().map(|expected| expected.time_ns);
        let last_ns = alerts.chain(expressions).max().unwrap_or(0);
        let interval_ns = self.file.evaluation_interval_ns;
        let mut since_start_ns = 0;
        while since_start_ns <= last_ns {
            if !self.evaluate_at(since_start_ns) {
                return false;
            }
            let next_ns = since_start_ns.saturating_add(interval_ns);
            let test = self.test;
            for expected in &test.alerts {
                if since_start_ns <= expected.time_ns && expected.time_ns < next_ns {
                    self.check_alerts(expected);
                }
            }
            since_start_ns = next_ns;
        }
        true
    }

    fn evaluate_at(&mut self, since_start_ns: i64) -> bool {
        let time_ns = self.test.start_ns.saturating_add(since_start_ns);
        if let Err(error) = self.load_samples(time_ns) {
            self.fail(None, error);
            return false;
        }
        let mut errors = Vec::new();
        for group in &mut self.groups {
            let is_own = group.rules().iter().any(|rule| rule.rule().condition().is_some());
            let source: &dyn Source = match &self.server_series {
                Some(series) if is_own => series,
                _ => &self.series,
            };
            let evaluator = SourceEvaluator {
                source,
                settings: &self.settings,
                options: *self.options,
                context: &|| false,
            };
            let inputs = IterationInputs {
                evaluator: &evaluator,
                templates: &self.test.templates,
                resend_delay_ns: 0,
            };
            let result = group.evaluate(time_ns, &inputs);
            for write in result.writes {
                if let Some(series) = &mut self.server_series {
                    series.record(&write.labels, write.time_ns, write.value.clone());
                }
                self.series.push(&write.labels, write.time_ns, write.value);
            }
            for rule in group.rules() {
                if let RuleHealth::Err(cause) = rule.health() {
                    let (name, at) = (&rule.rule().name, duration_text(since_start_ns));
                    let hint = if cause.contains("has no unit") { UNIT_HINT } else { "" };
                    errors.push(format!("cannot evaluate rule {name:?} at {at}: {cause}{hint}"));
                }
            }
        }
        let is_ok = errors.is_empty();
        errors.into_iter().for_each(|error| self.fail(None, error));
        is_ok
    }

    /// Makes the samples up to a time visible. The error is that of a sample that own rules cannot
    /// read.
    fn load_samples(&mut self, time_ns: i64) -> Result<(), String> {
        let from = self.loaded_to_ns.replace(time_ns);
        for (labels, items) in &self.test.series {
            // Samples before `from` are visible already.
            let known_ns = from.map_or(0, |from| from.saturating_sub(self.test.start_ns));
            let first = known_ns / self.test.interval_ns;
            let first = usize::try_from(first).unwrap_or(usize::MAX);
            for (index, item) in items.iter().enumerate().skip(first) {
                let offset_ns = self.test.interval_ns.saturating_mul(index as i64);
                let sample_ns = self.test.start_ns.saturating_add(offset_ns);
                if sample_ns > time_ns {
                    break;
                }
                if let Some(value) = item {
                    if let Some(series) = &mut self.server_series {
                        series.receive(labels, sample_ns, value.value.clone())?;
                    }
                    self.series.push(labels, sample_ns, value.value.clone());
                }
            }
        }
        Ok(())
    }

    fn check_alerts(&mut self, expected: &AlertExpectation) {
        let name = &expected.alert;
        let rules = self.groups.iter().flat_map(|group| group.rules());
        let of_name = rules.filter(|rule| rule.rule().name == *name);
        let of_name: Vec<_> = of_name.filter(|it| it.rule().alert_settings().is_some()).collect();
        let found = of_name.iter().flat_map(|rule| rule.alerts().alerts());
        let difference = compare_alerts(name, found, &expected.alerts, self.file.is_fuzzy);
        let Some(difference) = difference else { return };
        let hint = match difference.is_empty {
            true => of_name.iter().map(|rule| self.bucket_hint(rule.rule())).collect(),
            false => String::new(),
        };
        let at = duration_text(expected.time_ns);
        let message = format!("alert {name:?} at {at}: {}{hint}", difference.text);
        self.fail(Some(expected.position), message);
    }

    fn check_expressions(&mut self) {
        let test = self.test;
        for expected in &test.expressions {
            let evaluator = SourceEvaluator {
                source: &self.series,
                settings: &self.settings,
                options: *self.options,
                context: &|| false,
            };
            let (text, at) = (&expected.expression, duration_text(expected.time_ns));
            let time_ns = test.start_ns.saturating_add(expected.time_ns);
            let found = evaluator.instant_over(&SampleOverlay::default(), text, time_ns);
            let message = match found {
                Err(error) => format!("cannot evaluate {text:?} at {at}: {error}"),
                Ok(found) => match self.difference(found, expected) {
                    None => continue,
                    Some(difference) => format!("expression {text:?} at {at}: {difference}"),
                },
            };
            self.fail(Some(expected.position), message);
        }
    }

    fn difference(
        &self,
        mut found: Vec<RuleSample>,
        expected: &ExpressionExpectation,
    ) -> Option<String> {
        model::sort::by(&mut found, |a, b| a.labels.cmp(&b.labels));
        let wanted = expected.samples.iter().map(|(labels, sample)| RuleSample {
            labels: labels.clone(),
            value: sample.value.clone(),
        });
        let mut wanted: Vec<RuleSample> = wanted.collect();
        model::sort::by(&mut wanted, |a, b| a.labels.cmp(&b.labels));
        let equals = |(found, wanted): (&RuleSample, &RuleSample)| {
            found.labels == wanted.labels && self.equal_values(&found.value, &wanted.value)
        };
        let is_equal = found.len() == wanted.len() && found.iter().zip(&wanted).all(equals);
        let text = || {
            let hint = match found.is_empty() {
                true => self.unread_buckets(&expected.expression),
                false => String::new(),
            };
            format!("found {}, expected {}{hint}", show_samples(&found), show_samples(&wanted))
        };
        (!is_equal).then(text)
    }

    /// Own rules read buckets by the name of the histogram.
    fn bucket_hint(&self, rule: &Rule) -> String {
        match rule.condition() {
            None => self.unread_buckets(&rule.expression),
            Some(_) => String::new(),
        }
    }

    /// Functions of Prometheus do not read buckets by the name of the histogram.
    fn unread_buckets(&self, expression: &str) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        let is_read = |name: &str| expression.split(|c: char| !is_name(c)).any(|word| word == name);
        let names = || self.test.series.iter().map(|(labels, _)| labels.name());
        let buckets = names().filter_map(|name| name.strip_suffix("_bucket"));
        let mut unread = buckets.filter(|base| is_read(base) && !names().any(|name| name == *base));
        match unread.next() {
            Some(base) => format!(
                "; the test has {base}_bucket and no histogram {base}, as which only \
                 exact_increase and exact_rate read such buckets: use these, or read {base}_bucket"
            ),
            None => String::new(),
        }
    }

    fn equal_values(&self, found: &StepValue, wanted: &StepValue) -> bool {
        if let (Some(found), Some(wanted)) = (found.number(), wanted.number()) {
            let is_near = found.next_up() == wanted || found.next_down() == wanted;
            return found == wanted || (self.file.is_fuzzy && is_near);
        }
        match (found.histogram(), wanted.histogram()) {
            (Some(found), Some(wanted)) => found.equals(&wanted),
            _ => false,
        }
    }
}

/// Whether the rules of a group are own rules.
fn is_own(group: &RuleGroup) -> bool {
    group.rules.iter().any(|rule| rule.condition().is_some())
}

fn show_samples(samples: &[RuleSample]) -> String {
    let shown: Vec<String> = samples
        .iter()
        .map(|sample| match sample.value.number() {
            Some(number) => format!("{} {number}", sample.labels),
            None => format!("{} {:?}", sample.labels, sample.value),
        })
        .collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}
