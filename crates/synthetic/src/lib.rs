//! Synthetic data sets A and B, for `topdeck gen` and the benchmarks, with exact expected
//! statistics.
//!
//! * A: one series `disk_io_latency`, 10,080 one-minute histograms from 2026-11-09T00:00:00Z,
//!   1,226,742,335 measurements in all. Disk I/O with five modes (85 us, 420 us, 7.5 ms, 60 ms, 1.9
//!   s), a load that rises and falls with the day, and incidents of 20 to 90 minutes in which modes
//!   grow or shift.
//! * B: 1,000 series `http_request_duration` (40 endpoints on 25 hosts in two regions), 1,440
//!   one-minute histograms each from 2026-11-15T00:00:00Z, 1,361,435,848 measurements in all.
//!
//! A third set, [`Shop`], is for demonstrations: it has no expected statistics, and may change.
//!
//! Values of A and B are whole nanoseconds from 1 us to 100 s, in delta histograms of the scheme
//! `LogLinear10`. The values of a minute are drawn as bucket counts. Minimum and maximum are then
//! drawn inside their buckets, and the sum between the bounds that the buckets allow. Count, sum,
//! minimum, maximum and the count at or below 12.3 ms therefore describe one possible set of
//! values exactly: the expected statistics. [`ExpectedStats`] adds them up.
//!
//! A data set is reproducible on every machine and in every release: histogram `minute` of series
//! `series` depends only on the seed and on these two numbers, so any part may be drawn in any
//! order. A smaller [`DatasetScale`] is a subset of the full data set; a larger one continues it.
//! The crate reads neither files nor clocks.
//!
//! ```
//! use synthetic::{Dataset, DatasetScale, DatasetKind};
//!
//! let scale = DatasetScale { series: 3, minutes: 5, ..DatasetScale::full(DatasetKind::Http) };
//! let dataset = Dataset::new(DatasetKind::Http, scale);
//! let mut minutes = dataset.minutes();
//! let mut count = 0;
//! for minute in &mut minutes {
//!     assert_eq!(minute.histograms.len(), 3);
//!     count += minute.histograms.iter().map(|histogram| histogram.count()).sum::<u64>();
//! }
//! assert_eq!(minutes.expected().total().count, count);
//! ```
#![forbid(unsafe_code)]

mod cells;
mod expected_csv;
mod generator;
mod keyed_rng;
mod oracle;
mod plan;
mod shape;
mod shop;
mod table;

use hist::Histogram;

pub use self::expected_csv::expected_csv;
pub use self::generator::{SampleGenerator, SyntheticSample};
pub use self::oracle::{ExpectedStats, ExpectedWindow};
use self::plan::DatasetPlan;
pub use self::shop::{Shop, ShopNumbers, ShopRequests, ShopStatement};

/// Threshold of the expected statistics: they count the values at or below it. It lies inside a
/// bucket (12 to 13 ms).
pub const THRESHOLD_NS: u64 = 12_300_000;
/// Time range of one histogram.
pub const MINUTE_NS: i64 = 60_000_000_000;

/// The two data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetKind {
    /// One disk: one series, one week.
    Disk,
    /// Requests of a web service: 1,000 series, one day.
    Http,
}

/// Scale of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetScale {
    /// Number of series.
    pub series: usize,
    /// Number of minutes.
    pub minutes: usize,
    /// Seed. Another seed draws other values with the same distribution; the totals stay the same.
    pub seed: u64,
}

impl DatasetScale {
    /// The full data set, with the official seed.
    pub fn full(which: DatasetKind) -> DatasetScale {
        match which {
            DatasetKind::Disk => DatasetScale { series: 1, minutes: 7 * 1_440, seed: 2026 },
            DatasetKind::Http => DatasetScale { series: 1_000, minutes: 1_440, seed: 2026 },
        }
    }
}

/// Series metadata of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntheticSeries {
    /// Name of the metric.
    pub metric: &'static str,
    /// Label names and values, sorted by name.
    pub labels: Vec<(&'static str, String)>,
}

/// A data set at some scale.
#[derive(Clone, Debug)]
pub struct Dataset {
    scale: DatasetScale,
    plan: DatasetPlan,
}

/// One histogram of each series.
#[derive(Clone, Debug, PartialEq)]
pub struct MinuteBatch {
    /// Minute number, from 0.
    pub number: usize,
    /// Start of the minute, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End of the minute, in nanoseconds since the Unix epoch.
    pub end_ns: i64,
    /// Histograms by series number.
    pub histograms: Vec<Histogram>,
}

impl Dataset {
    /// The data set of a disk at full scale.
    pub fn disk() -> Dataset {
        Dataset::new(DatasetKind::Disk, DatasetScale::full(DatasetKind::Disk))
    }

    /// The data set of a web service at full scale.
    pub fn http() -> Dataset {
        Dataset::new(DatasetKind::Http, DatasetScale::full(DatasetKind::Http))
    }

    /// A data set at some scale.
    pub fn new(which: DatasetKind, scale: DatasetScale) -> Dataset {
        Dataset { scale, plan: DatasetPlan::new(which, scale) }
    }

