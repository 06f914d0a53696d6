//! Rule files in TOML: what is read, and the problems with line and column.

use hist::Histogram;
use rules::{RuleFile, RuleProblem, parse_rule_file, parse_rule_file_with};

use crate::harness::parse;
use crate::shape_changes::saved;

const GOOD: &str = "[[rule]]\nname = \"Good\"\nselect = \"latency\"\n[[rule.criteria]]\n\
                    severity = 1\nquantile = 0.99\nabove = \"250ms\"\n";

fn names(file: &RuleFile) -> Vec<&str> {
    file.groups.iter().flat_map(|group| &group.rules).map(|rule| rule.name.as_str()).collect()
}

/// Problems of a file with a good rule, which is used in spite of them.
#[track_caller]
fn check(rule: &str, expected: &[&str]) {
    let text = format!("[[rule]]\n{rule}\n{GOOD}");
    let file = parse(&text);
    let problems: Vec<String> = file.problems.iter().map(RuleProblem::to_string).collect();
    let expected: Vec<String> =
        expected.iter().map(|problem| format!("rules.toml:{problem}")).collect();
    assert_eq!(problems, expected, "{text}");
    assert_eq!(names(&file), ["Good"], "{text}");
}

fn bad(criterion: &str) -> String {
    format!("name = \"Bad\"\nselect = \"x\"\n[[rule.criteria]]\n{criterion}")
}

#[test]
fn problems_have_a_position_and_the_other_rules_are_used() {
    check(
        "name = \"Bad\"",
        &["2:8: error: the rule reads nothing; set select, promql, caql or formula"],
    );
    check(
        "name = \"Bad\"\nselekt = \"x\"",
        &["3:1: error: unknown key \"selekt\"; did you mean \"select\"?"],
    );
    check(
        "name = \"Bad\"\nselect = \"x\"",
        &["2:8: error: the rule has no criteria; add [[rule.criteria]]"],
    );
    check(
        "name = \"Bad\"\nselect = \"x{\"\n[[rule.criteria]]\nseverity = 1\nabove = 1",
        &["3:10: error: cannot parse select: column 3: found the end, expected a \
             label name or `}`"],
    );
    check(
        "name = \"Bad\"\nselect = \"x\"\npromql = \"y\"",
        &["4:10: error: found both select and promql; remove one"],
    );
    check(
        "name = \"Bad\"\nselect = \"x\"\nwindow = \"5 parsecs\"",
        &["4:10: error: found \"5 parsecs\", expected a duration in ns, us, ms, s, min, h, d, w \
           or y, such as 30d or 1h30m"],
    );
}

/// One problem was reported per run, then the next one.
#[test]
fn all_problems_of_a_rule_are_reported_at_once() {
    check(
        "name = \"Bad\"\nselect = \"x\"\nmin_cout = 3\nwindow = \"5 parsecs\"\n\
         [[rule.criteria]]\nseverity = 9\nquantil = 0.99\nabove = 1\n\
         [[rule.criteria]]\nseverity = 2\nstatistic = \"rat\"\nabove = 1",
        &[
            "4:1: error: unknown key \"min_cout\"; did you mean \"min_count\"?",
            "5:10: error: found \"5 parsecs\", expected a duration in ns, us, ms, s, min, h, d, w \
             or y, such as 30d or 1h30m",
            "7:12: error: severity: found 9, expected 1 (worst) to 5",
            "8:1: error: unknown key \"quantil\"; did you mean \"quantile\"?",
            "12:13: error: unknown statistic \"rat\"; did you mean \"rate\"?",
        ],
    );
}

/// Each of them costs a copy of the rule.
#[test]
fn of_very_many_unknown_keys_some_are_reported() {
    let keys: String = (0..1000).map(|at| format!("strange{at} = 1\n")).collect();
    let text = format!("[[rule]]\nname = \"Bad\"\nselect = \"x\"\n{keys}");
    let file = parse(&text);
    assert_eq!(file.problems.len(), 21, "{:?}", file.problems.last());
    assert!(file.problems.iter().any(|found| found.message.starts_with("too many unknown keys")));
}

/// The error was "missing field `severity`", without what to write.
#[test]
fn a_rule_without_a_severity_or_name_says_what_to_add() {
    check(
        &bad("above = 1"),
        &["4:1: error: missing key \"severity\"; add severity = 2 (1 is the worst, 5 the mildest)"],
    );
    check(
        "select = \"x\"\n[[rule.criteria]]\nseverity = 1\nabove = 1",
        &["1:1: error: missing key \"name\"; add name = \"…\""],
    );
}

