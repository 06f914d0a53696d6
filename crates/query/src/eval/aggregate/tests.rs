//! Aggregations of streams that test scripts cannot express: with bounds, and of distributions.

use std::sync::Arc;

use hist::{Bracket, Histogram, Mixture, Scheme};
use model::Selector;
use store::{NumberAggregate, TimeGrid};

use super::fold::{FoldAnnotations, GroupFold, group_aggregator};
use super::mean::MeanFold;
use super::sum::SumFold;
use super::*;
use crate::labels::NAME;
use crate::plan::{PlanNode, PlanOp};
use crate::query_warnings::{QueryWarningKind, QueryWarnings};
use crate::settings::Settings;
use crate::source::{SeriesHandle, Source, SourceRead};
use crate::stream::SeriesPoint;
use crate::value::StepValue;

/// A source without series.
pub(crate) struct EmptySource;

impl Source for EmptySource {
    fn select(&self, _: &Selector) -> Result<Vec<SeriesHandle>> {
        Ok(Vec::new())
    }

    fn samples(
        &self,
        _: &SeriesHandle,
        _: std::ops::Range<i64>,
    ) -> Result<SourceRead<SeriesPoint>> {
        Ok(SourceRead { values: Vec::new(), gaps: Vec::new() })
    }

    fn histograms(&self, _: &[&SeriesHandle], _: TimeGrid) -> Result<SourceRead<Mixture>> {
        Ok(SourceRead { values: Vec::new(), gaps: Vec::new() })
    }

    fn numbers(
        &self,
        _: &[&SeriesHandle],
        _: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        Ok(SourceRead { values: Vec::new(), gaps: Vec::new() })
    }
}

/// Aggregation of all values at one timestamp. At the end, only the result is charged.
#[track_caller]
fn run_aggregation(op: AggregateOp, param: f64, values: Vec<StepValue>) -> Vec<Stream> {
    let (mut settings, steps) = (Settings::default(), StepGrid::at(0));
    let max = 1_000_000;
    settings.limits.samples = max;
    let mut evaluation = Evaluation::new(&EmptySource, &settings, &|| false);
    let labelled = |(at, value): (usize, StepValue)| {
        Stream::new(
            LabelSet::new([(NAME, "m".to_owned()), ("at", at.to_string())]),
            vec![Some(value)],
        )
    };
    let streams: Vec<Stream> = values.into_iter().enumerate().map(labelled).collect();
    evaluation.budget.charge_samples(streams.iter().map(Stream::samples).sum()).unwrap();
    let grouping = Grouping { is_without: false, labels: Vec::new() };
    let of = PlanNode { op: PlanOp::Number(0.0), span: SourceSpan::default() };
    let aggregate = Aggregation { op, grouping, input: of, param: None };
    let params = AggregateParam { numbers: vec![param], span: SourceSpan::default() };
    let results = match op {
        AggregateOp::TopK | AggregateOp::LimitRatio => {
            evaluation.pick(&aggregate, &params, streams, SourceSpan::default())
        }
        _ => {
            let mut groups = group_aggregator(op);
            groups.add(&evaluation, &aggregate.grouping, streams, steps).unwrap();
            groups.finish(&mut evaluation, &aggregate)
        }
    };
    let results = results.unwrap();
    let held: u64 = results.iter().map(Stream::samples).sum();
    assert!(
        evaluation.budget.charge_samples(max - held).is_ok()
            && evaluation.budget.charge_samples(1).is_err()
    );
    results
}

#[track_caller]
fn one(op: AggregateOp, values: Vec<StepValue>) -> StepValue {
    let mut results = run_aggregation(op, 2.0, values);
    assert_eq!(results.len(), 1);
    results.remove(0).points.remove(0).unwrap()
}

fn bracket(lower: f64, estimate: f64, upper: f64) -> StepValue {
    StepValue::from_bracket(Bracket { lower, estimate, upper })
}

fn distribution(scheme: Scheme, values: &[f64]) -> StepValue {
    let mut histogram = Histogram::new(scheme);
    for value in values {
        histogram.record(*value);
    }
    let mut mixture = Mixture::default();
    mixture.add(&histogram).unwrap();
    StepValue::Distribution(Arc::new(mixture))
}

#[test]
fn a_sum_has_the_bounds_of_its_terms() {
    let terms = || vec![bracket(1.0, 2.0, 4.0), StepValue::Number(10.0), bracket(-3.0, -2.0, -1.0)];
    let StepValue::Bracket(sum) = one(AggregateOp::Sum, terms()) else { panic!("no bracket") };
    assert_eq!(sum.estimate, 10.0);
    assert!(sum.lower <= 8.0 && sum.lower > 7.999_999_999, "{sum:?}");
    assert!(sum.upper >= 13.0 && sum.upper < 13.000_000_001, "{sum:?}");
    assert_eq!(one(AggregateOp::Max, terms()), StepValue::Number(10.0));
    assert_eq!(one(AggregateOp::Count, terms()), StepValue::Number(3.0));
}

