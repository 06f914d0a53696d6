//! Aggregations with one value for each group and step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hist::Bracket;

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::eval::range_functions::{GrowthSum, GrowthSums, SeriesBatch};
use crate::histogram::{DenseSum, GoNumber, IncompatibleHistograms, SchemeConversion};
use crate::labels::LabelSet;
use crate::plan::{Aggregation, Grouping};
use crate::promql::AggregateOp;
use crate::query_warnings::QueryWarnings;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

use super::mean::MeanFold;
use super::sum::SumFold;
use super::{AggregateGroup, AggregateParam, group_streams};

/// Groups that are aggregated as their streams are read.
pub(super) trait GroupAggregator {
    /// Adds streams; they are released from the budget.
    fn add(
        &mut self,
        evaluation: &Evaluation<'_>,
        grouping: &Grouping,
        streams: Vec<Stream>,
        steps: StepGrid,
    ) -> Result<()>;

    /// Adds sums of series, which only `sum` takes; they are released from the budget.
    fn add_sums(
        &mut self,
        evaluation: &Evaluation<'_>,
        sums: GrowthSums,
        steps: StepGrid,
    ) -> Result<()>;

    /// Position of the group with these labels, which is added if it is new. Without a value it has
    /// no result.
    fn group_at(&mut self, labels: LabelSet, steps: StepGrid) -> usize;

    /// Adds the values of a series at all steps to a group; they are taken. Of the series: whether
    /// its name is dropped, and that name.
    fn push_at(&mut self, group: usize, series: (bool, &str), points: &mut Vec<Option<StepValue>>);

    /// Sets the order of groups by their positions; the others have no value.
    fn set_order(&mut self, order: &[usize]);

    /// Charges all aggregates, of which none is charged so far.
    fn charge_all(&self, evaluation: &Evaluation<'_>, steps: StepGrid) -> Result<()>;

    /// Results of all groups, charged to the budget.
    fn finish(
        self: Box<Self>,
        evaluation: &mut Evaluation<'_>,
        aggregate: &Aggregation,
    ) -> Result<Vec<Stream>>;
}

/// Empty groups of a fold.
pub(super) fn group_aggregator(op: AggregateOp) -> Box<dyn GroupAggregator> {
    match op {
        AggregateOp::Sum => Box::<FoldedGroups<SumFold>>::default(),
        AggregateOp::Avg => Box::<FoldedGroups<BoundedFold<MeanFold>>>::default(),
        AggregateOp::Count => Box::<FoldedGroups<CountFold>>::default(),
        AggregateOp::Group => Box::<FoldedGroups<PresenceFold>>::default(),
        AggregateOp::Min => Box::<FoldedGroups<BoundedFold<ExtremeFold<true>>>>::default(),
        AggregateOp::Max => Box::<FoldedGroups<BoundedFold<ExtremeFold<false>>>>::default(),
        AggregateOp::Stddev => Box::<FoldedGroups<VarianceFold<true>>>::default(),
        AggregateOp::Stdvar => Box::<FoldedGroups<VarianceFold<false>>>::default(),
        other => panic!("BUG: {} is not a fold", other.text()),
    }
}

impl Evaluation<'_> {
    pub(super) fn fold(&mut self, aggregate: &Aggregation, steps: StepGrid) -> Result<Vec<Stream>> {
        let mut groups = group_aggregator(aggregate.op);
        let grouping = &aggregate.grouping;
        if self.fold_numbers(aggregate, steps, &mut *groups)? {
            return groups.finish(self, aggregate);
        }
        groups = group_aggregator(aggregate.op);
        let sums_of = Some(grouping).filter(|_| aggregate.op == AggregateOp::Sum);
        self.streams_in_batches(&aggregate.input, steps, sums_of, &mut |evaluation, batch| {
            match batch {
                SeriesBatch::Streams(streams) => groups.add(evaluation, grouping, streams, steps),
                SeriesBatch::Sums(sums) => groups.add_sums(evaluation, sums, steps),
            }
        })?;
        groups.finish(self, aggregate)
    }

