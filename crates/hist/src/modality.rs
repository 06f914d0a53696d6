//! Mode and modality (number of peaks).
//!
//! Peaks are searched in bucket counts, so on a logarithmic grid a peak is a peak of the density
//! over the logarithm, as in a latency plot. Small counts fluctuate: a peak counts as separate only
//! if the valley beside it is deeper than counting noise (Poisson: √n).

use crate::bracket::Bracket;
use crate::cells::Cell;
use crate::histogram::Histogram;

/// Depth of a valley for the estimate, in standard deviations of the counting noise: of 10,000
/// comparisons of equal neighbours fewer than one passes by chance.
const DEVIATIONS_LIKELY: f64 = 4.0;
/// The same for the lower bound: fewer than one of 100 million.
const DEVIATIONS_SURE: f64 = 6.0;

impl Histogram {
    /// The bucket with the largest count: its bounds, with its middle as the estimate; the first of
    /// equal buckets.
    pub fn mode(&self) -> Option<Bracket> {
        let mut fullest: Option<Cell> = None;
        for cell in self.cells() {
            if fullest.is_none_or(|best| cell.count > best.count) {
                fullest = Some(cell);
            }
        }
        fullest.map(|cell| Bracket::new(cell.lower, cell.middle(), cell.upper))
    }

    /// Number of peaks of the distribution: certain, likely, and maximum.
    pub fn modality(&self) -> Bracket<u64> {
        let profile = self.profile();
        Bracket::new(
            peaks(&profile, DEVIATIONS_SURE),
            peaks(&profile, DEVIATIONS_LIKELY),
            peaks(&profile, 0.0),
        )
    }

    /// Counts in ascending order of value; one zero stands for each run of empty buckets.
    fn profile(&self) -> Vec<f64> {
        let mut profile = Vec::new();
        let mut previous: Option<i64> = None;
        // Positions only have to ascend, and to be adjacent where buckets are adjacent.
        let zero_at = 2 * i64::from(i32::MIN);
        let below = self.negative().iter().rev().map(|(i, n)| (2 * zero_at - i64::from(i), n));
        let above = self.positive().iter().map(|(i, n)| (i64::from(i), n));
        let ends = |n: u64, at: i64| (n > 0).then_some((at, n)).into_iter();
        let positions = ends(self.underflow(), i64::MIN / 2)
            .chain(below)
            .chain(ends(self.zero_count(), zero_at))
            .chain(above)
            .chain(ends(self.overflow(), i64::MAX / 2));
        for (position, count) in positions {
            if previous.is_some_and(|previous| previous + 1 < position) {
                profile.push(0.0);
            }
            profile.push(count as f64);
            previous = Some(position);
        }
        profile
    }
}

/// Peaks separated by valleys that are deeper than `deviations` standard deviations of counting
/// noise.
fn peaks(profile: &[f64], deviations: f64) -> u64 {
    let differs = |high: f64, low: f64| high - low > deviations * (high + low).sqrt();
    let mut found = 0;
    let (mut rising, mut high, mut low) = (true, 0.0, 0.0);
    for &count in profile {
        if rising {
            high = f64::max(high, count);
            if differs(high, count) {
                found += 1;
                (rising, low) = (false, count);
            }
        } else {
            low = f64::min(low, count);
            if differs(count, low) {
                (rising, high) = (true, count);
            }
        }
    }
    // After the last rise there is no valley, only the end.
    if rising && high > 0.0 && (found == 0 || differs(high, low)) { found + 1 } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Scheme;

    #[track_caller]
    fn check(counts: &[u64], expected: (u64, u64, u64)) {
        let mut histogram = Histogram::new(Scheme::default());
        for (i, &n) in counts.iter().enumerate() {
            let (_, upper) = histogram.scheme().span(i as i32).unwrap();
            histogram.record_n(upper, n);
        }
        let found = histogram.modality();
        assert_eq!((found.lower, found.estimate, found.upper), expected, "{counts:?}");
    }

    #[test]
    fn peaks_need_valleys() {
        check(&[], (0, 0, 0));
        check(&[1], (1, 1, 1));
        check(&[100, 200, 400, 200, 100], (1, 1, 1));
        check(&[100, 400, 100, 400, 100], (2, 2, 2));
        check(&[400, 100, 0, 0, 100, 400], (2, 2, 2));
        check(&[10, 14, 9, 13, 10], (1, 1, 2));
        check(&[1000, 1000, 0, 0, 1000], (2, 2, 2));
    }

    #[test]
    fn the_mode_is_the_fullest_bucket() {
        let mut histogram = Histogram::default();
        for value in [1.0, 5.0, 5.0, 5.0, 9.0, 9.0] {
            histogram.record(value);
        }
        assert!(histogram.mode().unwrap().contains(5.0));
        assert_eq!(Histogram::default().mode(), None);
    }
}
