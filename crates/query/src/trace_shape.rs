//! Trace shape: the self times of operations in the traces of a selection, against the rest.
//!
//! Traces are a weighted sample: each stands for as many requests as its exemplars. Means have 95 %
//! confidence intervals: normal, with Kish's effective number of a weighted sample (L. Kish, Survey
//! Sampling, 1965).

use std::collections::BTreeMap;

use hist::Bracket;

/// Traces of each side below which self times are not compared.
pub const TRACES_MIN: usize = 20;
/// Standard deviations of a confidence of 95 %.
const Z: f64 = 1.96;

/// Self times of a trace in nanoseconds by number of the operation, and its weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceShape {
    /// Number of requests that it stands for.
    pub weight: f64,
    /// Time in spans of the operation in which none of their children ran.
    pub self_times: BTreeMap<usize, f64>,
}

/// Mean self time of an operation in the traces of the selection, and of the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationGrowth {
    /// Its number.
    pub operation: usize,
    /// In the selection, in nanoseconds.
    pub inside: Bracket<f64>,
    /// In the rest.
    pub outside: Bracket<f64>,
}

/// Compares operations from 0 on: those that grew most first; none if a side has few traces.
pub fn compare_shapes(
    operations: usize,
    inside: &[TraceShape],
    outside: &[TraceShape],
) -> Vec<OperationGrowth> {
    if inside.len().min(outside.len()) < TRACES_MIN {
        return Vec::new();
    }
    let (inside, outside) =
        (weighted_means(operations, inside), weighted_means(operations, outside));
    let sides = inside.into_iter().zip(outside).enumerate();
    let mut all: Vec<OperationGrowth> = sides
        .map(|(operation, (inside, outside))| OperationGrowth { operation, inside, outside })
        .collect();
    let growth = |of: &OperationGrowth| of.inside.estimate - of.outside.estimate;
    all.sort_unstable_by(|a, b| {
        growth(b).total_cmp(&growth(a)).then(a.operation.cmp(&b.operation))
    });
    all
}

/// Weighted sums of an operation in the traces that have it.
#[derive(Clone, Copy, Default)]
struct OperationSums {
    weight: f64,
    time: f64,
    /// Of the differences from the mean.
    squares: f64,
}