    pub(super) fn quantiles(
        &mut self,
        aggregate: &Aggregation,
        params: &AggregateParam,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let streams = self.streams(&aggregate.input, steps)?;
        warn_of_invalid_quantiles(params, &mut self.warnings);
        let mut annotations = FoldAnnotations::default();
        let mut results = Vec::new();
        for group in group_streams(&aggregate.grouping, streams) {
            let sample_count = group.members.iter().map(Stream::samples).sum();
            let points = quantiles(&group, &params.numbers, &mut annotations);
            let mut result = Stream::new(group.labels, points);
            result.drops_name = group.members.iter().any(|member| member.drops_name);
            self.budget.charge_samples(result.samples())?;
            self.budget.release_samples(sample_count);
            if !result.is_empty() {
                results.push(result);
            }
        }
        annotations.emit(aggregate.op, aggregate.input.span, &mut self.warnings);
        Ok(results)
    }
}

/// Groups in the order of their first streams, each with the aggregates so far.
struct FoldedGroups<F> {
    groups: Vec<FoldedGroup<F>>,
    /// Position of each group by its labels.
    positions: HashMap<LabelSet, usize>,
    annotations: FoldAnnotations,
    /// Samples of all aggregates.
    samples: u64,
}

struct FoldedGroup<F> {
    labels: LabelSet,
    drops_name: bool,
    /// Aggregate at each step, once there is a value.
    folds: Vec<Option<F>>,
}

impl<F> Default for FoldedGroups<F> {
    fn default() -> FoldedGroups<F> {
        FoldedGroups {
            groups: Vec::new(),
            positions: HashMap::new(),
            annotations: FoldAnnotations::default(),
            samples: 0,
        }
    }
}

impl<F: GroupFold> FoldedGroups<F> {
    fn position(&mut self, labels: LabelSet, steps: StepGrid) -> usize {
        let groups = &mut self.groups;
        *self.positions.entry(labels).or_insert_with_key(|labels| {
            let (labels, folds) = (labels.clone(), vec![None; steps.count]);
            groups.push(FoldedGroup { labels, drops_name: false, folds });
            groups.len() - 1
        })
    }

    /// Replaces what is charged for `added` samples, and for the aggregates before them, by the
    /// samples of all aggregates.
    fn charge(
        &self,
        evaluation: &Evaluation<'_>,
        (added, before): (u64, u64),
        steps: StepGrid,
    ) -> Result<()> {
        evaluation.budget.check_capacity(self.groups.len(), steps.count)?;
        evaluation.budget.charge_samples(self.samples)?;
        evaluation.budget.release_samples(added + before);
        Ok(())
    }

    fn push(&mut self, labels: LabelSet, mut stream: Stream, steps: StepGrid) {
        let group = self.position(labels, steps);
        self.push_at(group, (stream.drops_name, stream.labels.name()), &mut stream.points);
    }
}

impl<F: GroupFold> GroupAggregator for FoldedGroups<F> {
    fn add(
        &mut self,
        evaluation: &Evaluation<'_>,
        grouping: &Grouping,
        streams: Vec<Stream>,
        steps: StepGrid,
    ) -> Result<()> {
        let added: u64 = streams.iter().map(Stream::samples).sum();
        let before = self.samples;
        for stream in streams {
            self.push(grouping.group_labels(&stream.labels), stream, steps);
        }
        self.charge(evaluation, (added, before), steps)
    }

    fn add_sums(
        &mut self,
        evaluation: &Evaluation<'_>,
        sums: GrowthSums,
        steps: StepGrid,
    ) -> Result<()> {
        let (added, before) = (sums.samples(), self.samples);
        let mut annotations = std::mem::take(&mut self.annotations);
        for GrowthSum { labels, metric, drops_name, conversion, steps: sums } in sums.groups {
            let at = self.position(labels, steps);
            let group = &mut self.groups[at];
            group.drops_name |= drops_name;
            let (mut before, mut after) = (0, 0);
            for (fold, sum) in group.folds.iter_mut().zip(sums) {
                if let Some(sum) = sum {
                    before += fold.as_ref().map_or(0, GroupFold::samples);
                    let fold = fold.get_or_insert_default();
                    fold.push_sum(&conversion, sum, &metric, &mut annotations);
                    after += fold.samples();
                }
            }
            self.samples = self.samples + after - before;
        }
        self.annotations = annotations;
        self.charge(evaluation, (added, before), steps)
    }

    fn group_at(&mut self, labels: LabelSet, steps: StepGrid) -> usize {
        self.position(labels, steps)
    }

