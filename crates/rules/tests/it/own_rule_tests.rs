//! Test files of own rules: distributions, counters and gauges as a server stores them.

use expect_test::{Expect, expect};

use crate::rule_tests::check_files;

const RULES: &str = "
interval = '10s'
[[rule]]
name = 'CheckoutSlow'
select = 'latency_seconds{endpoint=\"checkout\"}'
by = ['zone']
window = '5min'
min_count = 100
for = '2min'
note = 'Restart {{ $labels.zone }}.'
labels = { team = 'shop' }
[[rule.criteria]]
severity = 1
count_above = '1s'
at_least = 500
[[rule.criteria]]
severity = 3
quantile = 0.9
above = '250ms'

[[rule]]
name = 'CheckoutFailed'
select = 'errors_total'
window = '1min'
absence = { after = '3min', severity = 4 }
[[rule.criteria]]
severity = 2
statistic = 'count'
above = 0

[[rule]]
name = 'Both'
formula = 'CheckoutSlow and CheckoutFailed'
severity = 1
";

#[track_caller]
fn check(rules: &str, tests: &str, expected: Expect) {
    let tests = format!("rule_files: [rules.toml]\nevaluation_interval: 1m\ntests:\n{tests}");
    check_files(&[("rules.toml", rules)], &tests, expected);
}