/// The means of the operations' self times, each 0 in traces without it. The times that exist are
/// read twice: the difference of a sum of squares and a square is imprecise.
fn weighted_means(operations: usize, shapes: &[TraceShape]) -> Vec<Bracket<f64>> {
    let mut all = vec![OperationSums::default(); operations];
    let mut each = |add: &dyn Fn(&mut OperationSums, f64, f64)| {
        for shape in shapes {
            for (operation, time) in &shape.self_times {
                if let Some(sums) = all.get_mut(*operation) {
                    add(sums, shape.weight, *time);
                }
            }
        }
    };
    let total = shapes.iter().map(|shape| shape.weight).sum::<f64>();
    let n = total.powi(2) / shapes.iter().map(|shape| shape.weight.powi(2)).sum::<f64>();
    each(&|sums, weight, time| {
        sums.weight += weight;
        sums.time += weight * time;
    });
    each(&|sums, weight, time| sums.squares += weight * (time - sums.time / total).powi(2));
    let bracket = |sums: OperationSums| {
        let mean = sums.time / total;
        let squares = sums.squares + (total - sums.weight).max(0.0) * mean.powi(2);
        let half = Z * (squares / total / (n - 1.0).max(1.0)).sqrt();
        Bracket { lower: (mean - half).max(0.0), estimate: mean, upper: mean + half }
    };
    all.into_iter().map(bracket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(count: usize, of: impl FnMut(usize) -> (f64, Vec<f64>)) -> Vec<TraceShape> {
        let shape = |(weight, times): (f64, Vec<f64>)| TraceShape {
            weight,
            self_times: times.into_iter().enumerate().collect(),
        };
        (0..count).map(of).map(shape).collect()
    }

    #[test]
    fn the_operation_that_grew_comes_first_and_the_others_stay() {
        let slow = shapes(30, |at| (1.0, vec![10.0, 900.0 + (at % 3) as f64]));
        let rest = shapes(40, |at| (1.0, vec![10.0 + (at % 2) as f64, 20.0]));
        let found = compare_shapes(2, &slow, &rest);
        assert_eq!(found.iter().map(|of| of.operation).collect::<Vec<_>>(), [1, 0]);
        assert_eq!((found[0].inside.estimate, found[0].outside.estimate), (901.0, 20.0));
        assert!(found[0].inside.lower > found[0].outside.upper);
        assert_eq!(found[1].inside.estimate, 10.0);
    }

    #[test]
    fn an_operation_that_only_some_traces_have_counts_as_0_in_the_others() {
        let half = shapes(20, |at| (1.0, if at % 2 == 0 { vec![100.0] } else { vec![] }));
        let found = compare_shapes(1, &half, &shapes(20, |_| (1.0, vec![])));
        assert_eq!((found[0].inside.estimate, found[0].outside.estimate), (50.0, 0.0));
    }

    #[test]
    fn few_traces_are_not_compared() {
        let of = |count| shapes(count, |_| (1.0, vec![1.0]));
        assert_eq!(compare_shapes(1, &of(TRACES_MIN - 1), &of(TRACES_MIN)), []);
        assert_eq!(compare_shapes(1, &of(TRACES_MIN), &of(TRACES_MIN - 1)), []);
        assert_eq!(compare_shapes(1, &of(TRACES_MIN), &of(TRACES_MIN)).len(), 1);
    }

    #[test]
    fn a_trace_counts_with_its_weight() {
        let two = [(3.0, vec![10.0]), (1.0, vec![50.0])];
        let found = weighted_means(1, &shapes(2, |at| two[at].clone()))[0];
        assert_eq!((found.lower, found.estimate), (0.0, 20.0));
        assert!(found.upper > 50.0);
    }

    /// By definition: every operation of every trace.
    fn dense_mean(shapes: &[TraceShape], operation: usize) -> Bracket<f64> {
        let value = |shape: &TraceShape| shape.self_times.get(&operation).copied().unwrap_or(0.0);
        let sum = |of: &dyn Fn(&TraceShape) -> f64| shapes.iter().map(of).sum::<f64>();
        let total = sum(&|shape| shape.weight);
        let mean = sum(&|shape| shape.weight * value(shape)) / total;
        let n = total.powi(2) / sum(&|shape| shape.weight.powi(2));
        let variance = sum(&|shape| shape.weight * (value(shape) - mean).powi(2)) / total;
        let half = Z * (variance / (n - 1.0).max(1.0)).sqrt();
        Bracket { lower: (mean - half).max(0.0), estimate: mean, upper: mean + half }
    }

    /// Of long self times that hardly differ, too.
    #[test]
    fn sums_of_the_times_that_exist_are_those_of_all_traces() {
        let mut state = 7;
        let mut draw = || {
            state = model::splitmix64(state);
            (state >> 11) as f64 / 2f64.powi(53)
        };
        let mut side = || -> Vec<TraceShape> {
            let shape = |_| {
                let times = (0..30).filter_map(|operation| {
                    let time = if operation == 3 { 1e13 + draw() } else { 1e9 * draw() };
                    (operation < 5 || time < 2e8).then_some((operation, time))
                });
                let self_times = times.collect();
                TraceShape { weight: 1.0 + 50.0 * draw(), self_times }
            };
            (0..60).map(shape).collect()
        };
        let sides = [side(), side()];
        let found = compare_shapes(31, &sides[0], &sides[1]);
        assert_eq!(found.len(), 31);
        for of in found {
            for (found, shapes) in [of.inside, of.outside].into_iter().zip(&sides) {
                let expected = dense_mean(shapes, of.operation);
                assert_eq!(found.estimate, expected.estimate);
                let width = expected.upper - expected.estimate;
                let error = (found.upper - expected.upper).abs();
                assert!(error <= 1e-9 * width + 1e-15 * expected.upper, "{found:?} {expected:?}");
                let error = (found.lower - expected.lower).abs();
                assert!(error <= 1e-9 * width + 1e-15 * expected.upper, "{found:?} {expected:?}");
            }
        }
    }

    #[test]
    fn interval_contains_the_true_mean_of_95_of_100_populations() {
        let mut state = 5;
        let mut draw = || {
            state = model::splitmix64(state);
            (state >> 11) as f64 / 2f64.powi(53)
        };
        let mut contained = 0;
        for _ in 0..1000 {
            let cells: Vec<(f64, f64)> =
                (0..6).map(|_| (1.0 + 3.0 * draw(), 100.0 * draw())).collect();
            let mut kept = Vec::new();
            for (weight, value) in &cells {
                kept.extend(shapes(10, |_| (*weight, vec![value * (0.5 + draw())])));
            }
            let total: f64 = cells.iter().map(|(weight, _)| weight).sum();
            let truth = cells.iter().map(|(weight, value)| weight * value).sum::<f64>() / total;
            let found = weighted_means(1, &kept)[0];
            contained += usize::from(found.lower <= truth && truth <= found.upper);
        }
        // Strata make it wider than it needs to be.
        assert!(contained >= 930, "{contained}");
    }
}