    /// Scale of the data set.
    pub fn scale(&self) -> DatasetScale {
        self.scale
    }

    /// Start of minute `minute`, in nanoseconds since the Unix epoch.
    pub fn start_ns(&self, minute: usize) -> i64 {
        self.plan.start_ns() + minute as i64 * MINUTE_NS
    }

    /// Metadata of series `series`.
    pub fn series(&self, series: usize) -> SyntheticSeries {
        self.plan.series(series)
    }

    /// Number of values in the histogram of a series and a minute.
    pub fn count(&self, series: usize, minute: usize) -> u64 {
        self.plan.count(series, minute)
    }

    /// Number of values in the data set.
    pub fn total(&self) -> u64 {
        let minutes = 0..self.scale.minutes;
        minutes.map(|m| (0..self.scale.series).map(|s| self.count(s, m)).sum::<u64>()).sum()
    }

    /// Generator of single histograms, in any order. Consecutive minutes of one series are fastest.
    pub fn generator(&self) -> SampleGenerator<'_> {
        SampleGenerator::new(self)
    }

    /// All minutes of the data set in time order.
    pub fn minutes(&self) -> MinuteBatches<'_> {
        MinuteBatches { generator: self.generator(), expected: ExpectedStats::new(self), next: 0 }
    }
}

/// Minutes in time order, with the expected statistics so far.
pub struct MinuteBatches<'a> {
    generator: SampleGenerator<'a>,
    expected: ExpectedStats,
    next: usize,
}

impl MinuteBatches<'_> {
    /// Expected statistics of the minutes returned so far.
    pub fn expected(&self) -> &ExpectedStats {
        &self.expected
    }
}

impl Iterator for MinuteBatches<'_> {
    type Item = MinuteBatch;

    fn next(&mut self) -> Option<MinuteBatch> {
        let (dataset, number) = (self.generator.dataset(), self.next);
        if number == dataset.scale.minutes {
            return None;
        }
        self.next += 1;
        let mut histograms = Vec::with_capacity(dataset.scale.series);
        for series in 0..dataset.scale.series {
            let sample = self.generator.draw(series, number);
            self.expected.add(sample);
            histograms.push(sample.histogram());
        }
        let start_ns = dataset.start_ns(number);
        Some(MinuteBatch { number, start_ns, end_ns: start_ns + MINUTE_NS, histograms })
    }
}

#[cfg(test)]
mod tests {
    use hist::{DoubleDouble, TrackedValue};

    use super::*;

    fn small(which: DatasetKind, series: usize, minutes: usize) -> Dataset {
        Dataset::new(which, DatasetScale { series, minutes, ..DatasetScale::full(which) })
    }

    /// FNV-1a hash over all fields of all samples.
    fn hash(dataset: &Dataset) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |number: u64| {
            for byte in number.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        let mut generator = dataset.generator();
        for minute in 0..dataset.scale().minutes {
            for series in 0..dataset.scale().series {
                let sample = generator.draw(series, minute);
                let sides =
                    [sample.sum_ns, sample.min_ns, sample.max_ns, sample.at_or_below_threshold];
                sides.into_iter().for_each(&mut add);
                for &(index, count) in &sample.buckets {
                    add(index as u64);
                    add(count);
                }
            }
        }
        hash
    }

    #[test]
    fn totals_match_the_official_ones() {
        assert_eq!(Dataset::disk().total(), 1_226_742_335);
        assert_eq!(Dataset::http().total(), 1_361_435_848);
        let other = DatasetScale { seed: 7, ..DatasetScale::full(DatasetKind::Http) };
        assert_eq!(Dataset::new(DatasetKind::Http, other).total(), 1_361_435_848);
        assert_eq!(Dataset::disk().start_ns(0), 1_794_182_400_000_000_000);
        assert_eq!(
            Dataset::http().start_ns(0) - Dataset::disk().start_ns(0),
            6 * 1_440 * MINUTE_NS
        );
    }

    /// These hashes identify data that benchmarks and other programs already use: they must never
    /// change.
    #[test]
    fn generated_values_never_change() {
        assert_eq!(hash(&small(DatasetKind::Disk, 1, 120)), 11_142_341_576_881_376_561);
        assert_eq!(hash(&small(DatasetKind::Http, 100, 20)), 11_465_908_672_573_577_105);
    }

    #[test]
    fn draw_order_does_not_matter() {
        let dataset = small(DatasetKind::Http, 12, 40);
        let (mut forth, mut back) = (dataset.generator(), dataset.generator());
        let all = |s: usize| (0..40).map(move |m| (s, m));
        let places: Vec<(usize, usize)> = (0..12).flat_map(all).collect();
        let one: Vec<SyntheticSample> =
            places.iter().map(|&(s, m)| forth.draw(s, m).clone()).collect();
        let other: Vec<SyntheticSample> =
            places.iter().rev().map(|&(s, m)| back.draw(s, m).clone()).collect();
        assert!(one.iter().eq(other.iter().rev()));
    }