    fn push_at(
        &mut self,
        group: usize,
        (drops_name, metric): (bool, &str),
        points: &mut Vec<Option<StepValue>>,
    ) {
        let group = &mut self.groups[group];
        group.drops_name |= drops_name;
        let (mut before, mut after) = (0, 0);
        for (fold, point) in group.folds.iter_mut().zip(points.drain(..)) {
            if let Some(value) = point {
                before += fold.as_ref().map_or(0, GroupFold::samples);
                let fold = fold.get_or_insert_default();
                fold.push(value, metric, &mut self.annotations);
                after += fold.samples();
            }
        }
        self.samples = self.samples + after - before;
    }

    fn set_order(&mut self, order: &[usize]) {
        let mut groups: Vec<Option<FoldedGroup<F>>> =
            std::mem::take(&mut self.groups).into_iter().map(Some).collect();
        self.groups = order.iter().filter_map(|at| groups[*at].take()).collect();
        // Positions are no longer asked for.
        self.positions.clear();
    }

    fn charge_all(&self, evaluation: &Evaluation<'_>, steps: StepGrid) -> Result<()> {
        self.charge(evaluation, (0, 0), steps)
    }

    fn finish(
        mut self: Box<Self>,
        evaluation: &mut Evaluation<'_>,
        aggregate: &Aggregation,
    ) -> Result<Vec<Stream>> {
        let mut results = Vec::with_capacity(self.groups.len());
        for FoldedGroup { labels, drops_name, folds } in self.groups {
            let finish = |fold: Option<F>| fold?.finish(&mut self.annotations);
            let mut result = Stream::new(labels, folds.into_iter().map(finish).collect());
            result.drops_name = drops_name;
            if !result.is_empty() {
                results.push(result);
            }
        }
        evaluation.budget.charge_samples(results.iter().map(Stream::samples).sum())?;
        evaluation.budget.release_samples(self.samples);
        let span = aggregate.input.span;
        self.annotations.emit(aggregate.op, span, &mut evaluation.warnings);
        Ok(results)
    }
}

/// Running aggregate of a group at one step.
pub(super) trait GroupFold: Clone + Default {
    /// Adds a value and records annotations.
    fn push(&mut self, value: StepValue, metric: &str, findings: &mut FoldAnnotations);

    /// Adds the sum of several histograms of one scheme, as `sum` does.
    fn push_sum(
        &mut self,
        conversion: &Arc<SchemeConversion>,
        sum: DenseSum,
        metric: &str,
        findings: &mut FoldAnnotations,
    ) {
        let histogram = sum.to_histogram(conversion);
        self.push(StepValue::Histogram(Arc::new(histogram)), metric, findings);
    }

    /// Result; `None` if there is none.
    fn finish(self, findings: &mut FoldAnnotations) -> Option<StepValue>;

    /// Sample count towards `max_samples`.
    fn samples(&self) -> u64 {
        1
    }
}

/// Annotations of an aggregation result.
#[derive(Default)]
pub(super) struct FoldAnnotations {
    /// A histogram was ignored by an aggregation of floats.
    pub(super) ignored_histogram: bool,
    /// Floats and histograms in one group.
    pub(super) mixed_kinds: bool,
    /// Hints for a reset and for no reset in one group.
    pub(super) resets_collide: bool,
    /// Histograms with different custom bounds.
    pub(super) bounds_reconciled: bool,
    /// Metrics with histograms that were incompatible with earlier ones.
    incompatible_metrics: BTreeSet<String>,
    /// Metrics with exponential histograms that have no buckets in common, and why.
    unmergeable_metrics: BTreeMap<String, IncompatibleHistograms>,
}

impl FoldAnnotations {
    /// Histograms of a metric were incompatible with earlier ones of their group.
    pub(super) fn add_incompatible(&mut self, metric: &str, reason: IncompatibleHistograms) {
        match reason {
            IncompatibleHistograms::ExponentialWithCustom => {
                self.incompatible_metrics.insert(metric.to_owned());
            }
            reason @ IncompatibleHistograms::Schemes { .. } => {
                self.unmergeable_metrics.entry(metric.to_owned()).or_insert(reason);
            }
        }
    }

