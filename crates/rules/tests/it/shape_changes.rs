//! Criterion `shape_of`, of stored and of saved distributions: a second mode is found while p50 and
//! p99 stand still, and windows of one and the same distribution raise no false alarm.

use std::ops::Range;
use std::sync::Arc;

use decode::Unit;
use hist::{Histogram, Mixture};
use query::{StepValue, promql};
use rules::{EvaluatedGroup, GroupDefaults, RuleHealth, parse_rule_file_with};

use crate::harness::{MINUTE, SECOND, START, SimulatedNode, labels};
use crate::stored_node::StoredNode;

pub(crate) const RULE: &str = "[[rule]]\nname = \"Shape\"\nselect = \"latency\"\nwindow = \
                               \"5min\"\n[[rule.criteria]]\nseverity = 2\nshape_of = \"1d\"\n";
const DAY: i64 = 1440 * MINUTE;
const ROW: i64 = 10 * SECOND;

/// Deterministic random numbers (xorshift64*; Vigna 2016).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal by the sum of 12 uniform numbers, which has no far tails.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// Latency in ms: log-normal around 100.
    fn latency(&mut self) -> f64 {
        (0.2 * self.normal()).exp() * 100.0
    }
}

/// Row with `count` requests, of which a share is in a second mode at 150 ms.
pub(crate) fn row(random: &mut Random, count: usize, second_mode: f64) -> Histogram {
    let mut histogram = Histogram::default();
    for _ in 0..count {
        let value = random.latency();
        // A second mode below p99, so that this does not move.
        let is_second = random.unit() < second_mode;
        histogram.record(if is_second { 150.0 + 2.0 * (random.unit() - 0.5) } else { value });
    }
    histogram
}

pub(crate) fn push(node: &mut SimulatedNode, time_ns: i64, histogram: Histogram) {
    let value = StepValue::Distribution(Arc::new(Mixture::from(histogram)));
    node.series.push(&labels("latency{instance=\"a\"}"), time_ns, value);
}

/// Node with rows since two hours before the same time yesterday, up to two hours after it.
fn node_with_baseline(random: &mut Random, count: usize) -> SimulatedNode {
    let mut node = SimulatedNode::new(RULE);
    let around = START - DAY;
    let mut time_ns = around - 120 * MINUTE;
    while time_ns < around + 120 * MINUTE {
        push(&mut node, time_ns, row(random, count, 0.0));
        time_ns += ROW;
    }
    node
}

#[test]
fn a_second_mode_fires_within_5_minutes_while_p50_and_p99_stand_still() {
    let mut random = Random(1);
    let count = 500;
    let mut node = node_with_baseline(&mut random, count);
    for step in 1..=30 {
        push(&mut node, START - step * ROW, row(&mut random, count, 0.0));
    }
    node.time_ns = START - ROW;
    node.step();
    assert_eq!(node.states(0), "");
    let (mut before, mut after) = (Histogram::default(), Histogram::default());
    for _ in 0..30 {
        before.merge(&row(&mut random, count, 0.0)).expect("one scheme");
    }
    let mut fired_after_ns = None;
    for step in 0..30 {
        let rows = row(&mut random, count, 0.02);
        after.merge(&rows).expect("one scheme");
        let now_ns = node.time_ns;
        push(&mut node, now_ns, rows);
        node.step();
        if node.states(0) == "firing a" && fired_after_ns.is_none() {
            fired_after_ns = Some((step + 1) * ROW);
        }
    }
    let quantile = |of: &Histogram, q: f64| of.quantile(q).expect("values").estimate;
    for q in [0.5, 0.99] {
        let ratio = quantile(&after, q) / quantile(&before, q);
        assert!((0.99..1.01).contains(&ratio), "q {q}: {ratio}");
    }
    assert!(fired_after_ns.is_some_and(|after| after <= 5 * MINUTE), "{fired_after_ns:?}");
}

#[test]
fn a_tail_of_a_few_requests_fires_by_its_distance() {
    let mut random = Random(3);
    let count = 500;
    // Fewer requests than `min_shift` move, so only how far they move can tell.
    for (tail_ms, expected) in [(0.0, ""), (20_000.0, "firing a")] {
        let mut node = node_with_baseline(&mut random, count);
        for step in 0..30 {
            let mut histogram = row(&mut random, count, 0.0);
            if tail_ms > 0.0 {
                histogram.record(tail_ms);
            }
            push(&mut node, START - step * ROW, histogram);
        }
        node.time_ns = START;
        node.step();
        assert_eq!(node.states(0), expected, "{tail_ms}");
        let alert = node.group.rules()[0].alerts().alerts().next();
        if let Some((_, alert)) = alert {
            let shift = alert.matched.as_ref().expect("the criterion").value.estimate;
            assert!(shift < 0.1, "{shift}");
        }
    }
}

#[test]
fn equal_windows_raise_at_most_one_false_alarm_in_a_thousand() {
    // Each window is compared once with the 24 windows around the same time of the day before, and
    // all are of one distribution. Traffic differs from window to window.
    let mut random = Random(7);
    let mut windows: Vec<(i64, Histogram)> = Vec::new();
    let mut false_alarms = 0;
    let mut node =
        SimulatedNode::new(&RULE.replace("\"1d\"", "\"1h 5min\"").replace("1h 5min", "65min"));
    for at in 0..1100i64 {
        let count = 300 + (random.unit() * 700.0) as usize;
        windows.push((START + at * 5 * MINUTE, row(&mut random, count, 0.0)));
    }
    for (time_ns, histogram) in &windows {
        push(&mut node, *time_ns, histogram.clone());
    }
    let mut known = 0;
    for (time_ns, _) in windows.iter().skip(26).take(1000) {
        node.time_ns = *time_ns;
        node.evaluate();
        known += 1;
        false_alarms += usize::from(node.states(0) == "firing a");
    }
    assert_eq!(known, 1000);
    assert!(false_alarms <= 1, "{false_alarms} false alarms in 1000 windows");
}