    #[test]
    fn smaller_scale_is_a_subset_of_a_larger_one() {
        let (small, large) =
            (small(DatasetKind::Http, 3, 4), small(DatasetKind::Http, 1_050, 1_500));
        for (series, minute) in [(0, 0), (2, 3)] {
            let (mut one, mut other) = (small.generator(), large.generator());
            assert_eq!(one.draw(series, minute), other.draw(series, minute));
        }
        assert_eq!(large.series(1_049).labels[1], ("host", "web-27".to_owned()));
        assert!(large.generator().draw(1_049, 1_499).count > 0);
    }

    #[track_caller]
    fn check_used_buckets(which: DatasetKind, minutes: impl Iterator<Item = usize>, expected: f64) {
        let dataset = Dataset::new(which, DatasetScale::full(which));
        let mut generator = dataset.generator();
        let (mut used, mut histograms) = (0, 0);
        for minute in minutes {
            for series in 0..dataset.scale().series {
                used += generator.draw(series, minute).buckets.len();
                histograms += 1;
            }
        }
        let mean = used as f64 / f64::from(histograms);
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} buckets instead of {expected}");
    }

    #[test]
    fn used_bucket_count_matches_the_measured_one() {
        check_used_buckets(DatasetKind::Disk, (0..10_080).step_by(10), 373.0);
        check_used_buckets(DatasetKind::Http, (0..1_440).step_by(72), 134.5);
    }

    /// Checks what the buckets alone say about a sample.
    #[track_caller]
    fn check_consistent(sample: &SyntheticSample) {
        let histogram = sample.histogram();
        assert_eq!(histogram.count(), sample.count);
        // Exact values that contradict the buckets would have become estimates.
        assert_eq!(
            histogram.tracked_sum(),
            TrackedValue::Exact(DoubleDouble::new(sample.sum_ns as f64))
        );
        assert_eq!(histogram.tracked_min(), TrackedValue::Exact(sample.min_ns as f64));
        assert_eq!(histogram.tracked_max(), TrackedValue::Exact(sample.max_ns as f64));
        let (limit, mut below, mut inside) = (THRESHOLD_NS as f64, 0, 0);
        for (index, count) in histogram.positive().iter() {
            let (lower, upper) = histogram.scheme().edges(index).unwrap();
            below += if upper <= limit { count } else { 0 };
            inside += if lower <= limit && limit < upper { count } else { 0 };
        }
        assert!((below..=below + inside).contains(&sample.at_or_below_threshold), "{sample:?}");
    }

    #[test]
    fn every_sample_is_consistent() {
        for (which, series, minutes, every) in
            [(DatasetKind::Disk, 1, 10_080, 97), (DatasetKind::Http, 1_000, 1_440, 311)]
        {
            let dataset = small(which, series, minutes);
            let mut generator = dataset.generator();
            for minute in (0..minutes).step_by(every) {
                for series in 0..series {
                    let sample = generator.draw(series, minute);
                    check_consistent(sample);
                    assert_eq!(sample.count, dataset.count(series, minute));
                }
            }
        }
    }

    #[test]
    fn expected_stats_match_the_histograms() {
        let dataset = small(DatasetKind::Http, 30, 10);
        let mut minutes = dataset.minutes();
        let mut windows = vec![Histogram::new(hist::Scheme::LogLinear10); 3];
        for minute in &mut minutes {
            for histogram in &minute.histograms {
                windows[minute.number / 4].merge(histogram).unwrap();
            }
        }
        let truth = minutes.expected();
        assert_eq!(truth.windows().len(), 3);
        for (window, merged) in truth.windows().iter().zip(&windows) {
            assert_eq!(window.count, merged.count());
            assert_eq!(
                merged.tracked_sum(),
                TrackedValue::Exact(DoubleDouble::new(window.sum_ns as f64))
            );
            assert_eq!(merged.tracked_min(), TrackedValue::Exact(window.min_ns as f64));
            assert_eq!(merged.tracked_max(), TrackedValue::Exact(window.max_ns as f64));
            for q in [0.5, 0.99, 0.999] {
                let (lower, upper) = window.quantile_ns(q).unwrap();
                let found = merged.quantile(q).unwrap();
                // In whole nanoseconds a bucket ends one before the start of the next bucket.
                let (least, end) = (lower as f64, upper as f64 + 1.0);
                assert!(least <= found.lower && found.upper < end, "{q}: {found:?}");
            }
        }
        assert_eq!(truth.total().count, dataset.total());
    }

    #[test]
    fn incident_is_visible() {
        // The daily load changes the share of slow values slowly; an incident changes it within a
        // minute.
        let dataset = Dataset::disk();
        let mut generator = dataset.generator();
        let mut share = |minute| {
            let sample = generator.draw(0, minute);
            sample.at_or_below_threshold as f64 / sample.count as f64
        };
        let all: Vec<f64> = (0..10_080).map(&mut share).collect();
        let jumps = all.windows(2).filter(|pair| (pair[0] - pair[1]).abs() > 0.02).count();
        assert!((10..200).contains(&jumps), "{jumps}");
    }
}
