//! Parser of test files.

use decode::Quantity;
use query::LabelSet;
use query::StepValue;
use query::notation::{self, NotationItem, NotationValue};
use query::promql::parse_number;

use super::alert_comparison::ExpectedAlert;
use super::{AlertExpectation, ExpressionExpectation, RuleTest, RuleTestFile};
use crate::alert_table::AlertState;
use crate::alert_templates::AlertTemplates;
use crate::rule_file::{ProblemList, RuleProblem};
use crate::yaml::{YamlNode, parse_yaml};
use crate::yaml_fields::Fields;

const SECOND_NS: i64 = 1_000_000_000;
/// Default of `evaluation_interval`, as in promtool.
const INTERVAL_DEFAULT_NS: i64 = 60 * SECOND_NS;

/// Parses a test file. It is usable if there are no problems.
pub fn parse_rule_test_file(file: &str, text: &str) -> (RuleTestFile, Vec<RuleProblem>) {
    let mut problems = ProblemList::new(file);
    let found = match parse_yaml(text) {
        Ok((root, _)) => parse_file(&root, &mut problems),
        Err(error) => {
            problems.error(error.position, error.message);
            None
        }
    };
    (found.unwrap_or_default(), problems.into_sorted())
}

fn parse_file(root: &YamlNode, problems: &mut ProblemList) -> Option<RuleTestFile> {
    let keys = ["rule_files", "evaluation_interval", "group_eval_order", "fuzzy_compare", "tests"];
    let fields = Fields::read(problems, root, "test file", &keys)?;
    let interval_ns = fields.duration(problems, "evaluation_interval").unwrap_or(0);
    let evaluation_interval_ns = if interval_ns > 0 { interval_ns } else { INTERVAL_DEFAULT_NS };
    let fuzzy =
        parse_key(&fields, problems, "fuzzy_compare", "true or false", |text| text.parse().ok());
    let is_fuzzy = fuzzy.unwrap_or(false);
    let group_order = fields.texts(problems, "group_eval_order");
    for (index, name) in group_order.iter().enumerate() {
        if group_order[..index].contains(name) {
            let message = format!("group_eval_order: group {name:?} repeated");
            problems.error(fields.value_position("group_eval_order"), message);
        }
    }
    let rule_files = fields.texts(problems, "rule_files");
    let mut tests = Vec::new();
    for (index, node) in fields.list(problems, "tests").iter().enumerate() {
        tests.extend(parse_test(node, index, evaluation_interval_ns, problems));
    }
    Some(RuleTestFile { rule_files, evaluation_interval_ns, is_fuzzy, group_order, tests })
}

fn parse_test(
    node: &YamlNode,
    index: usize,
    evaluation_interval_ns: i64,
    problems: &mut ProblemList,
) -> Option<RuleTest> {
    let keys = [
        "name",
        "interval",
        "start_timestamp",
        "input_series",
        "alert_rule_test",
        "promql_expr_test",
        "external_labels",
        "external_url",
    ];
    let fields = Fields::read(problems, node, "test", &keys)?;
    let name = fields.text(problems, "name").filter(|name| !name.is_empty());
    let interval_ns = fields.duration(problems, "interval").filter(|&interval| interval > 0);
    let start_ns = fields.text(problems, "start_timestamp").map(|text| parse_time(&text));
    let start_ns = start_ns.unwrap_or(Some(0)).unwrap_or_else(|| {
        let message = "start_timestamp: expected seconds since 1970 or a date as in RFC 3339";
        problems.error(fields.value_position("start_timestamp"), message);
        0
    });
    let mut test = RuleTest {
        name: name.unwrap_or_else(|| format!("unnamed#{index}")),
        interval_ns: interval_ns.unwrap_or(evaluation_interval_ns),
        start_ns,
        templates: AlertTemplates {
            external_labels: fields.labels(problems, "external_labels", "label"),
            external_url: fields.text(problems, "external_url").unwrap_or_default(),
        },
        ..RuleTest::default()
    };
    for node in fields.list(problems, "input_series") {
        test.series.extend(parse_series(node, problems));
    }
    for node in fields.list(problems, "alert_rule_test") {
        test.alerts.extend(parse_alert_test(node, problems));
    }
    for node in fields.list(problems, "promql_expr_test") {
        test.expressions.extend(parse_expression_test(node, problems));
    }
    Some(test)
}

/// Nanoseconds since the Unix epoch.
fn parse_time(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Some((seconds * 1e3).round() as i64 * 1_000_000);
    }
    let time: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

fn parse_series(
    node: &YamlNode,
    problems: &mut ProblemList,
) -> Option<(LabelSet, Vec<NotationItem>)> {
    let fields = Fields::read(problems, node, "series", &["series", "values"])?;
    let series = fields.text(problems, "series").unwrap_or_default();
    let values = fields.text(problems, "values").unwrap_or_default();
    match notation::series(&format!("{series} {values}")) {
        Ok(found) => Some(found),
        Err(cause) => {
            let message = format!("cannot parse series {series:?}: {cause}");
            problems.error(fields.value_position("series"), message);
            None
        }
    }
}

