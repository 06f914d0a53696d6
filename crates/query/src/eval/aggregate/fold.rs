//! Aggregations that give one value for each group and step.

use std::collections::BTreeSet;

use hist::Bracket;

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::histogram::Number;
use crate::note::Notes;
use crate::promql::AggregateOp;
use crate::stream::{Steps, Stream};
use crate::value::Value;

use super::mean::Mean;
use super::sum::Sum;
use super::{Aggregate, Group, Params};

impl Evaluation<'_> {
    pub(super) fn fold(
        &mut self,
        aggregate: &Aggregate,
        params: &Params,
        streams: Vec<Stream>,
        steps: Steps,
    ) -> Result<Vec<Stream>> {
        if aggregate.way == AggregateOp::Quantile {
            warn_of_quantiles(params, &mut self.notes);
        }
        let mut findings = Findings::default();
        let mut results = Vec::new();
        for group in aggregate.grouping.groups(streams) {
            let held = group.members.iter().map(Stream::samples).sum();
            let mut result = Stream::new(group.labels.clone(), Vec::new());
            result.drops_name = group.members.iter().any(|member| member.drops_name);
            result.points = match aggregate.way {
                AggregateOp::Sum => folded::<Sum>(group, steps, &mut findings),
                AggregateOp::Avg => folded::<WithEnds<Mean>>(group, steps, &mut findings),
                AggregateOp::Count => folded::<Count>(group, steps, &mut findings),
                AggregateOp::Group => folded::<Any>(group, steps, &mut findings),
                AggregateOp::Min => folded::<WithEnds<Extreme<true>>>(group, steps, &mut findings),
                AggregateOp::Max => folded::<WithEnds<Extreme<false>>>(group, steps, &mut findings),
                AggregateOp::Stddev => folded::<Spread<true>>(group, steps, &mut findings),
                AggregateOp::Stdvar => folded::<Spread<false>>(group, steps, &mut findings),
                AggregateOp::Quantile => quantiles(&group, &params.numbers, &mut findings),
                way => panic!("BUG: {} is no fold", way.text()),
            };
            self.budget.hold(result.samples())?;
            self.budget.release(held);
            if !result.is_empty() {
                results.push(result);
            }
        }
        findings.tell(aggregate.way, aggregate.of.place, &mut self.notes);
        Ok(results)
    }
}

/// Values of a group at one step, put together one after another.
pub(super) trait Fold: Clone + Default {
    /// Adds a value, and says what should be known of that.
    fn push(&mut self, value: Value, metric: &str, findings: &mut Findings);

    /// What has come of it; `None` if nothing has.
    fn finish(self, findings: &mut Findings) -> Option<Value>;
}

/// What should be known of a result.
#[derive(Default)]
pub(super) struct Findings {
    /// A histogram where numbers are asked for.
    pub(super) ignored: bool,
    /// Numbers and histograms in one group.
    pub(super) mixed: bool,
    /// Resets and their absence in one group.
    pub(super) collided: bool,
    /// Histograms of different custom bounds.
    pub(super) reconciled: bool,
    /// Metrics whose histograms did not fit those before.
    pub(super) unfitting: BTreeSet<String>,
}

impl Findings {
    /// Notes all, in Prometheus' words.
    pub(super) fn tell(self, way: AggregateOp, place: Place, notes: &mut Notes) {
        if self.ignored {
            let way = way.text();
            notes.info(place, format!("PromQL info: ignored histogram in {way} aggregation"));
        }
        if self.mixed {
            notes.warn(
                place,
                "PromQL warning: encountered a mix of histograms and floats for aggregation",
            );
        }
        if self.collided {
            notes.warn(
                place,
                "PromQL warning: conflicting counter resets during histogram aggregation",
            );
        }
        if self.reconciled {
            notes.info(
                place,
                "PromQL info: mismatched custom buckets were reconciled during aggregation",
            );
        }
        for metric in self.unfitting {
            notes.warn(
                place,
                format!(
                    "PromQL warning: vector contains a mix of histograms with exponential and \
                     custom buckets schemas for metric name {metric:?}"
                ),
            );
        }
    }
}

fn folded<F: Fold>(group: Group, steps: Steps, findings: &mut Findings) -> Vec<Option<Value>> {
    let mut folds: Vec<Option<F>> = vec![None; steps.count];
    for member in group.members {
        for (fold, point) in folds.iter_mut().zip(member.points) {
            if let Some(value) = point {
                fold.get_or_insert_default().push(value, member.labels.name(), findings);
            }
        }
    }
    folds.into_iter().map(|fold| fold?.finish(findings)).collect()
}

/// Of numbers with bounds, what comes of the bounds: for what never falls where a number rises.
#[derive(Clone, Default)]
struct WithEnds<F> {
    likeliest: F,
    /// Of the lower and of the upper ends, once a number has them.
    ends: Option<Box<[F; 2]>>,
}

