//! Properties that hold for any bytes: one check per fuzz target, by its name. `fuzz/` includes
//! this file by path, and `fuzz_regressions` repeats the checks on inputs that once failed.

use query::promql;
use rules::slo::parse_openslo;
use rules::{
    EvaluatedGroup, GroupDefaults, RuleProblem, decode_snapshots, encode_snapshots,
    parse_rule_file, parse_rule_test_file,
};

/// Panics on a failure.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 5] = [
    ("own_rules", own_rules),
    ("prometheus_rules", prometheus_rules),
    ("rule_tests", rule_tests),
    ("openslo", openslo),
    ("alert_states", alert_states),
];

/// A file of rules is used without its bad rules, whose problems have positions.
fn rule_file(name: &str, bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let file = parse_rule_file(name, text, &promql::Options::all());
    check_problems(&file.problems);
    for group in file.groups {
        let group = EvaluatedGroup::new(group, &GroupDefaults::default());
        assert!(group.interval_ns() > 0);
        group.scheduled_time_before(1_700_000_000_000_000_000);
        for rule in group.rules() {
            assert!(!rule.rule().name.is_empty() || name.ends_with(".yaml"), "{text:?}");
        }
    }
}

fn check_problems(problems: &[RuleProblem]) {
    for problem in problems {
        assert!(problem.position.line > 0 && problem.position.column > 0, "{problem}");
    }
}

fn own_rules(bytes: &[u8]) {
    rule_file("rules.toml", bytes);
}

fn prometheus_rules(bytes: &[u8]) {
    rule_file("rules.yaml", bytes);
}

fn rule_tests(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    drop(parse_rule_test_file("tests.yaml", text));
}

/// An SLO that is used has an objective.
fn openslo(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (slos, problems) = parse_openslo("slo.yaml", text);
    check_problems(&problems);
    for slo in slos {
        let share = slo.objective.share();
        assert!((0.0..1.0).contains(&share), "{share}");
        drop(slo.rule_group());
    }
}

/// States that are read are written as they were.
fn alert_states(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(states) = decode_snapshots(text) else { return };
    let again = encode_snapshots(&states);
    let read = decode_snapshots(&again).expect("what was written is read");
    assert_eq!(encode_snapshots(&read), again);
}
