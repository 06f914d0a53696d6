//! Expected statistics of a synthetic data set, per window of four minutes.

use super::cells::{BUCKETS, FIRST_BUCKET, bucket_start_ns};
use super::{Dataset, MINUTE_NS, SyntheticSample};

/// Expected statistics, independent of sample order.
#[derive(Clone, Debug)]
pub struct ExpectedStats {
    start_ns: i64,
    windows: Vec<ExpectedWindow>,
}

/// Expected statistics of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedWindow {
    /// Start of the window, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End of the window, in nanoseconds since the Unix epoch.
    pub end_ns: i64,
    /// Number of values.
    pub count: u64,
    /// Number of values at or below [`super::THRESHOLD_NS`].
    pub at_or_below_threshold: u64,
    /// Sum of the values, in nanoseconds.
    pub sum_ns: u128,
    /// Smallest value, in nanoseconds; `u64::MAX` without values.
    pub min_ns: u64,
    /// Largest value, in nanoseconds; 0 without values.
    pub max_ns: u64,
    counts: Vec<u64>,
}

impl ExpectedStats {
    /// Length of a window, in minutes. The last window of a data set may be shorter.
    pub const WINDOW_MINUTES: usize = 4;

    /// Empty statistics.
    pub fn new(dataset: &Dataset) -> ExpectedStats {
        let (start_ns, minutes) = (dataset.start_ns(0), dataset.scale().minutes);
        let window = |first: usize| {
            let last = (first + ExpectedStats::WINDOW_MINUTES).min(minutes);
            ExpectedWindow::new(
                start_ns + first as i64 * MINUTE_NS,
                start_ns + last as i64 * MINUTE_NS,
            )
        };
        let windows = (0..minutes).step_by(ExpectedStats::WINDOW_MINUTES).map(window).collect();
        ExpectedStats { start_ns, windows }
    }

    /// Adds a sample of the same data set.
    pub fn add(&mut self, sample: &SyntheticSample) {
        let window = &mut self.windows[sample.minute / ExpectedStats::WINDOW_MINUTES];
        window.count += sample.count;
        window.at_or_below_threshold += sample.at_or_below_threshold;
        window.sum_ns += u128::from(sample.sum_ns);
        window.min_ns = window.min_ns.min(sample.min_ns);
        window.max_ns = window.max_ns.max(sample.max_ns);
        for &(index, count) in &sample.buckets {
            window.counts[(index - FIRST_BUCKET) as usize] += count;
        }
    }

    /// The windows in time order.
    pub fn windows(&self) -> &[ExpectedWindow] {
        &self.windows
    }

    /// All windows merged.
    pub fn total(&self) -> ExpectedWindow {
        self.merge_windows(0, self.windows.len())
    }

    /// Merges the windows `first..end`.
    pub fn merge_windows(&self, first: usize, end: usize) -> ExpectedWindow {
        let end_ns = end.checked_sub(1).map_or(self.start_ns, |last| self.windows[last].end_ns);
        let start_ns = self.windows.get(first).map_or(end_ns, |window| window.start_ns);
        let mut all = ExpectedWindow::new(start_ns, end_ns);
        for window in &self.windows[first..end] {
            all.count += window.count;
            all.at_or_below_threshold += window.at_or_below_threshold;
            all.sum_ns += window.sum_ns;
            all.min_ns = all.min_ns.min(window.min_ns);
            all.max_ns = all.max_ns.max(window.max_ns);
            all.counts.iter_mut().zip(&window.counts).for_each(|(count, more)| *count += more);
        }
        all
    }
}

impl ExpectedWindow {
    fn new(start_ns: i64, end_ns: i64) -> ExpectedWindow {
        ExpectedWindow {
            start_ns,
            end_ns,
            count: 0,
            at_or_below_threshold: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            counts: vec![0; BUCKETS],
        }
    }

    /// Bounds of the quantile: the smallest and largest value of the bucket with the value of rank
    /// ⌈q · count⌉ (of the smallest value for q = 0). `None` without values.
    pub fn quantile_ns(&self, q: f64) -> Option<(u64, u64)> {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        let at = self.counts.iter().position(|&count| {
            below += count;
            below >= rank
        })?;
        let index = FIRST_BUCKET + at as i32;
        Some((bucket_start_ns(index), bucket_start_ns(index + 1) - 1))
    }
}
