//! Expected statistics of a synthetic data set, per four minutes.

use super::cells::{BUCKETS, FIRST_BUCKET, bucket_start_ns};
use super::{Dataset, MINUTE_NS, SyntheticSample};

/// Expected statistics, independent of sample order.
#[derive(Clone, Debug)]
pub struct ExpectedStats {
    start_ns: i64,
    windows: Vec<ExpectedWindow>,
}

/// Expected statistics of some minutes.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedWindow {
    /// When it begins, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// When it ends.
    pub end_ns: i64,
    /// How many values there were.
    pub count: u64,
    /// How many of them at or below [`super::THRESHOLD_NS`].
    pub at_or_below_threshold: u64,
    /// Their sum.
    pub sum_ns: u128,
    /// The least; `u64::MAX` if there were none.
    pub min_ns: u64,
    /// The greatest; 0 if there were none.
    pub max_ns: u64,
    counts: Vec<u64>,
}

impl ExpectedStats {
    /// Minutes of a window. A data set may end within one.
    pub const WINDOW_MINUTES: usize = 4;

    /// Of no values yet.
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

    /// Adds a sample of the data set that this was made for.
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

    /// The windows in the order of time.
    pub fn windows(&self) -> &[ExpectedWindow] {
        &self.windows
    }

    /// All of it.
    pub fn total(&self) -> ExpectedWindow {
        self.merge_windows(0, self.windows.len())
    }

    /// Several windows as one, the first and behind the last.
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

    /// The least and the greatest value that the bucket holds in which the quantile lies: that of
    /// the value of rank ⌈q · count⌉, of the least value for q = 0. `None` if there were no values.
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