#[test]
fn problems_of_criteria() {
    check(
        &bad("severity = 6\nabove = 1"),
        &["5:12: error: severity: found 6, expected 1 (worst) to 5"],
    );
    check(
        &bad("severity = 1"),
        &["4:1: error: the criterion compares nothing; set above, below, at_least, at_most or \
           equals"],
    );
    check(
        &bad("severity = 1\nquantile = 99\nabove = 1"),
        &["6:12: error: quantile: found 99, expected 0 to 1"],
    );
    check(
        &bad("severity = 1\nstatistic = \"rat\"\nabove = 1"),
        &["6:13: error: unknown statistic \"rat\"; did you mean \"rate\"?"],
    );
    check(
        &bad("severity = 1\nabove = \"quick\""),
        &["6:9: error: above: found \"quick\", expected a number such as 0.25, \"250ms\" or \
             \"1%\""],
    );
    check(
        &bad("severity = 1\nabsent = true\nabove = 1"),
        &["4:1: error: above does not belong to this criterion; remove it"],
    );
    check(
        &bad("severity = 1\nquantile = 0.5\ncount_above = 1\nabove = 1"),
        &["4:1: error: the criterion has two measures; write two criteria"],
    );
    check(
        &bad("severity = 1\nafter = \"5min\"\nabove = 1"),
        &["6:9: error: after belongs to absent = true"],
    );
    check(
        &bad("severity = 1\nusers_above = '1s'"),
        &["6:15: error: users_above needs a bound; set above, at_least, below or at_most"],
    );
    check(
        &bad("severity = 1\nuser_label = 'user'\nabove = 1"),
        &["6:14: error: user_label belongs to users_above"],
    );
    check(
        &bad("severity = 1\ntext = \"(\""),
        &["6:8: error: text: cannot parse regular expression: unclosed group"],
    );
}

#[test]
fn problems_of_absence() {
    let with = |key: &str| bad("severity = 1\nabove = 1").replace("[[", &format!("{key}\n[["));
    check(
        &with("absence = 'no'"),
        &["4:11: error: absence: expected false, true, or { after = \"10min\", severity = 3 }"],
    );
    check(
        &with("absence = { severity = 7 }"),
        &["4:11: error: absence: found severity 7, expected 1 (worst) to 5"],
    );
    check(
        &with("absence = { after = 'soon' }"),
        &["4:11: error: absence: found \"soon\", expected a duration in ns, us, ms, s, min, h, \
           d, w or y, such as 30d or 1h30m"],
    );
    check(
        &with("absence = true").replace("above = 1", "absent = true"),
        &["4:11: error: found both absence and a criterion absent; remove one"],
    );
    check(
        "name = \"Bad\"\nformula = \"Good\"\nabsence = true\n",
        &["4:11: error: absence needs select or a query: a formula has no samples"],
    );
    let of_file = parse(&format!("absence = {{ severity = 0 }}\n{GOOD}"));
    let problems: Vec<String> = of_file.problems.iter().map(RuleProblem::to_string).collect();
    assert_eq!(
        problems,
        ["rules.toml:1:1: error: absence: found severity 0, expected 1 (worst) to 5"]
    );
    assert_eq!(names(&of_file), ["Good"]);
}

#[test]
fn problems_of_forecasts() {
    let week = |criterion: &str| bad(criterion).replace("[[", "window = \"7d\"\n[[");
    check(
        &bad("severity = 1\nforecast = { within = \"3d\" }\nabove = 1"),
        &["6:12: error: forecast: the window is shorter than 1h; set window = \"7d\""],
    );
    check(
        &week("severity = 1\nforecast = { within = \"3d\" }"),
        &["7:12: error: forecast needs a bound; set above, below, at_least or at_most"],
    );
    check(
        &week("severity = 1\nforecast = { within = \"3d\" }\nequals = 1"),
        &["7:12: error: forecast needs a bound; set above, below, at_least or at_most"],
    );
    check(
        &week("severity = 1\nforecast = { within = \"3d\", chance = 1 }\nabove = 1"),
        &["7:38: error: chance: expected 0.01 to 0.99, or \"1%\" to \"99%\""],
    );
    check(
        &week("severity = 1\nforecast = { withn = \"3d\" }\nabove = 1"),
        &["7:14: error: unknown key \"withn\"; did you mean \"within\"?"],
    );
    check(
        &week("severity = 1\nforecast = { within = \"3d\" }\nquantile = 0.5\nabove = 1"),
        &["5:1: error: the criterion has two measures; write two criteria"],
    );
    check(
        "name = \"Bad\"\npromql = \"x\"\n[[rule.criteria]]\nseverity = 1\n\
         forecast = { within = \"3d\" }\nabove = 1",
        &["6:12: error: this criterion needs select: a query has no samples"],
    );
}