    /// Adds all annotations with Prometheus' texts.
    pub(super) fn emit(self, op: AggregateOp, span: SourceSpan, notes: &mut QueryWarnings) {
        if self.ignored_histogram {
            let op = op.text();
            notes.info(span, format!("PromQL info: ignored histogram in {op} aggregation"));
        }
        if self.mixed_kinds {
            notes.warn(
                span,
                "PromQL warning: encountered a mix of histograms and floats for aggregation",
            );
        }
        if self.resets_collide {
            notes.warn(
                span,
                "PromQL warning: conflicting counter resets during histogram aggregation",
            );
        }
        if self.bounds_reconciled {
            notes.info(
                span,
                "PromQL info: mismatched custom buckets were reconciled during aggregation",
            );
        }
        for metric in self.incompatible_metrics {
            notes.warn(
                span,
                format!(
                    "PromQL warning: vector contains a mix of histograms with exponential and \
                     custom buckets schemas for metric name {metric:?}"
                ),
            );
        }
        for (metric, reason) in self.unmergeable_metrics {
            notes.warn(
                span,
                format!(
                    "no result for a group of {metric:?}: {reason}, as if they were recorded in \
                     different units; use exact_increase(…) instead of rate(…) or increase(…), \
                     which merges them with bounds, or group by a label that separates them"
                ),
            );
        }
    }
}

/// Folds lower bound, estimate and upper bound separately.
#[derive(Clone, Default)]
struct BoundedFold<F> {
    estimate: F,
    /// Folds of the lower and upper bounds, once a value has bounds.
    ends: Option<Box<[F; 2]>>,
}

impl<F: GroupFold> GroupFold for BoundedFold<F> {
    fn push(&mut self, value: StepValue, metric: &str, findings: &mut FoldAnnotations) {
        if matches!(value, StepValue::Bracket(_)) && self.ends.is_none() {
            self.ends = Some(Box::new([self.estimate.clone(), self.estimate.clone()]));
        }
        if let Some(ends) = &mut self.ends {
            let [lower, upper] = match &value {
                StepValue::Bracket(bracket) => {
                    [bracket.lower, bracket.upper].map(StepValue::Number)
                }
                other => [other.clone(), other.clone()],
            };
            // Annotations are reported once, for the estimate.
            let ignored = &mut FoldAnnotations::default();
            ends[0].push(lower, metric, ignored);
            ends[1].push(upper, metric, ignored);
        }
        self.estimate.push(value, metric, findings);
    }

    fn samples(&self) -> u64 {
        self.estimate.samples() + 2 * u64::from(self.ends.is_some())
    }

    fn finish(self, findings: &mut FoldAnnotations) -> Option<StepValue> {
        let estimate = self.estimate.finish(findings)?;
        let ends = self.ends.map(|ends| {
            ends.map(|end| end.finish(&mut FoldAnnotations::default()).and_then(|end| end.number()))
        });
        Some(match (ends, estimate.number()) {
            (Some([Some(lower), Some(upper)]), Some(number)) => {
                StepValue::from_bounds(lower, number, upper)
            }
            _ => estimate,
        })
    }
}

#[derive(Clone, Default)]
struct CountFold(u64);

impl GroupFold for CountFold {
    fn push(&mut self, _: StepValue, _: &str, _: &mut FoldAnnotations) {
        self.0 += 1;
    }

    fn finish(self, _: &mut FoldAnnotations) -> Option<StepValue> {
        Some(StepValue::Number(self.0 as f64))
    }
}

#[derive(Clone, Default)]
struct PresenceFold;

impl GroupFold for PresenceFold {
    fn push(&mut self, _: StepValue, _: &str, _: &mut FoldAnnotations) {}

    fn finish(self, _: &mut FoldAnnotations) -> Option<StepValue> {
        Some(StepValue::Number(1.0))
    }
}

/// Minimum or maximum; NaN only if all values are NaN.
#[derive(Clone, Default)]
struct ExtremeFold<const IS_MIN: bool>(Option<f64>);

impl<const IS_MIN: bool> GroupFold for ExtremeFold<IS_MIN> {
    fn push(&mut self, value: StepValue, _: &str, findings: &mut FoldAnnotations) {
        let Some(number) = value.number() else { return findings.ignored_histogram = true };
        let is_better = |held: f64| if IS_MIN { number < held } else { number > held };
        if self.0.is_none_or(|held| is_better(held) || held.is_nan()) {
            self.0 = Some(number);
        }
    }

    fn finish(self, _: &mut FoldAnnotations) -> Option<StepValue> {
        self.0.map(StepValue::Number)
    }
}

/// Variance by Welford's method, or its square root.
#[derive(Clone, Default)]
struct VarianceFold<const IS_ROOT: bool> {
    count: u64,
    mean: f64,
    squares: f64,
}