impl<F: Fold> Fold for WithEnds<F> {
    fn push(&mut self, value: Value, metric: &str, findings: &mut Findings) {
        if matches!(value, Value::Bracket(_)) && self.ends.is_none() {
            self.ends = Some(Box::new([self.likeliest.clone(), self.likeliest.clone()]));
        }
        if let Some(ends) = &mut self.ends {
            let [lower, upper] = match &value {
                Value::Bracket(bracket) => [bracket.lower, bracket.upper].map(Value::Number),
                other => [other.clone(), other.clone()],
            };
            // What is remarkable is said once, of the likeliest.
            let unsaid = &mut Findings::default();
            ends[0].push(lower, metric, unsaid);
            ends[1].push(upper, metric, unsaid);
        }
        self.likeliest.push(value, metric, findings);
    }

    fn finish(self, findings: &mut Findings) -> Option<Value> {
        let likeliest = self.likeliest.finish(findings)?;
        let ends = self.ends.map(|ends| {
            ends.map(|end| end.finish(&mut Findings::default()).and_then(|end| end.number()))
        });
        Some(match (ends, likeliest.number()) {
            (Some([Some(lower), Some(upper)]), Some(number)) => within(lower, number, upper),
            _ => likeliest,
        })
    }
}

/// A number with its bounds, if these are numbers.
fn within(lower: f64, estimate: f64, upper: f64) -> Value {
    if lower.is_nan() || estimate.is_nan() || upper.is_nan() {
        return Value::Number(estimate);
    }
    let (lower, upper) = (lower.min(estimate), upper.max(estimate));
    Value::of_bracket(Bracket { lower, estimate, upper })
}

#[derive(Clone, Default)]
struct Count(u64);

impl Fold for Count {
    fn push(&mut self, _: Value, _: &str, _: &mut Findings) {
        self.0 += 1;
    }

    fn finish(self, _: &mut Findings) -> Option<Value> {
        Some(Value::Number(self.0 as f64))
    }
}

#[derive(Clone, Default)]
struct Any;

impl Fold for Any {
    fn push(&mut self, _: Value, _: &str, _: &mut Findings) {}

    fn finish(self, _: &mut Findings) -> Option<Value> {
        Some(Value::Number(1.0))
    }
}

/// The least or greatest number; NaN only of nothing else.
#[derive(Clone, Default)]
struct Extreme<const IS_MIN: bool>(Option<f64>);

impl<const IS_MIN: bool> Fold for Extreme<IS_MIN> {
    fn push(&mut self, value: Value, _: &str, findings: &mut Findings) {
        let Some(number) = value.number() else { return findings.ignored = true };
        let is_better = |held: f64| if IS_MIN { number < held } else { number > held };
        if self.0.is_none_or(|held| is_better(held) || held.is_nan()) {
            self.0 = Some(number);
        }
    }

    fn finish(self, _: &mut Findings) -> Option<Value> {
        self.0.map(Value::Number)
    }
}

/// How far numbers are spread, by Welford's method: the standard deviation, or its square.
#[derive(Clone, Default)]
struct Spread<const IS_ROOT: bool> {
    count: u64,
    mean: f64,
    squares: f64,
}

impl<const IS_ROOT: bool> Fold for Spread<IS_ROOT> {
    fn push(&mut self, value: Value, _: &str, findings: &mut Findings) {
        let Some(number) = value.number() else { return findings.ignored = true };
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

    fn finish(self, _: &mut Findings) -> Option<Value> {
        let variance = self.squares / self.count as f64;
        let result = if IS_ROOT { variance.sqrt() } else { variance };
        (self.count > 0).then_some(Value::Number(result))
    }
}

fn warn_of_quantiles(params: &Params, notes: &mut Notes) {
    let mut warn = |q: f64| {
        let q = Number(q);
        let message = format!("PromQL warning: quantile value should be between 0 and 1, got {q}");
        notes.warn(params.place, message);
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

fn quantiles(group: &Group, q: &[f64], findings: &mut Findings) -> Vec<Option<Value>> {
    let mut numbers: [Vec<f64>; 3] = Default::default();
    let at = |(step, q): (usize, &f64)| {
        numbers.iter_mut().for_each(Vec::clear);
        let mut has_bounds = false;
        for value in group.members.iter().filter_map(|member| member.points[step].as_ref()) {
            has_bounds |= matches!(value, Value::Bracket(_));
            match value.bracket() {
                Some(Bracket { lower, estimate, upper }) => {
                    let ends = [lower, estimate, upper];
                    numbers.iter_mut().zip(ends).for_each(|(numbers, end)| numbers.push(end));
                }
                None => findings.ignored = true,
            }
        }
        if numbers[1].is_empty() {
            return None;
        }
        let [lowers, estimates, uppers] = &mut numbers;
        let estimate = quantile(*q, estimates);
        Some(match has_bounds {
            true => within(quantile(*q, lowers), estimate, quantile(*q, uppers)),
            false => Value::Number(estimate),
        })
    };
    q.iter().enumerate().map(at).collect()
}

/// Between the two nearest of the numbers, in proportion; NaN counts as the least. There must be a number.
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
        // A neighbour without weight counts, so that infinity makes it undefined: as Prometheus has it.
        check(0.5, &[1.0, 2.0, f64::INFINITY], f64::NAN);
    }
}
