//! Functions of distributions as a store returns them, which PromQL test scripts cannot express.

use std::ops::Range;
use std::sync::Arc;

use hist::codec::header::Temporality;
use hist::{Histogram, Mixture, Scheme};
use model::{Selector, SeriesKind};
use store::{NumberAggregate, TimeGrid};

use super::*;
use crate::labels::{LabelSet, NAME};
use crate::plan::{RangeExtension, SeriesFetch, TimeShift};
use crate::promql;
use crate::settings::Settings;
use crate::source::{SeriesHandle, Source, SourceRead};
use crate::stream::SeriesPoint;

const MINUTE: i64 = 60_000_000_000;

/// One series: in minute `k`, the latencies 1 to `10 * k`.
struct LatencySource;

fn in_minute(k: i64) -> StepValue {
    let mut histogram = Histogram::new(Scheme::exp2(3).unwrap());
    (1..=10 * k).for_each(|value| histogram.record(value as f64));
    let mut mixture = Mixture::default();
    mixture.add(&histogram).unwrap();
    StepValue::Distribution(Arc::new(mixture))
}

impl Source for LatencySource {
    fn select(&self, _: &Selector) -> Result<Vec<SeriesHandle>> {
        let labels = LabelSet::new([(NAME, "latency"), ("host", "web-1")]);
        let kind = SeriesKind::Histogram(Temporality::Delta);
        Ok(vec![SeriesHandle { labels, kind, unit: "s".to_owned(), key: 0 }])
    }

    fn samples(&self, _: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        let made = |k: i64| SeriesPoint {
            start: Some((k - 1) * MINUTE),
            time: k * MINUTE,
            value: in_minute(k),
        };
        let values = (1..=3).map(made).filter(|it| range.start < it.time && it.time <= range.end);
        Ok(SourceRead { values: values.collect(), gaps: Vec::new() })
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

fn node(op: PlanOp) -> PlanNode {
    PlanNode { op, span: SourceSpan::default() }
}

fn latencies() -> PlanNode {
    node(PlanOp::Latest(SeriesFetch {
        selector: Selector::All,
        matchers: Vec::new(),
        shift: TimeShift::default(),
        detects_resets: false,
        extension: RangeExtension::None,
        span: SourceSpan::default(),
    }))
}

fn latency_call(name: &str, numbers: &[f64]) -> PlanNode {
    let function = promql::function(name).unwrap();
    let numbers = numbers.iter().map(|number| node(PlanOp::Number(*number)));
    let args = numbers.chain([latencies()]).collect();
    node(PlanOp::Call { function, args })
}

/// Bounds at each of three minutes.
#[track_caller]
fn check(of: &PlanNode, expected: [[f64; 3]; 3]) {
    let settings = Settings::default();
    let mut evaluation = Evaluation::new(&LatencySource, &settings, &|| false);
    let streams = evaluation.streams(of, StepGrid::covering(MINUTE, 3 * MINUTE, MINUTE)).unwrap();
    assert_eq!(streams.len(), 1);
    assert_eq!(streams[0].labels.to_string(), r#"{host="web-1"}"#);
    let bounds = |point: &Option<StepValue>| {
        let bracket = point.as_ref().and_then(StepValue::bracket).unwrap();
        [bracket.lower, bracket.estimate, bracket.upper]
    };
    let found: Vec<[f64; 3]> = streams[0].points.iter().map(bounds).collect();
    assert_eq!(found, expected);
    assert!(evaluation.warnings.is_empty());
}

/// Results that are exact.
#[track_caller]
fn check_exact(name: &str, numbers: &[f64], expected: [f64; 3]) {
    check(&latency_call(name, numbers), expected.map(|number| [number; 3]));
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
    check_exact("users_affected", &[8.0, 1000.0], [200.0, 600.0, 22.0 / 30.0 * 1000.0]);
}

#[test]
fn running_totals_accumulate() {
    let affected = latency_call("histogram_count_above", &[8.0]);
    let total = node(PlanOp::Call {
        function: promql::function("running_total").unwrap(),
        args: vec![affected],
    });
    check(&total, [[2.0; 3], [14.0; 3], [36.0; 3]]);
}

#[test]
fn bounds_add_up() {
    // 9 and 10 are in the bucket of 9.5 or next to it.
    let uncertain = latency_call("histogram_count_above", &[9.1]);
    let settings = Settings::default();
    let mut evaluation = Evaluation::new(&LatencySource, &settings, &|| false);
    let total = node(PlanOp::Call {
        function: promql::function("running_total").unwrap(),
        args: vec![uncertain],
    });
    let streams =
        evaluation.streams(&total, StepGrid::covering(MINUTE, 3 * MINUTE, MINUTE)).unwrap();
    let truth = [1.0, 12.0, 33.0];
    for (point, truth) in streams[0].points.iter().zip(truth) {
        let bracket = point.as_ref().and_then(StepValue::bracket).unwrap();
        assert!(bracket.contains(truth) && !bracket.is_exact(), "{bracket:?} of {truth}");
    }
}