impl<const IS_ROOT: bool> GroupFold for VarianceFold<IS_ROOT> {
    fn push(&mut self, value: StepValue, _: &str, findings: &mut FoldAnnotations) {
        let Some(number) = value.number() else { return findings.ignored_histogram = true };
        self.count += 1;
        if self.count == 1 {
            self.mean = number;
            self.squares = if number.is_finite() { 0.0 } else { f64::NAN };
            return;
        }
        let distance = number - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (number - self.mean);
    }

    fn finish(self, _: &mut FoldAnnotations) -> Option<StepValue> {
        let variance = self.squares / self.count as f64;
        let result = if IS_ROOT { variance.sqrt() } else { variance };
        (self.count > 0).then_some(StepValue::Number(result))
    }
}

fn warn_of_invalid_quantiles(params: &AggregateParam, notes: &mut QueryWarnings) {
    let mut warn = |q: f64| {
        let q = GoNumber(q);
        let message = format!("PromQL warning: quantile value should be between 0 and 1, got {q}");
        notes.warn(params.span, message);
    };
    if params.has_nan() {
        warn(f64::NAN);
    }
    if params.max() > 1.0 {
        warn(params.max());
    }
    if params.min() < 0.0 {
        warn(params.min());
    }
}

fn quantiles(
    group: &AggregateGroup,
    q: &[f64],
    findings: &mut FoldAnnotations,
) -> Vec<Option<StepValue>> {
    let mut numbers: [Vec<f64>; 3] = Default::default();
    let at = |(step, q): (usize, &f64)| {
        numbers.iter_mut().for_each(Vec::clear);
        let mut has_bounds = false;
        for value in group.members.iter().filter_map(|member| member.points[step].as_ref()) {
            has_bounds |= matches!(value, StepValue::Bracket(_));
            match value.bracket() {
                Some(Bracket { lower, estimate, upper }) => {
                    let ends = [lower, estimate, upper];
                    numbers.iter_mut().zip(ends).for_each(|(numbers, end)| numbers.push(end));
                }
                None => findings.ignored_histogram = true,
            }
        }
        if numbers[1].is_empty() {
            return None;
        }
        let [lowers, estimates, uppers] = &mut numbers;
        let estimate = quantile(*q, estimates);
        Some(match has_bounds {
            true => StepValue::from_bounds(quantile(*q, lowers), estimate, quantile(*q, uppers)),
            false => StepValue::Number(estimate),
        })
    };
    q.iter().enumerate().map(at).collect()
}

/// Quantile with linear interpolation; NaN counts as the smallest value. `numbers` must not be
/// empty.
fn quantile(q: f64, numbers: &mut [f64]) -> f64 {
    if q.is_nan() {
        return f64::NAN;
    }
    if !(0.0..=1.0).contains(&q) {
        return if q < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let order = |a: &f64, b: &f64| b.is_nan().cmp(&a.is_nan()).then(a.total_cmp(b));
    let rank = q * (numbers.len() - 1) as f64;
    let weight = rank - rank.floor();
    let (_, lower, above) = numbers.select_nth_unstable_by(rank.floor() as usize, order);
    let upper = above.iter().copied().min_by(order).unwrap_or(*lower);
    *lower * (1.0 - weight) + upper * weight
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[track_caller]
    fn check(q: f64, numbers: &[f64], expected: f64) {
        let found = quantile(q, &mut numbers.to_vec());
        assert!(found == expected || found.is_nan() && expected.is_nan(), "{found}");
    }

    #[test]
    fn quantiles_lie_between_numbers() {
        check(0.5, &[3.0, 1.0, 2.0], 2.0);
        check(0.5, &[4.0, 1.0, 2.0, 3.0], 2.5);
        check(0.9, &[7.0], 7.0);
        check(0.0, &[2.0, 1.0], 1.0);
        check(1.0, &[2.0, 1.0], 2.0);
        check(1.0, &[f64::NAN, -f64::NAN, 1.0], 1.0);
        check(0.0, &[1.0, f64::NAN], f64::NAN);
        check(-0.1, &[1.0], f64::NEG_INFINITY);
        check(1.1, &[1.0], f64::INFINITY);
        check(f64::NAN, &[1.0], f64::NAN);
        // A neighbour with weight 0 still counts, so infinity makes the result NaN, as in
        // Prometheus.
        check(0.5, &[1.0, 2.0, f64::INFINITY], f64::NAN);
    }
}