/// 100 requests a minute: all are below 250 ms, then 60 are above 1 s from minute 5 on.
const BUCKETS: &str =
    "  - series: latency_seconds_bucket{endpoint=\"checkout\",zone=\"eu\",le=\"0.25\"}
    values: 0+100x5 540+40x9
  - series: latency_seconds_bucket{endpoint=\"checkout\",zone=\"eu\",le=\"1\"}
    values: 0+100x5 540+40x9
  - series: latency_seconds_bucket{endpoint=\"checkout\",zone=\"eu\",le=\"+Inf\"}
    values: 0+100x15
";

#[test]
fn criteria_states_severities_and_values_of_buckets_are_compared() {
    let tests = format!(
        "- name: slow
  input_series:
{BUCKETS}  - series: errors_total
    values: 7x8 9x10
  alert_rule_test:
  - {{eval_time: 5m, alertname: CheckoutSlow}}
  - eval_time: 7m
    alertname: CheckoutSlow
    exp_alerts:
    - exp_labels: {{zone: eu, team: shop}}
      exp_state: pending
      exp_severity: 3
  - eval_time: 9m
    alertname: CheckoutSlow
    exp_alerts:
    - {{exp_labels: {{zone: eu, team: shop}}, exp_severity: 3, exp_unknown: false}}
  - eval_time: 15m
    alertname: CheckoutSlow
    exp_alerts:
    - exp_labels: {{zone: eu, team: shop}}
      exp_annotations: {{note: Restart eu.}}
      exp_severity: 3
      exp_value: 1200ms
  - {{eval_time: 8m, alertname: CheckoutFailed}}
  - eval_time: 9m
    alertname: CheckoutFailed
    exp_alerts: [{{exp_severity: 2, exp_value: 2}}]
  - eval_time: 9m
    alertname: Both
    exp_alerts: [{{}}]
  - {{eval_time: 10m, alertname: CheckoutFailed}}
  promql_expr_test:
  - expr: count(ALERTS{{alertname=\"CheckoutSlow\",alertstate=\"firing\"}})
    eval_time: 15m
    exp_samples: [{{value: 1}}]
"
    );
    check(RULES, &tests, expect![[""]]);
}

/// A native histogram is cumulative, as in remote write; `reset` begins anew.
#[test]
fn native_histograms_are_distributions_of_their_increases() {
    let rules = "
[[rule]]
name = 'Slow'
select = 'took_seconds'
by = []
window = '2min'
absence = false
[[rule.criteria]]
severity = 2
share_above = '2s'
above = '40%'

[[rule]]
name = 'Sum'
select = 'took_seconds'
window = '1min'
absence = false
[[rule.criteria]]
severity = 2
statistic = 'mean'
above = '1s'
";
    let histogram = |count: u32, sum: u32, slow: u32| {
        let fast = count - slow;
        format!("{{{{schema:0 count:{count} sum:{sum} buckets:[0 {fast} {slow}]}}}}")
    };
    // Buckets (0.5, 1], (1, 2] and (2, 4].
    let values = [
        histogram(1000, 1500, 0),
        histogram(1010, 1530, 5),
        "_".to_owned(),
        histogram(10, 30, 10),
        "stale".to_owned(),
    ];
    let tests = format!(
        "- input_series:
  - series: took_seconds{{job=\"a\"}}
    values: \"{}\"
  alert_rule_test:
  - {{eval_time: 0, alertname: Slow}}
  - eval_time: 1m
    alertname: Slow
    exp_alerts: [{{exp_severity: 2, exp_value: 0.5}}]
  - eval_time: 1m
    alertname: Sum
    exp_alerts: [{{exp_labels: {{job: a}}, exp_value: 3}}]
  - eval_time: 3m
    alertname: Slow
    exp_alerts: [{{exp_value: 1}}]
  - eval_time: 6m
    alertname: Slow
    exp_alerts: [{{exp_value: 1, exp_unknown: true}}]
",
        values.join(" ")
    );
    check(rules, &tests, expect![[""]]);
}

#[test]
fn streams_that_stop_are_absent_and_their_alerts_unknown() {
    let tests = format!(
        "- name: silent
  input_series:
{BUCKETS}  - series: errors_total{{job=\"a\"}}
    values: 0x5 3
  - series: errors_total{{job=\"b\"}}
    values: 0x30
  alert_rule_test:
  - eval_time: 8m
    alertname: CheckoutFailed
    exp_alerts:
    - {{exp_labels: {{job: a}}, exp_unknown: true}}
  - eval_time: 9m
    alertname: CheckoutFailed
    exp_alerts:
    - {{exp_labels: {{job: a}}, exp_unknown: true}}
    - exp_labels: {{absence: \"true\"}}
      exp_annotations: {{absent: \"1 of 2 streams have no data, such as {{job=\\\"a\\\"}}, for \
     more than 3 min: the last at 1970-01-01 00:06:00Z\"}}
      exp_severity: 4
      exp_value: 1
  - eval_time: 22m
    alertname: CheckoutSlow
    exp_alerts:
    - {{exp_labels: {{zone: eu, team: shop}}, exp_unknown: true}}
    - {{exp_labels: {{absence: \"true\", team: shop}}, exp_severity: 3}}
"
    );
    check(RULES, &tests, expect![[""]]);
}

#[test]
fn kinds_and_units_are_those_of_the_name_or_of_the_labels_of_prometheus() {
    let rules = "
[[rule]]
name = 'Queries'
promql = 'sum(increase(queries[2m]))'
[[rule.criteria]]
severity = 2
above = 0

[[rule]]
name = 'Wait'
select = 'wait'
window = '1min'
absence = false
[[rule.criteria]]
severity = 2
statistic = 'value'
above = '1s'

[[rule]]
name = 'Count'
select = 'queries'
window = '1min'
absence = false
[[rule.criteria]]
severity = 2
statistic = 'count'
at_least = 30
";
    let tests = "- input_series:
  - {series: 'wait{__unit__=\"ms\"}', values: 500x3 1500}
  - {series: 'queries{__type__=\"counter\"}', values: 0+30x4}
  alert_rule_test:
  - {eval_time: 3m, alertname: Wait}
  - {eval_time: 4m, alertname: Wait, exp_alerts: [{exp_value: 1.5s}]}
  - {eval_time: 4m, alertname: Count, exp_alerts: [{exp_value: 30}]}
  - {eval_time: 4m, alertname: Queries, exp_alerts: [{exp_value: 60}]}
";
    check(rules, tests, expect![[""]]);
}

#[test]
fn a_failure_says_expected_and_actual() {
    let tests = format!(
        "- name: slow
  input_series:
{BUCKETS}  alert_rule_test:
  - eval_time: 15m
    alertname: CheckoutSlow
    exp_alerts:
    - exp_labels: {{zone: eu, team: shop}}
      exp_annotations: {{note: other}}
      exp_state: pending
      exp_severity: 1
      exp_value: 3
      exp_unknown: true
  - eval_time: 15m
    alertname: CheckoutSlow
    exp_alerts: [{{exp_labels: {{zone: eu, team: shop}}, exp_value: 0.2}}]
  - {{eval_time: 15m, alertname: CheckoutFailed, exp_alerts: [{{exp_severity: 2}}]}}
"
    );
    check(
        RULES,
        &tests,
        expect![[r#"
        slow: 13:5: alert "CheckoutSlow" at 15 min: found {alertname="CheckoutSlow", team="shop", zone="eu"} note="Restart eu." (firing, severity 3, value 1.0000000000000002 s [1.0000000000000002, inf]), expected {alertname="CheckoutSlow", team="shop", zone="eu"} note="other" (pending, severity 1, value 3, unknown)
        slow: 22:5: alert "CheckoutSlow" at 15 min: found {alertname="CheckoutSlow", team="shop", zone="eu"} note="Restart eu." (firing, severity 3, value 1.0000000000000002 s [1.0000000000000002, inf]), expected {alertname="CheckoutSlow", team="shop", zone="eu"} (value 0.2)
        slow: 25:5: alert "CheckoutFailed" at 15 min: found none, expected {alertname="CheckoutFailed"} (severity 2)
    "#]],
    );
}

#[test]
fn what_own_rules_cannot_read_ends_the_test() {
    let rules = |threshold: &str| {
        format!(
            "[[rule]]\nname = 'Slow'\nselect = 'x'\n[[rule.criteria]]\nseverity = 2\n\
             statistic = 'max'\nabove = {threshold}\n"
        )
    };
    let tests = "- input_series: [{series: x, values: 1}]\n  \
                 promql_expr_test: [{expr: x, exp_samples: [{labels: x, value: 1}]}]\n";
    check(
        &rules("'1s'"),
        tests,
        expect![[r#"
        unnamed#0: cannot evaluate rule "Slow" at 0 s: stream {}: cannot compare with 1 s: the stream has no unit; write a number; in a test, the unit is that of the name (x_seconds) or of the label __unit__ (x{__unit__="ms"})
    "#]],
    );
    let tests = "- input_series: [{series: x, values: '{{count:1.5 buckets:[1.5]}}'}]\n  \
                 promql_expr_test: [{expr: count(x), exp_samples: [{value: 1}]}]\n";
    check(
        &rules("1"),
        tests,
        expect![[r#"
        unnamed#0: cannot read histogram x: found count 1.5, expected a whole number
    "#]],
    );
    let tests = "- input_series: [{series: x, values: '{{count:2 buckets:[1]}}'}]\n  \
                 promql_expr_test: [{expr: count(x), exp_samples: [{value: 1}]}]\n";
    check(
        &rules("1"),
        tests,
        expect![[r#"
        unnamed#0: cannot read histogram x: its count is 2, and that of its buckets 1
    "#]],
    );
    check(
        "[[rule]]\nname = 'Slow'\n",
        "- {}\n",
        expect![[r#"
        unnamed#0: rules.toml:2:8: error: the rule reads nothing; set select, promql, caql or formula
    "#]],
    );
}

#[test]
fn the_documented_test_passes() {
    let page = include_str!("../../../../docs/rules.md");
    let block = |language: &str, word: &str| {
        let fence = format!("```{language}\n");
        let mut blocks = page.split(&fence).skip(1).filter_map(|text| text.split("```").next());
        blocks.find(|block| block.contains(word)).expect("a block of the page")
    };
    let (rules, tests) = (block("toml", "CheckoutSlow"), block("yaml", "exp_severity"));
    check_files(&[("rules/shop.toml", rules)], tests, expect![[""]]);
    let wrong = tests.replace("exp_severity: 3", "exp_severity: 1");
    check_files(
        &[("rules/shop.toml", rules)],
        &wrong,
        expect![[r#"
        checkout is slow from minute 5 on: 20:5: alert "CheckoutSlow" at 9 min: found {alertname="CheckoutSlow", team="shop", zone="eu"} note="Restart the cart service in eu." runbook_url="https://wiki.example/checkout" (firing, severity 3, value 3.9502074688796682 s [2.0000000000000004, 4]), expected {alertname="CheckoutSlow", team="shop", zone="eu"} (severity 1)
    "#]],
    );
}

#[test]
fn mistakes_of_expected_alerts_are_located() {
    let tests = "- alert_rule_test:
  - alertname: A
    exp_alerts:
    - {exp_state: red, exp_severity: 6, exp_value: much, exp_unknown: maybe, exp_severty: 2}
";
    check(
        RULES,
        tests,
        expect![[r#"
        test.yml:7:19: error: exp_state: found "red", expected firing or pending
        test.yml:7:38: error: exp_severity: found "6", expected 1 (worst) to 5
        test.yml:7:52: error: exp_value: found "much", expected a number, with or without a unit
        test.yml:7:71: error: exp_unknown: found "maybe", expected true or false
        test.yml:7:78: error: unknown key "exp_severty"; did you mean "exp_severity"?
    "#]],
    );
}
