//! Running mean and variance, mergeable.

/// Running variance (Chan, Golub, LeVeque).
#[derive(Clone, Copy, Default)]
pub(super) struct RunningVariance {
    pub(super) count: f64,
    pub(super) mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl RunningVariance {
    /// Variance of one number.
    pub(super) fn from_number(number: f64) -> RunningVariance {
        RunningVariance { count: 1.0, mean: number, squares: 0.0 }
    }

    /// Merges both by the formula of Chan, Golub and LeVeque, which avoids cancellation (Updating
    /// formulae and a pairwise algorithm for computing sample variances, 1979).
    pub(super) fn merge(&mut self, other: &RunningVariance) {
        let count = self.count + other.count;
        if count == 0.0 {
            return;
        }
        let difference = other.mean - self.mean;
        self.mean += difference * (other.count / count);
        self.squares +=
            other.squares + difference * difference * (self.count * other.count / count);
        self.count = count;
    }

    /// Mean of squared distances from the mean.
    pub(super) fn variance(&self) -> f64 {
        self.squares / self.count
    }
}

impl FromIterator<f64> for RunningVariance {
    fn from_iter<I: IntoIterator<Item = f64>>(numbers: I) -> RunningVariance {
        numbers.into_iter().fold(RunningVariance::default(), |mut sum, number| {
            sum.merge(&RunningVariance::from_number(number));
            sum
        })
    }
}
