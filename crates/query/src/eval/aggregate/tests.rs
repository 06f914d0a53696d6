//! Aggregations of streams that scripts cannot write: with bounds, and of whole distributions.

use std::sync::Arc;

use hist::{Bracket, Histogram, Mixture, Scheme};
use model::Selector;
use store::{Grid, Summary};

use super::*;
use crate::eval::Settings;
use crate::plan::Op;
use crate::source::{Handle, Read, Source};
use crate::stream::Reading;
use crate::value::Value;

/// A source without series.
pub(crate) struct Nothing;

impl Source for Nothing {
    fn select(&self, _: &Selector) -> Result<Vec<Handle>> {
        Ok(Vec::new())
    }

    fn readings(&self, _: &Handle, _: std::ops::Range<i64>) -> Result<Read<Reading>> {
        Ok(Read { values: Vec::new(), gaps: Vec::new() })
    }

    fn histograms(&self, _: &[&Handle], _: Grid) -> Result<Read<Mixture>> {
        Ok(Read { values: Vec::new(), gaps: Vec::new() })
    }

    fn numbers(&self, _: &[&Handle], _: Grid) -> Result<Read<Option<Summary>>> {
        Ok(Read { values: Vec::new(), gaps: Vec::new() })
    }
}

/// What an aggregation of all makes of values at one moment. In the end just that is held.
#[track_caller]
fn aggregated(way: AggregateOp, param: f64, values: Vec<Value>) -> Vec<Stream> {
    let (mut settings, steps) = (Settings::default(), Steps::at(0));
    let max = 1_000_000;
    settings.limits.samples = max;
    let mut evaluation = Evaluation::new(&Nothing, &settings, &|| false);
    let labelled = |(at, value): (usize, Value)| {
        Stream::new(
            Labels::new([(NAME, "m".to_owned()), ("at", at.to_string())]),
            vec![Some(value)],
        )
    };
    let streams: Vec<Stream> = values.into_iter().enumerate().map(labelled).collect();
    evaluation.budget.hold(streams.iter().map(Stream::samples).sum()).unwrap();
    let grouping = Grouping { is_without: false, labels: Vec::new() };
    let of = Node { op: Op::Number(0.0), place: Place::default() };
    let aggregate = Aggregate { way, grouping, of, param: None };
    let params = Params { numbers: vec![param], place: Place::default() };
    let results = match way {
        AggregateOp::TopK | AggregateOp::LimitRatio => {
            evaluation.pick(&aggregate, &params, streams, Place::default())
        }
        _ => evaluation.fold(&aggregate, &params, streams, steps),
    };
    let results = results.unwrap();
    let held: u64 = results.iter().map(Stream::samples).sum();
    assert!(evaluation.budget.hold(max - held).is_ok() && evaluation.budget.hold(1).is_err());
    results
}

#[track_caller]
fn one(way: AggregateOp, values: Vec<Value>) -> Value {
    let mut results = aggregated(way, 2.0, values);
    assert_eq!(results.len(), 1);
    results.remove(0).points.remove(0).unwrap()
}

fn bracket(lower: f64, estimate: f64, upper: f64) -> Value {
    Value::of_bracket(Bracket { lower, estimate, upper })
}

fn distribution(scheme: Scheme, values: &[f64]) -> Value {
    let mut histogram = Histogram::new(scheme);
    for value in values {
        histogram.record(*value);
    }
    let mut mixture = Mixture::default();
    mixture.add(&histogram).unwrap();
    Value::Distribution(Arc::new(mixture))
}

#[test]
fn a_sum_has_the_bounds_of_its_terms() {
    let terms = || vec![bracket(1.0, 2.0, 4.0), Value::Number(10.0), bracket(-3.0, -2.0, -1.0)];
    let Value::Bracket(sum) = one(AggregateOp::Sum, terms()) else { panic!("no bracket") };
    assert_eq!(sum.estimate, 10.0);
    assert!(sum.lower <= 8.0 && sum.lower > 7.999_999_999, "{sum:?}");
    assert!(sum.upper >= 13.0 && sum.upper < 13.000_000_001, "{sum:?}");
    assert_eq!(one(AggregateOp::Max, terms()), Value::Number(10.0));
    assert_eq!(one(AggregateOp::Count, terms()), Value::Number(3.0));
}

#[test]
fn unbounded_terms_leave_the_sum_unbounded() {
    let terms = vec![bracket(1.0, 2.0, f64::INFINITY), Value::Number(1.0)];
    let Value::Bracket(sum) = one(AggregateOp::Sum, terms) else { panic!("no bracket") };
    assert!(sum.lower <= 2.0 && sum.estimate == 3.0 && sum.upper == f64::INFINITY, "{sum:?}");
}

#[test]
fn distributions_add_up_to_one() {
    let exp = || Scheme::exp2(3).unwrap();
    let values = vec![distribution(exp(), &[1.0, 2.0]), distribution(exp(), &[3.0])];
    assert_eq!(one(AggregateOp::Sum, values), distribution(exp(), &[1.0, 2.0, 3.0]));
}

#[test]
fn families_stay_apart_in_a_sum() {
    let values = vec![
        distribution(Scheme::exp2(3).unwrap(), &[1.0, 2.0]),
        distribution(Scheme::LogLinear10, &[3.0]),
    ];
    let Value::Distribution(sum) = one(AggregateOp::Sum, values) else { panic!("no distribution") };
    assert_eq!((sum.parts().len(), sum.count()), (2, 3));
}

#[test]
fn a_distribution_and_a_histogram_add_up_to_a_histogram() {
    let exp = || Scheme::exp2(3).unwrap();
    let histogram = distribution(exp(), &[3.0]).histogram().unwrap();
    for way in [AggregateOp::Sum, AggregateOp::Avg] {
        let distribution = distribution(exp(), &[1.0, 2.0]);
        let values = vec![distribution, Value::Histogram(Arc::clone(&histogram))];
        let Value::Histogram(result) = one(way, values) else { panic!("no histogram") };
        assert_eq!(result.count, if way == AggregateOp::Sum { 3.0 } else { 1.5 });
    }
}

#[test]
fn what_is_picked_stays_what_it_is() {
    let values = vec![Value::Number(1.0), bracket(1.0, 5.0, 6.0), Value::Number(3.0)];
    let results = aggregated(AggregateOp::TopK, 2.0, values);
    let found: Vec<_> = results.iter().map(|stream| stream.points[0].clone().unwrap()).collect();
    assert_eq!(found, [bracket(1.0, 5.0, 6.0), Value::Number(3.0)]);
    assert_eq!(results[0].labels.get("at"), "1");
}

#[test]
fn a_part_and_the_rest_are_all() {
    let count = |ratio: f64| {
        let values = (0..1000).map(|at| Value::Number(f64::from(at))).collect();
        aggregated(AggregateOp::LimitRatio, ratio, values).len()
    };
    assert_eq!(count(0.3) + count(-0.7), 1000);
    assert!((250..350).contains(&count(0.3)), "{}", count(0.3));
    assert_eq!((count(0.0), count(2.0)), (0, 1000));
}
