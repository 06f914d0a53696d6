//! Criterion `shape_of`: a second mode is found while p50 and p99 stand still, and windows of one
//! and the same distribution raise no false alarm.

use std::sync::Arc;

use hist::{Histogram, Mixture};
use query::StepValue;

use crate::harness::{MINUTE, SECOND, START, SimulatedNode, labels};

const RULE: &str = "[[rule]]\nname = \"Shape\"\nselect = \"latency\"\nwindow = \"5min\"\n\
                    [[rule.criteria]]\nseverity = 2\nshape_of = \"1d\"\n";
const DAY: i64 = 1440 * MINUTE;
const ROW: i64 = 10 * SECOND;

/// Deterministic random numbers (xorshift64*; Vigna 2016).
struct Random(u64);

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
fn row(random: &mut Random, count: usize, second_mode: f64) -> Histogram {
    let mut histogram = Histogram::default();
    for _ in 0..count {
        let value = random.latency();
        // A second mode below p99, so that this does not move.
        let is_second = random.unit() < second_mode;
        histogram.record(if is_second { 150.0 + 2.0 * (random.unit() - 0.5) } else { value });
    }
    histogram
}

fn push(node: &mut SimulatedNode, time_ns: i64, histogram: Histogram) {
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
            let shift = alert.hit.as_ref().expect("the criterion").value.estimate;
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
