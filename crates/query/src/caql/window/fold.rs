//! Mergeable window aggregates.

use hist::DoubleDouble;

use super::super::running_variance::RunningVariance;

/// Mergeable aggregate of a window.
pub(super) trait WindowAggregate: Clone {
    /// Aggregate of one number.
    fn from_number(number: f64) -> Self;
    /// Merges the aggregate of later numbers.
    fn merge(&mut self, later: &Self);
    /// Result of the aggregate; the argument is `None` for a window without numbers.
    fn result(state: Option<&Self>) -> Option<f64>;
}

/// Sum with 100 bits of precision.
#[derive(Clone)]
pub(super) struct WindowSum(DoubleDouble);

impl WindowAggregate for WindowSum {
    fn from_number(number: f64) -> WindowSum {
        WindowSum(DoubleDouble::new(number))
    }
    fn merge(&mut self, later: &WindowSum) {
        self.0 = self.0.plus(later.0);
    }
    fn result(state: Option<&WindowSum>) -> Option<f64> {
        state.map(|state| state.0.value())
    }
}

/// Count.
#[derive(Clone)]
pub(super) struct WindowCount(u64);

impl WindowAggregate for WindowCount {
    fn from_number(_: f64) -> WindowCount {
        WindowCount(1)
    }
    fn merge(&mut self, later: &WindowCount) {
        self.0 += later.0;
    }
    fn result(state: Option<&WindowCount>) -> Option<f64> {
        Some(state.map_or(0.0, |state| state.0 as f64))
    }
}

/// 1 if there is any number.
#[derive(Clone)]
pub(super) struct AnyPresent;

impl WindowAggregate for AnyPresent {
    fn from_number(_: f64) -> AnyPresent {
        AnyPresent
    }
    fn merge(&mut self, _: &AnyPresent) {}
    fn result(state: Option<&AnyPresent>) -> Option<f64> {
        state.map(|_| 1.0)
    }
}

/// 1 if there is no number, otherwise 0.
#[derive(Clone)]
pub(super) struct AllAbsent;

impl WindowAggregate for AllAbsent {
    fn from_number(_: f64) -> AllAbsent {
        AllAbsent
    }
    fn merge(&mut self, _: &AllAbsent) {}
    fn result(state: Option<&AllAbsent>) -> Option<f64> {
        Some(if state.is_some() { 0.0 } else { 1.0 })
    }
}

/// Mean.
#[derive(Clone)]
pub(super) struct WindowMean {
    sum: DoubleDouble,
    count: u64,
}

impl WindowAggregate for WindowMean {
    fn from_number(number: f64) -> WindowMean {
        WindowMean { sum: DoubleDouble::new(number), count: 1 }
    }
    fn merge(&mut self, later: &WindowMean) {
        self.sum = self.sum.plus(later.sum);
        self.count += later.count;
    }
    fn result(state: Option<&WindowMean>) -> Option<f64> {
        state.map(|state| state.sum.value() / state.count as f64)
    }
}

/// Minimum.
#[derive(Clone)]
pub(super) struct Min(f64);

impl WindowAggregate for Min {
    fn from_number(number: f64) -> Min {
        Min(number)
    }
    fn merge(&mut self, later: &Min) {
        self.0 = self.0.min(later.0);
    }
    fn result(state: Option<&Min>) -> Option<f64> {
        state.map(|state| state.0)
    }
}

/// Maximum.
#[derive(Clone)]
pub(super) struct Max(f64);

impl WindowAggregate for Max {
    fn from_number(number: f64) -> Max {
        Max(number)
    }
    fn merge(&mut self, later: &Max) {
        self.0 = self.0.max(later.0);
    }
    fn result(state: Option<&Max>) -> Option<f64> {
        state.map(|state| state.0)
    }
}

/// Variance, or its root.
#[derive(Clone)]
pub(super) struct WindowVariance<const IS_ROOT: bool>(RunningVariance);

impl<const IS_ROOT: bool> WindowAggregate for WindowVariance<IS_ROOT> {
    fn from_number(number: f64) -> Self {
        WindowVariance(RunningVariance::from_number(number))
    }
    fn merge(&mut self, later: &Self) {
        self.0.merge(&later.0);
    }
    fn result(state: Option<&Self>) -> Option<f64> {
        let variance = state.map(|state| state.0.variance());
        if IS_ROOT { variance.map(f64::sqrt) } else { variance }
    }
}

/// First number.
#[derive(Clone)]
pub(super) struct FirstValue(f64);

impl WindowAggregate for FirstValue {
    fn from_number(number: f64) -> FirstValue {
        FirstValue(number)
    }
    fn merge(&mut self, _: &FirstValue) {}
    fn result(state: Option<&FirstValue>) -> Option<f64> {
        state.map(|state| state.0)
    }
}

/// Last number.
#[derive(Clone)]
pub(super) struct LastValue(f64);

impl WindowAggregate for LastValue {
    fn from_number(number: f64) -> LastValue {
        LastValue(number)
    }
    fn merge(&mut self, later: &LastValue) {
        self.0 = later.0;
    }
    fn result(state: Option<&LastValue>) -> Option<f64> {
        state.map(|state| state.0)
    }
}

/// Statistic of adjacent values.
pub(super) trait PairwiseStatistic: Clone {
    fn of_pair(before: f64, after: f64) -> f64;
}

/// Sum of a pairwise statistic.
#[derive(Clone)]
pub(super) struct PairwiseSum<S> {
    first: f64,
    last: f64,
    sum: f64,
    kind: std::marker::PhantomData<S>,
}

impl<S: PairwiseStatistic> WindowAggregate for PairwiseSum<S> {
    fn from_number(number: f64) -> Self {
        PairwiseSum { first: number, last: number, sum: 0.0, kind: std::marker::PhantomData }
    }
    fn merge(&mut self, later: &Self) {
        self.sum += S::of_pair(self.last, later.first) + later.sum;
        self.last = later.last;
    }
    fn result(state: Option<&Self>) -> Option<f64> {
        state.map(|state| state.sum)
    }
}

/// 1 if the number differs from the previous one.
#[derive(Clone)]
pub(super) struct Changes;

impl PairwiseStatistic for Changes {
    fn of_pair(before: f64, after: f64) -> f64 {
        if before == after { 0.0 } else { 1.0 }
    }
}

/// 1 at a counter reset, which is any decrease.
#[derive(Clone)]
pub(super) struct CounterResets;

impl PairwiseStatistic for CounterResets {
    fn of_pair(before: f64, after: f64) -> f64 {
        if after < before { 1.0 } else { 0.0 }
    }
}

/// Counter increase; after a reset, the counter value.
#[derive(Clone)]
pub(super) struct CounterIncrease;

impl PairwiseStatistic for CounterIncrease {
    fn of_pair(before: f64, after: f64) -> f64 {
        if after < before { after } else { after - before }
    }
}

/// Difference of the last and the first number.
#[derive(Clone)]
pub(super) struct Delta {
    first: f64,
    last: f64,
}

impl WindowAggregate for Delta {
    fn from_number(number: f64) -> Delta {
        Delta { first: number, last: number }
    }
    fn merge(&mut self, later: &Delta) {
        self.last = later.last;
    }
    fn result(state: Option<&Delta>) -> Option<f64> {
        state.map(|state| state.last - state.first)
    }
}
