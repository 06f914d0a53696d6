//! Merged distribution over parts on different grids.

use hist::{Bracket, Cell, Histogram, LimitInclusion, MergeError, Mixture};

/// Distribution of a group: nested grids are merged, others kept as parts.
#[derive(Clone, Debug, Default)]
pub struct MergedDistribution {
    mixture: Mixture,
}

impl From<Mixture> for MergedDistribution {
    fn from(mixture: Mixture) -> MergedDistribution {
        MergedDistribution { mixture }
    }
}

impl MergedDistribution {
    /// Adds a histogram; an error if there are more than 2^64 values.
    pub fn add(&mut self, histogram: &Histogram) -> Result<(), MergeError> {
        self.mixture.add(histogram)
    }

    /// Adds all that `other` holds.
    pub fn merge(&mut self, other: &MergedDistribution) -> Result<(), MergeError> {
        other.parts().iter().try_for_each(|part| self.add(part))
    }

    /// Histograms whose grids do not nest.
    pub fn parts(&self) -> &[Histogram] {
        self.mixture.parts()
    }

    /// The only part, whose own statistics are the sharper ones.
    pub fn single_part(&self) -> Option<&Histogram> {
        match self.parts() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// All parts on one grid, which moves values within 0.05 %.
    pub fn flatten(&self) -> Result<Histogram, MergeError> {
        Ok(self.mixture.flatten()?.histogram)
    }

    fn total(&self, f: impl Fn(&Histogram) -> u64) -> u64 {
        self.parts().iter().map(f).fold(0, u64::saturating_add)
    }

    /// Values, without those that are not a number.
    pub fn count(&self) -> u64 {
        self.mixture.count()
    }

    /// Values that are not a number.
    pub fn nan(&self) -> u64 {
        self.total(Histogram::nan_count)
    }

    /// Values in the bucket of zero.
    pub fn zero(&self) -> u64 {
        self.total(Histogram::zero_count)
    }

    /// Values above the grids.
    pub fn overflow(&self) -> u64 {
        self.total(Histogram::overflow)
    }

    /// Values below the grids.
    pub fn underflow(&self) -> u64 {
        self.total(Histogram::underflow)
    }

    /// Whether nothing at all was recorded, not even what is not a number.
    pub fn is_empty(&self) -> bool {
        self.count() == 0 && self.nan() == 0
    }

    /// The sum of all values.
    pub fn sum(&self) -> Bracket {
        self.single_part().map_or_else(|| self.mixture.sum(), Histogram::sum)
    }

    /// Never above a quantile: where only the bucket is known, both estimates place it alike.
    pub fn min(&self) -> Option<Bracket> {
        let (min, first) = (self.mixture.min()?, self.quantile(0.0)?);
        let estimate = min.estimate.min(first.estimate).max(min.lower);
        Some(Bracket { estimate, ..min })
    }

    /// Never below a quantile.
    pub fn max(&self) -> Option<Bracket> {
        let (max, last) = (self.mixture.max()?, self.quantile(1.0)?);
        let estimate = max.estimate.max(last.estimate).min(max.upper);
        Some(Bracket { estimate, ..max })
    }

    /// The mean; `None` if there is no value.
    pub fn mean(&self) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.mean(), Histogram::mean)
    }

    /// The standard deviation; `None` if there is no value.
    pub fn stddev(&self) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.stddev(), Histogram::stddev)
    }

    /// The value of a quantile from 0 to 1; `None` if there is no value.
    pub fn quantile(&self, q: f64) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.quantile(q), |one| one.quantile(q))
    }

    /// How many values are worse than `limit`.
    pub fn count_above(&self, limit: f64) -> Bracket<u64> {
        self.mixture.count_above(limit, LimitInclusion::Exclusive)
    }

    /// How many values are at most `limit`.
    pub(crate) fn count_at_most(&self, limit: f64) -> Bracket<u64> {
        self.count_above(limit).complement(self.count())
    }

    /// How many values are less than `limit`.
    pub(crate) fn count_below(&self, limit: f64) -> Bracket<u64> {
        self.count_at_most(limit.next_down())
    }

    /// Buckets as closed bounds and counts.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.parts().iter().flat_map(Histogram::cells)
    }
}
