//! Functions of distributions as a store has them, whole: what scripts of PromQL cannot say.

use std::ops::Range;
use std::sync::Arc;

use hist::codec::header::Temporality;
use hist::{Histogram, Mixture, Scheme};
use model::{Kind, Selector};
use store::{Grid, Summary};

use super::*;
use crate::eval::Settings;
use crate::labels::{Labels, NAME};
use crate::plan::{Extension, Fetch, Shift};
use crate::source::{Handle, Read, Source};
use crate::stream::Reading;

const MINUTE: i64 = 60_000_000_000;

/// One series: in minute `k`, the latencies 1 to `10 * k`.
struct Latencies;

fn in_minute(k: i64) -> Value {
    let mut histogram = Histogram::new(Scheme::exp2(3).unwrap());
    (1..=10 * k).for_each(|value| histogram.record(value as f64));
    let mut mixture = Mixture::default();
    mixture.add(&histogram).unwrap();
    Value::Distribution(Arc::new(mixture))
}

impl Source for Latencies {
    fn select(&self, _: &Selector) -> Result<Vec<Handle>> {
        let labels = Labels::new([(NAME, "latency"), ("host", "web-1")]);
        let kind = Kind::Histogram(Temporality::Delta);
        Ok(vec![Handle { labels, kind, unit: "s".to_owned(), key: 0 }])
    }

    fn readings(&self, _: &Handle, range: Range<i64>) -> Result<Read<Reading>> {
        let made = |k: i64| Reading {
            start: Some((k - 1) * MINUTE),
            time: k * MINUTE,
            value: in_minute(k),
        };
        let values = (1..=3).map(made).filter(|it| range.start < it.time && it.time <= range.end);
        Ok(Read { values: values.collect(), gaps: Vec::new() })
    }

    fn histograms(&self, _: &[&Handle], _: Grid) -> Result<Read<Mixture>> {
        Ok(Read { values: Vec::new(), gaps: Vec::new() })
    }

    fn numbers(&self, _: &[&Handle], _: Grid) -> Result<Read<Option<Summary>>> {
        Ok(Read { values: Vec::new(), gaps: Vec::new() })
    }
}

fn node(op: Op) -> Node {
    Node { op, place: Place::default() }
}

fn latencies() -> Node {
    node(Op::Latest(Fetch {
        selector: Selector::All,
        matchers: Vec::new(),
        shift: Shift::default(),
        looks_for_resets: false,
        extension: Extension::None,
        place: Place::default(),
    }))
}

fn of_latencies(name: &str, numbers: &[f64]) -> Node {
    let function = function(name).unwrap();
    let numbers = numbers.iter().map(|number| node(Op::Number(*number)));
    let args = numbers.chain([latencies()]).collect();
    node(Op::Call { function, args })
}

/// The bounds at each of three minutes.
#[track_caller]
fn check(of: &Node, expected: [[f64; 3]; 3]) {
    let settings = Settings::default();
    let mut evaluation = Evaluation::new(&Latencies, &settings, &|| false);
    let streams = evaluation.streams(of, Steps::over(MINUTE, 3 * MINUTE, MINUTE)).unwrap();
    assert_eq!(streams.len(), 1);
    assert_eq!(streams[0].labels.to_string(), r#"{host="web-1"}"#);
    let bounds = |point: &Option<Value>| {
        let bracket = point.as_ref().and_then(Value::bracket).unwrap();
        [bracket.lower, bracket.estimate, bracket.upper]
    };
    let found: Vec<[f64; 3]> = streams[0].points.iter().map(bounds).collect();
    assert_eq!(found, expected);
    assert!(evaluation.notes.is_empty());
}

/// Where nothing is in doubt.
#[track_caller]
fn check_exact(name: &str, numbers: &[f64], expected: [f64; 3]) {
    check(&of_latencies(name, numbers), expected.map(|number| [number; 3]));
}

#[test]
fn at_edges_of_buckets_counts_are_exact() {
    check_exact("histogram_count", &[], [10.0, 20.0, 30.0]);
    check_exact("histogram_sum", &[], [55.0, 210.0, 465.0]);
    check_exact("histogram_avg", &[], [5.5, 10.5, 15.5]);
    check_exact("histogram_min", &[], [1.0, 1.0, 1.0]);
    check_exact("histogram_max", &[], [10.0, 20.0, 30.0]);
    check_exact("histogram_quantile", &[1.0], [10.0, 20.0, 30.0]);
    check_exact("histogram_count_below", &[8.0], [8.0, 8.0, 8.0]);
    check_exact("histogram_count_above", &[8.0], [2.0, 12.0, 22.0]);
    check_exact("histogram_count_between", &[4.0, 8.0], [4.0, 4.0, 4.0]);
    check_exact("histogram_inverse_quantile", &[8.0], [0.8, 0.4, 8.0 / 30.0]);
    check_exact("histogram_fraction", &[4.0, 8.0], [0.4, 0.2, 4.0 / 30.0]);
    check_exact("users_harmed", &[8.0, 1000.0], [200.0, 600.0, 22.0 / 30.0 * 1000.0]);
}

#[test]
fn totals_run_on() {
    let harmed = of_latencies("histogram_count_above", &[8.0]);
    let total = node(Op::Call { function: function("running_total").unwrap(), args: vec![harmed] });
    check(&total, [[2.0; 3], [14.0; 3], [36.0; 3]]);
}

#[test]
fn bounds_add_up() {
    // 9 and 10 are in the bucket of 9.5, or next to it.
    let doubtful = of_latencies("histogram_count_above", &[9.1]);
    let settings = Settings::default();
    let mut evaluation = Evaluation::new(&Latencies, &settings, &|| false);
    let total =
        node(Op::Call { function: function("running_total").unwrap(), args: vec![doubtful] });
    let streams = evaluation.streams(&total, Steps::over(MINUTE, 3 * MINUTE, MINUTE)).unwrap();
    let truth = [1.0, 12.0, 33.0];
    for (point, truth) in streams[0].points.iter().zip(truth) {
        let bracket = point.as_ref().and_then(Value::bracket).unwrap();
        assert!(bracket.contains(truth) && !bracket.is_exact(), "{bracket:?} of {truth}");
    }
}

#[test]
fn every_function_has_one_name() {
    for (at, function) in FUNCTIONS.iter().enumerate() {
        assert!(FUNCTIONS[..at].iter().all(|before| before.name < function.name), "{function:?}");
    }
}
