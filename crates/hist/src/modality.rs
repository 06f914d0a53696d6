//! Mode and modality (number of peaks).
//!
//! Peaks are sought in bucket counts, so on a logarithmic grid a peak is one of the density over
//! the logarithm, as a latency plot shows it. Counts of few values jump about: a peak counts as one
//! only if the valley beside it is deeper than chance digs, by the deviation that counting has
//! (Poisson: √n).

use crate::bracket::Bracket;
use crate::cells::Cell;
use crate::histogram::Histogram;

/// Deviations of counting noise between a peak and its valley for the estimate: of 10,000
/// comparisons of equal neighbours fewer than one passes by chance.
const DEVIATIONS_LIKELY: f64 = 4.0;
/// The same for the lower bound: of a hundred million, fewer than one.
const DEVIATIONS_SURE: f64 = 6.0;

impl Histogram {
    /// The bucket that holds most values: its bounds, and its middle as the estimate. The first of
    /// equals.
    pub fn mode(&self) -> Option<Bracket> {
        let mut fullest: Option<Cell> = None;
        for cell in self.cells() {
            if fullest.is_none_or(|best| cell.count > best.count) {
                fullest = Some(cell);
            }
        }
        fullest.map(|cell| Bracket::new(cell.lower, cell.middle(), cell.upper))
    }

    /// How many peaks the distribution has: surely, likely, and at most.
    pub fn modality(&self) -> Bracket<u64> {
        let profile = self.profile();
        Bracket::new(
            peaks(&profile, DEVIATIONS_SURE),
            peaks(&profile, DEVIATIONS_LIKELY),
            peaks(&profile, 0.0),
        )
    }

    /// Counts in ascending order of value; one zero stands for each stretch of empty buckets.
    fn profile(&self) -> Vec<f64> {
        let mut profile = Vec::new();
        let mut previous: Option<i64> = None;
        // Places only have to ascend and to be neighbours where buckets are.
        let zero_at = 2 * i64::from(i32::MIN);
        let below = self.negative().iter().rev().map(|(i, n)| (2 * zero_at - i64::from(i), n));
        let above = self.positive().iter().map(|(i, n)| (i64::from(i), n));
        let ends = |n: u64, at: i64| (n > 0).then_some((at, n)).into_iter();
        let places = ends(self.underflow(), i64::MIN / 2)
            .chain(below)
            .chain(ends(self.zero_count(), zero_at))
            .chain(above)
            .chain(ends(self.overflow(), i64::MAX / 2));
        for (place, count) in places {
            if previous.is_some_and(|previous| previous + 1 < place) {
                profile.push(0.0);
            }
            profile.push(count as f64);
            previous = Some(place);
        }
        profile
    }
}

/// Peaks parted by valleys that are deeper than `deviations` of counting noise.
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
    // The last climb has no valley behind it but the end.
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