/// Lines of windows with these distributions and labels, as `topdeck query --frames` writes them.
pub(crate) fn saved(
    labels: &[(&str, &str)],
    unit: Option<&Unit>,
    windows: impl IntoIterator<Item = Histogram>,
) -> String {
    let mut lines = String::new();
    for (at, histogram) in (0..).zip(windows) {
        let times = (at * 5 * MINUTE, (at + 1) * 5 * MINUTE);
        let labels = labels.iter().copied();
        decode::frames::write_histogram(&mut lines, "", labels, times, unit, &histogram);
    }
    lines
}

/// The rules with a baseline that was saved.
#[track_caller]
pub(crate) fn group_with(rules: &str, baseline: &str) -> EvaluatedGroup {
    let read = |path: &str| {
        assert_eq!(path, "day.frames");
        Ok(baseline.as_bytes().to_vec())
    };
    let file = parse_rule_file_with("rules.toml", rules, &promql::Options::default(), &read);
    assert!(file.problems.is_empty(), "{:?}", file.problems);
    let group = file.groups.into_iter().next().expect("a group");
    EvaluatedGroup::new(group, &GroupDefaults::default())
}

pub(crate) fn saved_rule() -> String {
    RULE.replace("\"1d\"", "{ file = \"day.frames\" }")
}

#[test]
fn a_second_mode_fires_within_5_minutes_against_a_saved_baseline() {
    let mut random = Random(5);
    let day: Vec<Histogram> = (0..24).map(|_| row(&mut random, 15_000, 0.0)).collect();
    // Of this stream, and of all without one of their own.
    for of in [&[("instance", "a")][..], &[]] {
        let mut node = SimulatedNode::new(RULE);
        node.group = group_with(&saved_rule(), &saved(of, None, day.iter().cloned()));
        let mut send = |node: &mut SimulatedNode, rows: u32, second_mode: f64| {
            let mut states = Vec::new();
            for _ in 0..rows {
                let now_ns = node.time_ns;
                push(node, now_ns, row(&mut random, 500, second_mode));
                node.step();
                states.push(node.states(0));
            }
            states.dedup();
            states
        };
        assert_eq!(send(&mut node, 60, 0.0), [""]);
        assert_eq!(send(&mut node, 30, 0.02), ["", "firing a"]);
    }
}

#[test]
fn equal_windows_raise_at_most_one_false_alarm_in_a_thousand_against_a_saved_baseline() {
    let mut random = Random(9);
    let mut false_alarms = 0;
    let count = |random: &mut Random| 300 + (random.unit() * 700.0) as usize;
    for round in 0..20i64 {
        let windows: Vec<Histogram> = (0..24)
            .map(|_| {
                let count = count(&mut random);
                row(&mut random, count, 0.0)
            })
            .collect();
        let mut node = SimulatedNode::new(RULE);
        node.group = group_with(&saved_rule(), &saved(&[], None, windows));
        for at in 0..50i64 {
            node.time_ns = START + (round * 50 + at) * 5 * MINUTE;
            let (now_ns, count) = (node.time_ns, count(&mut random));
            push(&mut node, now_ns, row(&mut random, count, 0.0));
            node.evaluate();
            false_alarms += usize::from(node.states(0) == "firing a");
        }
    }
    assert!(false_alarms <= 1, "{false_alarms} false alarms in 1000 windows");
}

#[test]
fn a_saved_baseline_of_other_streams_or_of_another_unit_is_told() {
    let day = |values: Range<u32>| {
        let mut histogram = Histogram::default();
        values.for_each(|value| histogram.record(f64::from(value + 1)));
        (0..12).map(move |_| histogram.clone())
    };
    let health = |baseline: &str| {
        let mut node = StoredNode::new(RULE);
        node.group = group_with(&saved_rule(), baseline);
        let values: Vec<f64> = (1..=300).map(f64::from).collect();
        node.series.durations("latency", &[("zone", "x")], &values);
        node.evaluate();
        match node.group.rules()[0].health() {
            RuleHealth::Err(cause) => cause.clone(),
            other => format!("{other:?}"),
        }
    };
    let zone = [("zone", "x")];
    assert_eq!(health(&saved(&zone, Some(&Unit::Milliseconds), day(0..300))), "Ok");
    assert_eq!(
        health(&saved(&zone, Some(&Unit::Seconds), day(0..300))),
        "stream {zone=\"x\"}: cannot compare shapes: the unit of the stream is \"ms\", that of \
         \"day.frames\" \"s\""
    );
    assert_eq!(
        health(&saved(&[("zone", "y")], Some(&Unit::Milliseconds), day(0..300))),
        "stream {zone=\"x\"}: cannot compare shapes: \"day.frames\" has no histogram of the stream"
    );
}

#[test]
fn rules_that_are_not_those_of_a_server_read_no_files() {
    let file = crate::harness::parse(&saved_rule());
    let problems: Vec<String> = file.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        ["rules.toml:7:12: error: shape_of: cannot use \"day.frames\": other files are read only \
          for the rules of a server; save it with topdeck query --frames"]
    );
}
