//! What is known of a stretch of numbers, such that two stretches side by side make that of both.

use hist::Sum;

use super::super::spread::Spread;

/// What is known of numbers that follow each other.
pub(super) trait Fold: Clone {
    /// Of one number.
    fn of(number: f64) -> Self;
    /// Takes in what is known of those that follow.
    fn join(&mut self, later: &Self);
    /// What is asked for; `None` is given where there are no numbers.
    fn result(held: Option<&Self>) -> Option<f64>;
}

/// Their sum, as if added with 100 bits.
#[derive(Clone)]
pub(super) struct Total(Sum);

impl Fold for Total {
    fn of(number: f64) -> Total {
        Total(Sum::new(number))
    }
    fn join(&mut self, later: &Total) {
        self.0 = self.0.plus(later.0);
    }
    fn result(held: Option<&Total>) -> Option<f64> {
        held.map(|held| held.0.value())
    }
}

/// How many they are.
#[derive(Clone)]
pub(super) struct Count(u64);

impl Fold for Count {
    fn of(_: f64) -> Count {
        Count(1)
    }
    fn join(&mut self, later: &Count) {
        self.0 += later.0;
    }
    fn result(held: Option<&Count>) -> Option<f64> {
        Some(held.map_or(0.0, |held| held.0 as f64))
    }
}

/// 1 where there are any.
#[derive(Clone)]
pub(super) struct Present;

impl Fold for Present {
    fn of(_: f64) -> Present {
        Present
    }
    fn join(&mut self, _: &Present) {}
    fn result(held: Option<&Present>) -> Option<f64> {
        held.map(|_| 1.0)
    }
}

/// 1 where there are none, else 0.
#[derive(Clone)]
pub(super) struct Absent;

impl Fold for Absent {
    fn of(_: f64) -> Absent {
        Absent
    }
    fn join(&mut self, _: &Absent) {}
    fn result(held: Option<&Absent>) -> Option<f64> {
        Some(if held.is_some() { 0.0 } else { 1.0 })
    }
}

/// Their mean.
#[derive(Clone)]
pub(super) struct Mean {
    sum: Sum,
    count: u64,
}

impl Fold for Mean {
    fn of(number: f64) -> Mean {
        Mean { sum: Sum::new(number), count: 1 }
    }
    fn join(&mut self, later: &Mean) {
        self.sum = self.sum.plus(later.sum);
        self.count += later.count;
    }
    fn result(held: Option<&Mean>) -> Option<f64> {
        held.map(|held| held.sum.value() / held.count as f64)
    }
}

/// The least.
#[derive(Clone)]
pub(super) struct Least(f64);

impl Fold for Least {
    fn of(number: f64) -> Least {
        Least(number)
    }
    fn join(&mut self, later: &Least) {
        self.0 = self.0.min(later.0);
    }
    fn result(held: Option<&Least>) -> Option<f64> {
        held.map(|held| held.0)
    }
}

/// The greatest.
#[derive(Clone)]
pub(super) struct Greatest(f64);

impl Fold for Greatest {
    fn of(number: f64) -> Greatest {
        Greatest(number)
    }
    fn join(&mut self, later: &Greatest) {
        self.0 = self.0.max(later.0);
    }
    fn result(held: Option<&Greatest>) -> Option<f64> {
        held.map(|held| held.0)
    }
}

/// The mean of the squares of their distances from the mean, or its root.
#[derive(Clone)]
pub(super) struct Variance<const IS_ROOT: bool>(Spread);

impl<const IS_ROOT: bool> Fold for Variance<IS_ROOT> {
    fn of(number: f64) -> Self {
        Variance(Spread::of(number))
    }
    fn join(&mut self, later: &Self) {
        self.0.join(&later.0);
    }
    fn result(held: Option<&Self>) -> Option<f64> {
        let variance = held.map(|held| held.0.variance());
        if IS_ROOT { variance.map(f64::sqrt) } else { variance }
    }
}

/// The first.
#[derive(Clone)]
pub(super) struct First(f64);

impl Fold for First {
    fn of(number: f64) -> First {
        First(number)
    }
    fn join(&mut self, _: &First) {}
    fn result(held: Option<&First>) -> Option<f64> {
        held.map(|held| held.0)
    }
}

/// The last.
#[derive(Clone)]
pub(super) struct Last(f64);

impl Fold for Last {
    fn of(number: f64) -> Last {
        Last(number)
    }
    fn join(&mut self, later: &Last) {
        self.0 = later.0;
    }
    fn result(held: Option<&Last>) -> Option<f64> {
        held.map(|held| held.0)
    }
}

/// What is added up over each number and the one after it.
pub(super) trait Step: Clone {
    fn between(before: f64, after: f64) -> f64;
}

/// What steps from number to number add up to.
#[derive(Clone)]
pub(super) struct Steps<S> {
    first: f64,
    last: f64,
    sum: f64,
    kind: std::marker::PhantomData<S>,
}

impl<S: Step> Fold for Steps<S> {
    fn of(number: f64) -> Self {
        Steps { first: number, last: number, sum: 0.0, kind: std::marker::PhantomData }
    }
    fn join(&mut self, later: &Self) {
        self.sum += S::between(self.last, later.first) + later.sum;
        self.last = later.last;
    }
    fn result(held: Option<&Self>) -> Option<f64> {
        held.map(|held| held.sum)
    }
}

/// 1 where it is another number.
#[derive(Clone)]
pub(super) struct Change;

impl Step for Change {
    fn between(before: f64, after: f64) -> f64 {
        if before == after { 0.0 } else { 1.0 }
    }
}

/// 1 where a counter began anew: it never falls else.
#[derive(Clone)]
pub(super) struct Reset;

impl Step for Reset {
    fn between(before: f64, after: f64) -> f64 {
        if after < before { 1.0 } else { 0.0 }
    }
}

/// What was counted, from 0 where it began anew.
#[derive(Clone)]
pub(super) struct Rise;

impl Step for Rise {
    fn between(before: f64, after: f64) -> f64 {
        if after < before { after } else { after - before }
    }
}

/// How far the last is above the first.
#[derive(Clone)]
pub(super) struct Delta {
    first: f64,
    last: f64,
}

impl Fold for Delta {
    fn of(number: f64) -> Delta {
        Delta { first: number, last: number }
    }
    fn join(&mut self, later: &Delta) {
        self.last = later.last;
    }
    fn result(held: Option<&Delta>) -> Option<f64> {
        held.map(|held| held.last - held.first)
    }
}