#[test]
fn unbounded_terms_leave_the_sum_unbounded() {
    let terms = vec![bracket(1.0, 2.0, f64::INFINITY), StepValue::Number(1.0)];
    let StepValue::Bracket(sum) = one(AggregateOp::Sum, terms) else { panic!("no bracket") };
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
    let StepValue::Distribution(sum) = one(AggregateOp::Sum, values) else {
        panic!("no distribution")
    };
    assert_eq!((sum.components().len(), sum.count()), (2, 3));
}

#[test]
fn a_distribution_and_a_histogram_add_up_to_a_histogram() {
    let exp = || Scheme::exp2(3).unwrap();
    let histogram = distribution(exp(), &[3.0]).histogram().unwrap();
    for op in [AggregateOp::Sum, AggregateOp::Avg] {
        let distribution = distribution(exp(), &[1.0, 2.0]);
        let values = vec![distribution, StepValue::Histogram(Arc::clone(&histogram))];
        let StepValue::Histogram(result) = one(op, values) else { panic!("no histogram") };
        assert_eq!(result.count, if op == AggregateOp::Sum { 3.0 } else { 1.5 });
    }
}

#[test]
fn rates_of_one_metric_in_two_units_have_no_sum_and_a_warning_with_the_remedy() {
    let rate = |scheme: Scheme, divisor: f64| {
        let StepValue::Distribution(stored) = distribution(scheme, &[3e6]) else { panic!() };
        let converted = StepValue::Distribution(Arc::new(stored.divide(divisor)));
        StepValue::Histogram(converted.histogram().unwrap())
    };
    let exp = || Scheme::exp2(3).unwrap();
    for op in [AggregateOp::Sum, AggregateOp::Avg] {
        let (sum, warnings) = fold_all(op, [rate(exp(), 1e9), rate(exp(), 1e3)]);
        assert_eq!(sum, None);
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert!(warning.starts_with("no result for a group of \"m\": histograms"), "{warning}");
        assert!(warning.contains("use exact_increase(…) instead of rate(…)"), "{warning}");
        // Explicit bounds have common ones in seconds, so they are added.
        let bounds = |unit: f64| Scheme::explicit(&[1.0 * unit, 5.0 * unit]).unwrap();
        let in_seconds = [rate(bounds(1e9), 1e9), rate(bounds(1e3), 1e3)];
        let (sum, warnings) = fold_all(op, in_seconds);
        assert!(sum.is_some() && warnings.is_empty(), "{warnings:?}");
    }
}

/// Aggregates values of a group; returns the result and the warnings.
fn fold_all(op: AggregateOp, values: [StepValue; 2]) -> (Option<StepValue>, Vec<String>) {
    let mut annotations = FoldAnnotations::default();
    let result = match op {
        AggregateOp::Avg => fold_values(MeanFold::default(), values, &mut annotations),
        _ => fold_values(SumFold::default(), values, &mut annotations),
    };
    let mut warnings = QueryWarnings::default();
    annotations.emit(op, SourceSpan::default(), &mut warnings);
    let warnings = warnings.of_kind(QueryWarningKind::Warning).map(|(text, _)| text.to_owned());
    (result, warnings.collect())
}

fn fold_values(
    mut fold: impl GroupFold,
    values: [StepValue; 2],
    annotations: &mut FoldAnnotations,
) -> Option<StepValue> {
    values.into_iter().for_each(|value| fold.push(value, "m", annotations));
    fold.finish(annotations)
}

#[test]
fn picked_streams_are_unchanged() {
    let values = vec![StepValue::Number(1.0), bracket(1.0, 5.0, 6.0), StepValue::Number(3.0)];
    let results = run_aggregation(AggregateOp::TopK, 2.0, values);
    let found: Vec<_> = results.iter().map(|stream| stream.points[0].clone().unwrap()).collect();
    assert_eq!(found, [bracket(1.0, 5.0, 6.0), StepValue::Number(3.0)]);
    assert_eq!(results[0].labels.get("at"), "1");
}

#[test]
fn limit_ratio_and_its_complement_are_everything() {
    let count = |ratio: f64| {
        let values = (0..1000).map(|at| StepValue::Number(f64::from(at))).collect();
        run_aggregation(AggregateOp::LimitRatio, ratio, values).len()
    };
    assert_eq!(count(0.3) + count(-0.7), 1000);
    assert!((250..350).contains(&count(0.3)), "{}", count(0.3));
    assert_eq!((count(0.0), count(2.0)), (0, 1000));
}
