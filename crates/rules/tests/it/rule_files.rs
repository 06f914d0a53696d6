//! Problems of rule files: where they are, what they are, and what remains usable.

use expect_test::{Expect, expect};
use rules::{MissingData, RuleKind};

use crate::harness::{parse, with_rules};

/// Problems, and the names of the usable rules.
#[track_caller]
fn check(text: &str, expected: Expect) {
    let file = parse(text);
    let mut shown: String = file.problems.iter().map(|problem| format!("{problem}\n")).collect();
    for group in &file.groups {
        let names: Vec<_> = group.rules.iter().map(|rule| rule.name.as_str()).collect();
        shown.push_str(&format!("{}: {}\n", group.name, names.join(", ")));
    }
    expected.assert_eq(&shown);
}

#[test]
fn every_key_of_a_group_and_a_rule_is_read() {
    let text = "groups:
- name: g
  interval: 1m30s
  limit: 7
  query_offset: 10s
  labels:
    team: ops
    zone: eu
  rules:
  - alert: A
    expr: up == 0
    for: 5m
    keep_firing_for: 10m
    labels: {zone: us}
    annotations:
      summary: down
      topdeck_missing_data: hold
  - {record: r, expr: 1}
";
    let file = parse(text);
    assert_eq!(file.problems, []);
    let group = &file.groups[0];
    let (interval_s, offset_s) = (group.interval_ns.unwrap(), group.query_offset_ns.unwrap());
    assert_eq!((interval_s, offset_s, group.limit), (90_000_000_000, 10_000_000_000, 7));
    let alert = &group.rules[0];
    let settings = alert.alert_settings().unwrap();
    assert_eq!((settings.for_ns, settings.keep_firing_for_ns), (300_000_000_000, 600_000_000_000));
    assert_eq!(settings.missing_data, MissingData::Hold { presence: "up".to_owned() });
    assert_eq!(settings.annotations.len(), 1);
    let labels: Vec<_> =
        alert.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(labels, ["team=ops", "zone=us"]);
    assert_eq!(
        (&group.rules[1].kind, group.rules[1].expression.as_str()),
        (&RuleKind::Recording, "1")
    );
}

#[test]
fn a_bad_rule_leaves_the_others_usable() {
    let text = "groups:
- name: a
  rules:
  - record: one
    expr: 1
  - record: two
    expr: rate(hi)
- name: b
  rules:
  - alert: three
    expr: up == 0
    annotation:
      summary: s
  - alert: four
    expr: up
";
    check(
        text,
        expect![[r#"
        rules.yml:7:11: error: cannot parse expression: line 1, column 6: expected type range vector in call to function "rate", got instant vector
        rules.yml:12:5: error: unknown key "annotation"; did you mean "annotations"?
        a: one
        b: four
    "#]],
    );
}

#[test]
fn names_and_types_are_checked() {
    check(
        "group:\n- name: a\n",
        expect![[r#"
        rules.yml:1:1: error: unknown key "group"; did you mean "groups"?
    "#]],
    );
    check(
        "[]",
        expect![[r#"
        rules.yml:1:1: error: rule file: found a list, expected a mapping
    "#]],
    );
    check(
        "groups:\n  name: a\n",
        expect![[r#"
        rules.yml:2:3: error: groups: found a mapping, expected a list
    "#]],
    );
    check(
        "groups:\n- rules: []\n- interval: 5x\n  limit: many\n  name: b\n- name: c\n- name: c\n",
        expect![[r#"
            rules.yml:2:3: error: group without a name; set name
            rules.yml:3:13: error: interval: found "5x", expected a duration such as 5m
            rules.yml:4:10: error: limit: found "many", expected a whole number
            rules.yml:7:3: error: group "c" repeated; the first one is at 6:3
            c: 
        "#]],
    );
    check("", expect![[""]]);
    check("groups:\n", expect![[""]]);
    check(
        "groups:\n- name: \"a\n",
        expect![[r#"
            rules.yml:2:9: error: invalid YAML: while scanning a quoted scalar, found unexpected end of stream
        "#]],
    );
}

#[test]
fn rules_are_checked_as_by_promtool() {
    let rules = "  - expr: 1
  - record: a
  - record: b
    alert: c
    expr: 1
  - record: d
    expr: 1
    for: 1m
    keep_firing_for: 1m
    annotations: {x: y}
  - record: e{f=\"g\"}
    expr: 1
  - record: h
    expr: 1
    labels:
      __name__: i
  - alert: j
    expr: up
    for: 5
  - alert: k
    expr: up
    labels:
      l: \"{{ $value\"
  - alert: m
    expr: up
    annotations:
      \"\": n
      o: [p]
  - usable
  - record: usable-utf8.name
    expr: 1
";
    check(
        &with_rules(rules),
        expect![[r#"
            rules.yml:5:5: error: rule 1 of group "g" has no name; set record or alert
            rules.yml:6:5: error: rule 2 of group "g" has no expression; set expr
            rules.yml:8:5: error: rule 3 of group "g" has both record and alert; remove one
            rules.yml:12:5: error: rule 4 of group "g" records and cannot have for; remove it
            rules.yml:13:5: error: rule 4 of group "g" records and cannot have keep_firing_for; remove it
            rules.yml:14:5: error: rule 4 of group "g" records and cannot have annotations; remove it
            rules.yml:15:13: error: metric name "e{f=\"g\"}" has braces; move the selector to expr
            rules.yml:20:7: error: invalid label name "__name__"
            rules.yml:23:10: error: for: found "5", expected a duration such as 5m
            rules.yml:27:7: error: cannot parse template of label "l": error parsing template __alert_k: template: __alert_k:1: unclosed action
            rules.yml:31:7: error: invalid annotation name ""
            rules.yml:32:10: error: annotation "o": found a list, expected a text
            rules.yml:33:5: error: rule 10 of group "g": found a text, expected a mapping
            g: usable-utf8.name
        "#]],
    );
}

#[test]
fn duplicate_rules_are_a_warning() {
    let text = "groups:
- name: a
  labels: {x: y}
  rules:
  - record: r
    expr: 1
  - record: r
    expr: 2
    labels: {x: z}
- name: b
  rules:
  - record: r
    expr: 3
    labels: {x: y}
";
    check(
        text,
        expect![[r#"
        rules.yml:12:5: warning: rule "r" has the name and the labels of the rule at 5:5
        a: r, r
        b: r
    "#]],
    );
}

#[test]
fn a_second_document_is_a_warning() {
    check(
        "groups: []\n---\ngroups: []\n",
        expect![[r#"
        rules.yml:2:1: warning: only the first document of the file is used
    "#]],
    );
}

#[test]
fn aliases_are_written_out() {
    let text = "groups:
- name: g
  rules:
  - &a
    alert: A
    expr: up == 0
    labels: &l
      severity: page
  - <<: *a
    alert: B
    labels: *l
";
    check(
        text,
        expect![[r#"
        g: A, B
    "#]],
    );
}

#[test]
fn holding_needs_a_comparison_with_a_number() {
    let rules = "  - alert: a
    expr: absent(up)
    annotations:
      topdeck_missing_data: hold
  - alert: b
    expr: up == 0
    annotations:
      topdeck_missing_data: keep
";
    check(
        &with_rules(rules),
        expect![[r#"
        rules.yml:8:7: error: cannot hold alerts: the expression is not a comparison with a number, so data cannot be told from its absence
        rules.yml:12:7: error: topdeck_missing_data: found "keep", expected "hold" or "resolve"
        g: 
    "#]],
    );
}