#[test]
fn problems_of_references_and_duplicates() {
    check(
        "name = \"Bad\"\nformula = \"Good and Other\"",
        &["1:1: error: \"Bad\" needs rule \"Other\", which the file lacks"],
    );
    check(
        "name = \"Bad\"\nformula = \"Good and\"",
        &["3:11: error: cannot parse formula: found the end, expected the name of a rule"],
    );
    check(
        "name = \"Bad\"\nformula = \"not Bad\"",
        &["1:1: error: \"Bad\" depends on itself, or on a rule that cannot be used; remove the \
           reference"],
    );
    let twice = parse(&format!("{GOOD}{GOOD}"));
    assert_eq!(names(&twice), ["Good"]);
    assert_eq!(
        twice.problems[0].to_string(),
        "rules.toml:8:1: error: rule \"Good\" repeated; the first one is at 1:1"
    );
}

#[test]
fn a_rule_whose_text_is_no_toml_is_left_out() {
    let text = format!("[[rule]]\nname = \"Bad\"\nselect = \"x\nfor = \"1min\"\n{GOOD}");
    let file = parse(&text);
    assert_eq!(names(&file), ["Good"]);
    assert_eq!(file.problems[0].position.line, 3, "{:?}", file.problems);
    let file = parse("[[rule]]\nname = \"A\"\n[[rulle]]\n");
    assert!(
        file.problems
            .iter()
            .any(|problem| { problem.message == "unknown key \"rulle\"; did you mean \"rule\"?" })
    );
}

#[test]
fn arbitrary_bytes_are_no_panic() {
    for text in ["", "\u{0}", "[[rule]]", "rule = 1", "[[rule]]\n[[rule.criteria]]", "=", "[[rule"]
    {
        let file = parse_rule_file("x.toml", text, &Default::default());
        assert_eq!(names(&file), [""; 0], "{text}");
    }
    for end in (0..GOOD.len()).filter(|end| GOOD.is_char_boundary(*end)) {
        let file = parse_rule_file("x.toml", &GOOD[..end], &Default::default());
        assert!(names(&file).is_empty() || end + 1 >= GOOD.len(), "{}", &GOOD[..end]);
    }
}

#[test]
fn the_documented_rules_have_no_problems() {
    let page = include_str!("../../../../docs/rules.md");
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).collect();
    let mut day = Histogram::default();
    (0..200).for_each(|value| day.record(f64::from(value)));
    let baseline = saved(&[], None, (0..12).map(|_| day.clone()));
    let mut rules = 0;
    for block in blocks.iter().filter_map(|block| block.split("```").next()) {
        if !block.contains("[[rule]]") {
            continue;
        }
        let read = |_: &str| Ok(baseline.clone().into_bytes());
        let file = parse_rule_file_with("rules.toml", block, &Default::default(), &read);
        assert_eq!(file.problems, [], "{block}");
        rules += names(&file).len();
    }
    assert!(rules >= 8, "{rules}");
    let keys = ["select", "promql", "caql", "formula", "by", "window", "min_count", "for"];
    let more = ["keep_firing_for", "parent", "labels", "links", "note", "runbook_url", "quantile"];
    let criteria = ["count_above", "share_above", "statistic", "text", "text_changes", "absent"];
    let rest =
        ["after", "shape_of", "min_shift", "above", "below", "at_least", "at_most", "equals"];
    let forecast = [
        "forecast",
        "within",
        "chance",
        "oldest_in_flight",
        "absence",
        "users_above",
        "user_label",
    ];
    for key in keys.iter().chain(&more).chain(&criteria).chain(&rest).chain(&forecast) {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn rules_follow_those_that_they_read_whatever_their_order_in_the_file() {
    // Each one reads the next one.
    let chain = 3_000;
    let mut text = String::new();
    for at in 0..chain {
        let next = at + 1;
        text += &format!("[[rule]]\nname = \"r{at}\"\nformula = \"r{next}\"\nseverity = 1\n");
    }
    text += &format!(
        "[[rule]]\nname = \"r{chain}\"\nselect = \"up\"\n[[rule.criteria]]\nseverity = 1\n\
         equals = 0\n"
    );
    let file = parse(&text);
    assert_eq!(file.problems, []);
    let expected: Vec<String> = (0..=chain).rev().map(|at| format!("r{at}")).collect();
    assert_eq!(names(&file), expected);
}
