//! Merged distribution over parts on different grids.

use anyhow::Result;
use hist::{Bracket, Cell, Histogram, LimitInclusion, Mixture, Recorder, Threshold};

/// Distribution of a group: nested grids are merged, others kept as parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct MergedDistribution {
    mixture: Mixture,
}

impl From<Mixture> for MergedDistribution {
    fn from(mixture: Mixture) -> MergedDistribution {
        MergedDistribution { mixture }
    }
}

impl MergedDistribution {
    pub(crate) fn add(&mut self, histogram: &Histogram) -> Result<()> {
        Ok(self.mixture.add(histogram)?)
    }

    /// Adds all that `other` holds.
    pub(crate) fn merge(&mut self, other: &MergedDistribution) -> Result<()> {
        other.parts().iter().try_for_each(|part| self.add(part))
    }

    pub(crate) fn parts(&self) -> &[Histogram] {
        self.mixture.parts()
    }

    /// The only part, whose own statistics are the sharper ones.
    pub(crate) fn single_part(&self) -> Option<&Histogram> {
        match self.parts() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// All parts on one grid, which moves values within 0.05 %.
    pub(crate) fn flatten(&self) -> Result<Histogram> {
        Ok(self.mixture.flatten()?.histogram)
    }

    fn total(&self, f: impl Fn(&Histogram) -> u64) -> u64 {
        self.parts().iter().map(f).fold(0, u64::saturating_add)
    }

    pub(crate) fn count(&self) -> u64 {
        self.mixture.count()
    }

    pub(crate) fn nan(&self) -> u64 {
        self.total(Histogram::nan_count)
    }

    pub(crate) fn zero(&self) -> u64 {
        self.total(Histogram::zero_count)
    }

    pub(crate) fn overflow(&self) -> u64 {
        self.total(Histogram::overflow)
    }

    pub(crate) fn underflow(&self) -> u64 {
        self.total(Histogram::underflow)
    }

    /// Whether nothing at all was recorded, not even what is not a number.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0 && self.nan() == 0
    }

    pub(crate) fn sum(&self) -> Bracket {
        self.single_part().map_or_else(|| self.mixture.sum(), Histogram::sum)
    }

    /// Never above a quantile: where only the bucket is known, both estimates place it alike.
    pub(crate) fn min(&self) -> Option<Bracket> {
        let (min, first) = (self.mixture.min()?, self.quantile(0.0)?);
        let estimate = min.estimate.min(first.estimate).max(min.lower);
        Some(Bracket { estimate, ..min })
    }

    /// Never below a quantile.
    pub(crate) fn max(&self) -> Option<Bracket> {
        let (max, last) = (self.mixture.max()?, self.quantile(1.0)?);
        let estimate = max.estimate.max(last.estimate).min(max.upper);
        Some(Bracket { estimate, ..max })
    }

    pub(crate) fn mean(&self) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.mean(), Histogram::mean)
    }

    pub(crate) fn stddev(&self) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.stddev(), Histogram::stddev)
    }

    pub(crate) fn quantile(&self, q: f64) -> Option<Bracket> {
        self.single_part().map_or_else(|| self.mixture.quantile(q), |one| one.quantile(q))
    }

    /// How many values are worse than `limit`.
    pub(crate) fn count_above(&self, limit: f64) -> Bracket<u64> {
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

    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.parts().iter().flat_map(Histogram::cells)
    }
}

/// Recorder of plain numbers with exact counts above thresholds and per power of ten.
pub(crate) struct NumberRecorder {
    /// Whole numbers go the fast way.
    fast: Recorder,
    others: Histogram,
    /// Limits, ascending, and how many numbers lie above.
    limits: Vec<(f64, u64)>,
    /// How many numbers are at or above so many of [`DECADES`].
    decade_counts: [u64; DECADES.len() + 1],
}

/// Whole doubles up to here are exact, and so is their cast.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
/// From a billionth of a unit to 11 days in nanoseconds.
const DECADES: [f64; 25] = [
    1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7,
    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];
/// Powers of ten up to one.
const DECADES_TO_ONE: usize = 10;

impl NumberRecorder {
    pub(crate) fn new(limits: &[f64]) -> NumberRecorder {
        let mut limits = limits.to_vec();
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        NumberRecorder {
            fast: Recorder::new(),
            others: Histogram::default(),
            limits: limits.into_iter().map(|limit| (limit, 0)).collect(),
            decade_counts: [0; DECADES.len() + 1],
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, value: f64) {
        let whole = value as u64;
        if whole as f64 == value && value < EXACT_INTEGER_MAX {
            self.fast.record(whole);
            let place = whole.checked_ilog10().map_or(0, |power| DECADES_TO_ONE + power as usize);
            self.decade_counts[place.min(DECADES.len())] += 1;
        } else {
            self.others.record(value);
            if !value.is_nan() {
                self.decade_counts[DECADES.partition_point(|&power| power <= value)] += 1;
            }
        }
        for (limit, above) in &mut self.limits {
            *above += u64::from(value > *limit);
        }
    }

    /// What was recorded since the last call; `None` if nothing was.
    pub(crate) fn take_histogram(&mut self) -> Option<Histogram> {
        let limits: Vec<f64> = self.limits.iter().map(|limit| limit.0).collect();
        let NumberRecorder { fast, others: rest, limits, decade_counts: places } =
            std::mem::replace(self, NumberRecorder::new(&limits));
        let mut all = fast.snapshot();
        all.merge(&rest).expect("BUG: both are on the default grid, and count to less than 2^64");
        if all.is_empty() && all.nan_count() == 0 {
            return None;
        }
        let mut parts = all.into_parts();
        let mut above = 0;
        // At or above a power of ten is above the double before it.
        let decades = DECADES.iter().zip(&places[1..]).rev().map(|(power, n)| {
            above += n;
            Threshold { value: power.next_down(), above }
        });
        parts.thresholds = decades.collect();
        parts.thresholds.extend(limits.iter().map(|&(value, above)| Threshold { value, above }));
        parts.thresholds.sort_by(|a, b| a.value.total_cmp(&b.value));
        parts.thresholds.dedup_by_key(|limit| limit.value);
        Some(
            Histogram::from_parts(parts)
                .expect("BUG: thresholds ascend, and count numbers recorded"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_exact_summary_and_thresholds() {
        let values = [
            1.0,
            2.0,
            3.0,
            2.5,
            -4.0,
            0.0,
            1e300,
            101.0,
            f64::NAN,
            100.5,
            1e-9,
            0.1,
            10.0,
            1e15,
            -0.0,
            1e17,
            f64::INFINITY,
        ];
        let mut numbers = NumberRecorder::new(&[100.0, 2.5, -1.0, 2.5, 1f64.next_down()]);
        values.iter().for_each(|&value| numbers.record(value));
        let all = numbers.take_histogram().unwrap();
        assert_eq!((all.count(), all.nan_count(), all.zero_count()), (16, 1, 2));
        assert_eq!(all.tracked_min().exact(), Some(-4.0));
        assert_eq!(all.tracked_max().exact(), Some(f64::INFINITY));
        assert_eq!(all.thresholds().len(), DECADES.len() + 3);
        for &Threshold { value: limit, above } in all.thresholds() {
            assert_eq!(
                above,
                values.iter().filter(|&&value| value > limit).count() as u64,
                "{limit}"
            );
        }
        assert!(numbers.take_histogram().is_none());
    }
}
