//! Mean and deviation of numbers, such that those of two sets make that of both.

/// What is known of some numbers.
#[derive(Clone, Copy, Default)]
pub(super) struct Spread {
    pub(super) count: f64,
    pub(super) mean: f64,
    /// The sum of the squares of their distances from the mean.
    squares: f64,
}

impl Spread {
    /// Of one number.
    pub(super) fn of(number: f64) -> Spread {
        Spread { count: 1.0, mean: number, squares: 0.0 }
    }

    /// Of both: by Chan, Golub and LeVeque's formula, in which nothing is cancelled (Updating formulae and a pairwise
    /// algorithm for computing sample variances, 1979).
    pub(super) fn join(&mut self, other: &Spread) {
        let count = self.count + other.count;
        if count == 0.0 {
            return;
        }
        let apart = other.mean - self.mean;
        self.mean += apart * (other.count / count);
        self.squares += other.squares + apart * apart * (self.count * other.count / count);
        self.count = count;
    }

    /// The mean of the squares of their distances from the mean.
    pub(super) fn variance(&self) -> f64 {
        self.squares / self.count
    }
}

impl FromIterator<f64> for Spread {
    fn from_iter<I: IntoIterator<Item = f64>>(numbers: I) -> Spread {
        numbers.into_iter().fold(Spread::default(), |mut held, number| {
            held.join(&Spread::of(number));
            held
        })
    }
}
