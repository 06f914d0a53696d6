//! A wall clock that is set back: rows of before the step neither resolve nor raise an alert of an
//! own rule.

use rules::EvaluatedRule;

use crate::harness::{MINUTE, SECOND};
use crate::stored_node::StoredNode;

/// Rules have an interval of 10 s.
const STEP: i64 = 10 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const RULES: &str = "absence = false\n[[rule]]\nname = 'Deep'\nselect = 'queue'\nwindow = '1min'\n\
                     [[rule.criteria]]\nseverity = 2\nabove = 100\n\
                     [[rule]]\nname = 'DeepQuery'\npromql = 'queue'\n\
                     [[rule.criteria]]\nseverity = 2\nabove = 100\n";

/// Evaluates for some time while a queue has this depth. Returns the states of all rules in the
/// order in which they are first seen: `firing`, or `firing?` if it is unknown.
fn run(node: &mut StoredNode, duration_ns: i64, depth: u8) -> Vec<Vec<String>> {
    let mut seen = vec![Vec::new(); node.group.rules().len()];
    for _ in 0..duration_ns / STEP {
        node.series.pass(STEP);
        node.series.row("queue", 1, 0, depth);
        node.evaluate();
        for (states, state) in seen.iter_mut().zip(states(node)) {
            if !states.contains(&state) {
                states.push(state);
            }
        }
    }
    seen
}

/// States of all rules.
fn states(node: &StoredNode) -> Vec<String> {
    let state = |rule: &EvaluatedRule| {
        let alert = rule.alerts().alerts().next().map(|(_, alert)| alert);
        alert.map_or(String::new(), |alert| {
            let unknown = if alert.is_unknown() { "?" } else { "" };
            format!("{}{unknown}", alert.state.text())
        })
    };
    node.group.rules().iter().map(state).collect()
}

#[track_caller]
fn check(seen: Vec<Vec<String>>, expected: &[&str]) {
    assert!(seen.iter().all(|states| states == expected), "{seen:?}, expected {expected:?}");
}

#[test]
fn rows_of_an_hour_ago_do_not_resolve_an_alert_after_a_step_back() {
    for restarts in [false, true] {
        let mut node = StoredNode::new(RULES);
        check(run(&mut node, HOUR, 1), &[""]);
        check(run(&mut node, 5 * MINUTE, 200), &["firing"]);
        node.series.pass(-HOUR);
        // Nothing arrived yet: the windows have the rows of an hour ago.
        node.evaluate();
        assert_eq!(states(&node), ["firing?", "firing?"]);
        check(run(&mut node, 10 * MINUTE, 200), &["firing?"]);
        if restarts {
            node.restart(RULES);
        }
        check(run(&mut node, 50 * MINUTE, 200), &["firing?"]);
        // The window has only rows that arrived since the step.
        check(run(&mut node, 10 * MINUTE, 200), &["firing?", "firing"]);
        check(run(&mut node, MINUTE, 1), &["inactive"]);
    }
}

#[test]
fn rows_of_an_hour_ago_raise_no_alert_after_a_step_back() {
    for restarts in [false, true] {
        let mut node = StoredNode::new(RULES);
        check(run(&mut node, 20 * MINUTE, 200), &["firing"]);
        // Long enough for the resolved alert to be forgotten.
        run(&mut node, MINUTE, 1);
        check(run(&mut node, 49 * MINUTE, 1), &["inactive", ""]);
        if restarts {
            // The server was down while the clock was set.
            node.restart(RULES);
        }
        node.series.pass(-HOUR);
        check(run(&mut node, 70 * MINUTE, 1), &[""]);
        check(run(&mut node, MINUTE, 200), &["firing"]);
    }
}