fn parse_alert_test(node: &YamlNode, problems: &mut ProblemList) -> Option<AlertExpectation> {
    let keys = ["eval_time", "alertname", "exp_alerts"];
    let fields = Fields::read(problems, node, "alert test", &keys)?;
    let alert = fields.text(problems, "alertname").unwrap_or_default();
    if alert.is_empty() {
        problems.error(node.position, "alert test without alertname; set it");
    }
    let time_ns = fields.duration(problems, "eval_time").unwrap_or(0);
    let nodes = fields.list(problems, "exp_alerts");
    let alerts = nodes.iter().filter_map(|node| parse_expected_alert(node, problems)).collect();
    Some(AlertExpectation { position: node.position, time_ns, alert, alerts })
}

fn parse_expected_alert(node: &YamlNode, problems: &mut ProblemList) -> Option<ExpectedAlert> {
    let keys =
        ["exp_labels", "exp_annotations", "exp_state", "exp_severity", "exp_value", "exp_unknown"];
    let fields = Fields::read(problems, node, "expected alert", &keys)?;
    let annotations = fields.labels(problems, "exp_annotations", "annotation");
    Some(ExpectedAlert {
        labels: fields.labels(problems, "exp_labels", "label"),
        annotations: fields.has("exp_annotations").then_some(annotations),
        state: parse_key(&fields, problems, "exp_state", "firing or pending", |text| match text {
            "firing" => Some(AlertState::Firing),
            "pending" => Some(AlertState::Pending),
            _ => None,
        })
        .unwrap_or(AlertState::Firing),
        severity: parse_key(&fields, problems, "exp_severity", "1 (worst) to 5", |text| {
            text.parse().ok().filter(|severity: &u8| (1..=5).contains(severity))
        }),
        value: parse_key(
            &fields,
            problems,
            "exp_value",
            "a number, with or without a unit",
            Quantity::parse,
        ),
        is_unknown: parse_key(&fields, problems, "exp_unknown", "true or false", |text| {
            text.parse().ok()
        }),
    })
}

/// Value of a key with a syntax of its own.
fn parse_key<T>(
    fields: &Fields<'_>,
    problems: &mut ProblemList,
    key: &str,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let text = fields.text(problems, key)?;
    let parsed = parse(&text);
    if parsed.is_none() {
        let message = format!("{key}: found {text:?}, expected {expected}");
        problems.error(fields.value_position(key), message);
    }
    parsed
}

fn parse_expression_test(
    node: &YamlNode,
    problems: &mut ProblemList,
) -> Option<ExpressionExpectation> {
    let keys = ["expr", "eval_time", "exp_samples"];
    let fields = Fields::read(problems, node, "expression test", &keys)?;
    let expression = fields.text(problems, "expr").unwrap_or_default();
    let time_ns = fields.duration(problems, "eval_time").unwrap_or(0);
    let mut samples = Vec::new();
    for node in fields.list(problems, "exp_samples") {
        let keys = ["labels", "value", "histogram"];
        let expected = Fields::read(problems, node, "expected sample", &keys)?;
        let labels = expected.text(problems, "labels").unwrap_or_default();
        match parse_sample(&labels, &expected, problems) {
            Ok(sample) => samples.push(sample),
            Err(cause) => {
                problems.error(node.position, format!("cannot parse expected sample: {cause}"));
            }
        }
    }
    Some(ExpressionExpectation { position: node.position, time_ns, expression, samples })
}

fn parse_sample(
    labels: &str,
    fields: &Fields<'_>,
    problems: &mut ProblemList,
) -> Result<(LabelSet, NotationValue), String> {
    let labels = match labels.trim() {
        "" => LabelSet::default(),
        labels => match notation::metric(labels)? {
            (labels, "") => labels,
            (_, rest) => return Err(format!("found {rest:?} after the labels")),
        },
    };
    let value = match fields.text(problems, "histogram").filter(|text| !text.is_empty()) {
        Some(histogram) => {
            let (_, mut items) = notation::series(&format!("{{}} {histogram}"))?;
            match (items.pop().flatten(), items.is_empty()) {
                (Some(value), true) if value.value.is_distribution() => value,
                _ => return Err(format!("{histogram:?} is not one histogram")),
            }
        }
        None => {
            let text = fields.text(problems, "value").unwrap_or_else(|| "0".to_owned());
            // YAML writes infinity and not-a-number with a dot.
            let number = parse_number(&text.replacen(".inf", "inf", 1).replacen(".nan", "nan", 1))?;
            NotationValue { value: StepValue::Number(number), has_hint: false }
        }
    };
    Ok((labels, value))
}
