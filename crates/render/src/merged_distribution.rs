//! Merged distribution of histograms on different grids.

use hist::{Bracket, Cell, Histogram, LimitInclusion, MergeError, Mixture};

/// Distribution of a group: histograms on nested grids are merged, others are kept as parts.
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
    /// Adds a histogram; fails if the total exceeds 2^64 - 1 values.
    pub fn add(&mut self, histogram: &Histogram) -> Result<(), MergeError> {
        self.mixture.add(histogram)
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &MergedDistribution) -> Result<(), MergeError> {
        other.components().iter().try_for_each(|part| self.add(part))
    }

    /// Histograms whose grids do not nest.
    pub fn components(&self) -> &[Histogram] {
        self.mixture.components()
    }

    /// The only part, if there is one: its own statistics are more precise.
    pub fn single_part(&self) -> Option<&Histogram> {
        match self.components() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Merges all parts on one grid, which moves values by at most 0.05 %.
    pub fn flatten(&self) -> Result<Histogram, MergeError> {
        Ok(self.mixture.flatten()?.histogram)
    }

    fn total(&self, f: impl Fn(&Histogram) -> u64) -> u64 {
        self.components().iter().map(f).fold(0, u64::saturating_add)
    }

    /// Number of values, NaN excluded.
    pub fn count(&self) -> u64 {
        self.mixture.count()
    }

    /// Number of NaN values.
    pub fn nan(&self) -> u64 {
        self.total(Histogram::nan_count)
    }

    /// Number of values in the zero bucket.
    pub fn zero(&self) -> u64 {
        self.total(Histogram::zero_count)
    }

    /// Number of values above the grids.
    pub fn overflow(&self) -> u64 {
        self.total(Histogram::overflow)
    }

    /// Number of values below the grids.
    pub fn underflow(&self) -> u64 {
        self.total(Histogram::underflow)
    }

    /// Whether nothing was recorded, NaN included.
    pub fn is_empty(&self) -> bool {
        self.count() == 0 && self.nan() == 0
    }

    /// Sum of all values.
    pub fn sum(&self) -> Bracket {
        self.single_part().map_or_else(|| self.mixture.sum(), Histogram::sum)
    }

    /// Minimum, never above a quantile: if only the bucket is known, both estimates use the same
    /// position in it.
    pub fn min(&self) -> Option<Bracket> {
        let (min, first) = (self.mixture.min()?, self.quantile(0.0)?);
        let estimate = min.estimate.min(first.estimate).max(min.lower);
        Some(Bracket { estimate, ..min })
    }

    /// Maximum, never below a quantile.
    pub fn max(&self) -> Option<Bracket> {
        let (max, last) = (self.mixture.max()?, self.quantile(1.0)?);
        let estimate = max.estimate.max(last.estimate).min(max.upper);
        Some(Bracket { estimate, ..max })
    }

    /// Mean; `None` without values.
    pub fn mean(&self) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.mean(), Histogram::mean)
    }

    /// Standard deviation; `None` without values.
    pub fn stddev(&self) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.stddev(), Histogram::stddev)
    }

    /// Quantile `q` from 0 to 1; `None` without values.
    pub fn quantile(&self, q: f64) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.quantile(q), |one| one.quantile(q))
    }

    /// Number of values above `limit`.
    pub fn count_above(&self, limit: f64) -> Bracket<u64> {
        self.mixture.count_above(limit, LimitInclusion::Exclusive)
    }

    /// Number of values that are at most `limit`.
    pub(crate) fn count_at_most(&self, limit: f64) -> Bracket<u64> {
        self.count_above(limit).complement(self.count())
    }

    /// Number of values below `limit`.
    pub(crate) fn count_below(&self, limit: f64) -> Bracket<u64> {
        self.count_at_most(limit.next_down())
    }

    /// Cells: closed bounds and counts of buckets.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.components().iter().flat_map(Histogram::cells)
    }
}