#[test]
fn a_step_back_that_is_undone_is_over_after_a_window() {
    let mut node = StoredNode::new(RULES);
    check(run(&mut node, HOUR, 1), &[""]);
    check(run(&mut node, 5 * MINUTE, 200), &["firing"]);
    node.series.pass(-HOUR);
    check(run(&mut node, 5 * MINUTE, 200), &["firing?"]);
    node.series.pass(HOUR);
    check(run(&mut node, MINUTE, 200), &["firing"]);
    check(run(&mut node, MINUTE, 1), &["inactive"]);
}

/// The clock of a machine that starts in another decade, until NTP corrects it.
#[test]
fn a_clock_that_was_ahead_for_one_evaluation_is_over_at_once() {
    const AHEAD: i64 = 3652 * 24 * HOUR;
    for restarts in [[false, false], [true, false], [false, true], [true, true]] {
        let mut node = StoredNode::new(RULES);
        check(run(&mut node, HOUR, 1), &[""]);
        if restarts[0] {
            node.restart(RULES);
        }
        node.series.pass(AHEAD);
        node.evaluate();
        if restarts[1] {
            node.restart(RULES);
        }
        node.series.pass(-AHEAD);
        check(run(&mut node, MINUTE, 200), &["firing"]);
        check(run(&mut node, MINUTE, 1), &["inactive"]);
    }
}

/// What a query reads is not the window of its rule.
#[test]
fn the_range_of_a_query_decides_when_it_is_known_again() {
    let rule = |name: &str, query: &str| {
        format!(
            "[[rule]]\nname = '{name}'\n{query}\nwindow = '1min'\n[[rule.criteria]]\n\
             severity = 2\nabove = 100\n"
        )
    };
    let rules = [
        rule("Range", "promql = 'max_over_time(queue[30m])'"),
        rule("Subquery", "promql = 'max_over_time((queue + 0)[30m:10s])'"),
        rule("Caql", "caql = 'find(\"queue\") | rolling:max(30m)'"),
    ];
    for restarts in [false, true] {
        let mut node = StoredNode::new(&rules.concat());
        check(run(&mut node, HOUR, 1), &[""]);
        // The slots of CAQL are averages.
        run(&mut node, 2 * MINUTE, 200);
        check(run(&mut node, 18 * MINUTE, 200), &["firing"]);
        node.series.pass(-HOUR);
        check(run(&mut node, HOUR, 1), &["firing?"]);
        if restarts {
            node.restart(&rules.concat());
        }
        check(run(&mut node, 29 * MINUTE, 1), &["firing?"]);
        // A CAQL window of whole slots, and the lookback of the samples of a subquery, are longer.
        check(run(&mut node, 7 * MINUTE, 1), &["firing?", "inactive"]);
    }
}

#[test]
fn a_query_with_an_offset_is_unknown_while_it_reads_the_time_of_the_step() {
    let rule = |name: &str, above: u8| {
        format!(
            "[[rule]]\nname = '{name}'\npromql = 'max_over_time(queue[5m] offset 2h)'\n\
             [[rule.criteria]]\nseverity = 2\nabove = {above}\n"
        )
    };
    let rules = rule("Any", 0) + &rule("Deep", 100);
    for restarts in [false, true] {
        let mut node = StoredNode::new(&rules);
        let check = |node: &mut StoredNode, minutes: i64, depth: u8, expected: &[&str]| {
            let seen = run(node, minutes * MINUTE, depth);
            assert_eq!(seen[0], expected);
            assert_eq!(seen[1], [""], "the 200 of before the step count");
        };
        check(&mut node, 180, 1, &["", "firing"]);
        check(&mut node, 10, 200, &["firing"]);
        // The rows of after the step are not those of before it.
        node.series.pass(-30 * MINUTE + 3 * SECOND);
        // The clock is before where it was.
        check(&mut node, 30, 1, &["firing?"]);
        // Two hours ago it was right.
        check(&mut node, 80, 1, &["firing"]);
        if restarts {
            node.restart(&rules);
        }
        check(&mut node, 40, 1, &["firing", "firing?"]);
        check(&mut node, 10, 1, &["firing?", "firing"]);
    }
}
