//! Test files of promtool: what passes, and what a failure says.

use expect_test::{Expect, expect};
use query::promql;
use rules::{parse_rule_file, parse_rule_test_file, run_rule_tests};

const RULES: &str = "groups:
- name: base
  rules:
  - record: job:up:sum
    expr: sum by (job) (up)
- name: alerts
  rules:
  - alert: Down
    expr: job:up:sum == 0
    for: 5m
    labels: {severity: page}
    annotations: {summary: \"{{ $labels.job }} is down\"}
";

/// Problems of the file, or failures of its tests.
#[track_caller]
fn check(rules: &str, tests: &str, expected: Expect) {
    check_files(&[("rules.yml", rules)], tests, expected);
}

/// The same with rule files by name.
#[track_caller]
pub(crate) fn check_files(rule_files: &[(&str, &str)], tests: &str, expected: Expect) {
    let (file, problems) = parse_rule_test_file("test.yml", tests);
    let mut shown: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    if problems.is_empty() {
        let options = promql::Options::default();
        let parse = |(name, text): &(&str, &str)| parse_rule_file(name, text, &options);
        let rule_files: Vec<_> = rule_files.iter().map(parse).collect();
        for failure in run_rule_tests(&file, &rule_files, &options, &|_| true) {
            let position = failure.position.map_or(String::new(), |at| format!("{at}: "));
            shown.push_str(&format!("{}: {position}{}\n", failure.test, failure.message));
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn alerts_and_expressions_are_compared() {
    let tests = "rule_files: [rules.yml]
evaluation_interval: 1m
group_eval_order: [base, alerts]
tests:
- name: down
  interval: 1m
  input_series:
  - series: up{job=\"a\",instance=\"x\"}
    values: 1x3 0x20
  - series: h
    values: \"{{sum:3 count:2 buckets:[2]}}x2 _ stale\"
  alert_rule_test:
  - eval_time: 8m30s
    alertname: Down
  - eval_time: 9m
    alertname: Down
    exp_alerts:
    - exp_labels: {job: a, severity: page}
      exp_annotations: {summary: a is down}
  promql_expr_test:
  - expr: job:up:sum
    eval_time: 3m
    exp_samples:
    - labels: job:up:sum{job=\"a\"}
      value: 1
  - expr: count_over_time(up[3m:]) + scalar(vector(1))
    eval_time: 3m
    exp_samples:
    - labels: '{job=\"a\",instance=\"x\"}'
      value: 4
  - expr: h
    eval_time: 2m
    exp_samples:
    - labels: h
      histogram: \"{{sum:3 count:2 buckets:[2]}}\"
  - expr: h
    eval_time: 4m
  - expr: ALERTS
    eval_time: 4m
    exp_samples:
    - labels: ALERTS{alertname=\"Down\",alertstate=\"pending\",job=\"a\",severity=\"page\"}
      value: 1
  - expr: time()
    eval_time: 1m
    exp_samples: [{value: 60}]
";
    check(RULES, tests, expect![[""]]);
}

/// A test of a rule over a classic histogram found nothing, while the server found it firing.
#[test]
fn buckets_are_the_histogram_for_exact_functions_as_on_the_server() {
    let rules = "groups:
- name: slow
  rules:
  - alert: Slow
    expr: histogram_count_above(250ms, sum by (job) (exact_increase(x_seconds[5m]))) > 40
  - record: x:mean
    expr: histogram_avg(exact_increase(x_seconds{job=\"a\"}[5m]))
";
    let tests = "rule_files: [rules.yml]
evaluation_interval: 1m
tests:
- name: classic
  interval: 1m
  input_series:
  - series: x_seconds_bucket{job=\"a\",le=\"0.25\"}
    values: 7+90x10 90+90x5
  - series: x_seconds_bucket{job=\"a\",le=\"1\"}
    values: 7+98x10 98+98x5
  - series: x_seconds_bucket{job=\"a\",le=\"+Inf\"}
    values: 7+100x10 100+100x5
  - series: x_seconds_sum{job=\"a\"}
    values: 1+25x10 25+25x5
  - series: x_seconds_count{job=\"a\"}
    values: 7+100x10 100+100x5
  - series: y_bucket{le=\"1\"}
    values: 0+10x20
  - series: y_bucket{le=\"2\"}
    values: _x10 0+20x10
  - series: y_count
    values: 0+20x20
  alert_rule_test:
  - eval_time: 10m
    alertname: Slow
    exp_alerts:
    - exp_labels: {job: a}
  - eval_time: 4m
    alertname: Slow
  promql_expr_test:
  - expr: histogram_count(sum(exact_increase(x_seconds[5m])))
    eval_time: 10m
    exp_samples: [{value: 500}]
  - expr: histogram_count(sum(exact_increase(x_seconds[5m])))
    eval_time: 13m
    exp_samples: [{value: 500}]
  - expr: x:mean
    eval_time: 10m
    exp_samples: [{labels: 'x:mean{job=\"a\"}', value: 0.25}]
  - expr: histogram_count(exact_increase(y[20m]))
    eval_time: 20m
    exp_samples: [{labels: '{}', value: 380}]
  - expr: exact_increase(x_seconds{job=\"b\"}[5m])
    eval_time: 10m
";
    check(rules, tests, expect![[""]]);
}

#[test]
fn a_failure_says_what_was_found() {
    let tests = "rule_files: [rules.yml]
tests:
- name: down
  input_series:
  - series: up{job=\"a\"}
    values: 0x20
  alert_rule_test:
  - eval_time: 4m
    alertname: Down
    exp_alerts: [{}]
  - eval_time: 5m
    alertname: Down
  promql_expr_test:
  - expr: up
    eval_time: 0
    exp_samples: [{labels: up, value: 1}]
  - expr: rate(up)
    eval_time: 0
";
    check(
        RULES,
        tests,
        expect![[r#"
            down: 8:5: alert "Down" at 4 min: found none, expected {alertname="Down"}
            down: 11:5: alert "Down" at 5 min: found {alertname="Down", job="a", severity="page"} summary="a is down", expected none
            down: 14:5: expression "up" at 0 s: found up{job="a"} 0, expected up 1
            down: 17:5: cannot evaluate "rate(up)" at 0 s: expected type range vector in call to function "rate", got instant vector
        "#]],
    );
}

#[test]
fn floats_are_compared_exactly_unless_the_file_says_fuzzy() {
    let tests = "tests:
- promql_expr_test:
  - expr: vector(3.0000000000000004)
    exp_samples: [{value: 3}]
";
    check(
        "",
        tests,
        expect![[r#"
        unnamed#0: 3:5: expression "vector(3.0000000000000004)" at 0 s: found {} 3.0000000000000004, expected {} 3
    "#]],
    );
    check("", &format!("fuzzy_compare: true\n{tests}"), expect![[""]]);
}

#[test]
fn a_rule_that_fails_ends_the_test() {
    let rules = "groups:
- name: g
  rules:
  - record: r
    expr: label_replace(up, \"job\", \"\", \"\", \"\")
    labels: {instance: \"\"}
";
    let tests = "tests:
- input_series:
  - {series: 'up{instance=\"a\"}', values: 1}
  - {series: 'up{instance=\"b\"}', values: 1}
  promql_expr_test: [{expr: up, eval_time: 0}]
";
    check(
        rules,
        tests,
        expect![[r#"
        unnamed#0: cannot evaluate rule "r" at 0 s: cannot record series: two elements of the result have the labels r
    "#]],
    );
}

#[test]
fn time_starts_where_the_test_says() {
    let tests = "tests:
- start_timestamp: \"2024-01-01T00:00:00Z\"
  input_series: [{series: m, values: 10+10x3}]
  promql_expr_test:
  - {expr: time(), eval_time: 5m, exp_samples: [{value: 1704067500}]}
  - {expr: m, eval_time: 1m, exp_samples: [{labels: m, value: 20}]}
- start_timestamp: 1609459200
  promql_expr_test:
  - {expr: time(), eval_time: 10m, exp_samples: [{value: 1609459800}]}
";
    check("", tests, expect![[""]]);
}

#[test]
fn mistakes_of_a_test_file_are_located() {
    let tests = "rule_file: [rules.yml]
fuzzy_compare: maybe
group_eval_order: [a, a]
tests:
- start_timestamp: now
  input_series:
  - series: up{
    values: 1
  alert_rule_test:
  - eval_time: soon
  promql_expr_test:
  - expr: up
    exp_samples: [{labels: up, value: many}]
";
    check(
        RULES,
        tests,
        expect![[r#"
        test.yml:1:1: error: unknown key "rule_file"; did you mean "rule_files"?
        test.yml:2:16: error: fuzzy_compare: found "maybe", expected true or false
        test.yml:3:19: error: group_eval_order: group "a" repeated
        test.yml:5:20: error: start_timestamp: expected seconds since 1970 or a date as in RFC 3339
        test.yml:7:13: error: cannot parse series "up{": expected = at ""
        test.yml:10:5: error: alert test without alertname; set it
        test.yml:10:16: error: eval_time: found "soon", expected a duration such as 5m
        test.yml:13:19: error: cannot parse expected sample: error parsing number: strconv.ParseFloat: parsing "many": invalid syntax
    "#]],
    );
}
