//! Delays of all sample times, stalls, and both over time. Times are nanoseconds.

use crate::hiccup::WakeUp;
use hist::Histogram;

/// Maximum number of rows of the timeline; beyond it, pairs of rows are merged.
const ROWS_MAX: usize = 20;
const ROW_NS: u64 = 100_000_000;
/// Number of longest stalls that are reported.
const LONGEST_MAX: usize = 5;
/// Bounds of the stall counts.
pub(super) const STALL_BOUNDS_NS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

/// Wake-up delay statistics.
pub struct DelayStats {
    pub(super) period_ns: u64,
    /// Delays of all sample times.
    pub(super) delays: Histogram,
    /// Number of wake-ups later than each of [`STALL_BOUNDS_NS`].
    pub(super) stall_counts: [u64; STALL_BOUNDS_NS.len()],
    /// Start, relative to the start of the measurement, and duration of the longest stalls; the
    /// longest first.
    pub(super) longest: Vec<(u64, u64)>,
    /// Sample times of stalls that have not ended.
    pub(super) dropped: u64,
    /// Delays over time: one histogram per [`DelayStats::interval_ns`].
    pub(super) intervals: Vec<Histogram>,
    pub(super) interval_ns: u64,
    /// First sample time, and last wake-up.
    start_ns: Option<u64>,
    end_ns: u64,
}

impl DelayStats {
    /// No delays yet; `period_ns` is the distance of the sample times.
    pub fn new(period_ns: u64) -> DelayStats {
        DelayStats {
            period_ns,
            delays: Histogram::default(),
            stall_counts: Default::default(),
            longest: Vec::new(),
            dropped: 0,
            intervals: Vec::new(),
            interval_ns: ROW_NS,
            start_ns: None,
            end_ns: 0,
        }
    }

    pub(super) fn duration_ns(&self) -> u64 {
        self.start_ns.map_or(0, |start| self.end_ns - start)
    }

    /// Counts a wake-up and the sample times that it missed.
    pub fn record(&mut self, woken: WakeUp) {
        let start_ns = *self.start_ns.get_or_insert(woken.intended_ns);
        self.end_ns = woken.woken_ns;
        let late_ns = woken.delay_ns();
        for (count, limit_ns) in self.stall_counts.iter_mut().zip(STALL_BOUNDS_NS) {
            *count += u64::from(late_ns > limit_ns);
        }
        if late_ns > STALL_BOUNDS_NS[0] {
            self.longest.push((woken.intended_ns - start_ns, late_ns));
            model::sort::by_key(&mut self.longest, |(_, late_ns)| std::cmp::Reverse(*late_ns));
            self.longest.truncate(LONGEST_MAX);
        }
        let left_out = woken.for_each_sample(|moment_ns, wait_ns| {
            let after_ns = moment_ns - start_ns;
            while after_ns / self.interval_ns >= ROWS_MAX as u64 {
                self.double_interval();
            }
            let row = (after_ns / self.interval_ns) as usize;
            self.intervals.resize_with(self.intervals.len().max(row + 1), Histogram::default);
            self.intervals[row].record(wait_ns as f64);
            self.delays.record(wait_ns as f64);
        });
        self.dropped += left_out;
    }

    /// Merges pairs of rows.
    fn double_interval(&mut self) {
        let joined = self.intervals.chunks(2).map(|pair| {
            let mut one = pair[0].clone();
            pair[1..].iter().for_each(|other| merge(&mut one, other));
            one
        });
        self.intervals = joined.collect();
        self.interval_ns *= 2;
    }
}

fn merge(into: &mut Histogram, other: &Histogram) {
    into.merge(other).expect("BUG: histograms of one scheme");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_reported_once_and_counts_each_period() {
        const MS: u64 = 1_000_000;
        let mut seen = DelayStats::new(MS);
        let mut next = 5 * MS;
        for number in 0..6_000 {
            let late_ns = if number == 1_000 { 300 * MS } else { 50_000 };
            let woken = WakeUp::new(next, next + late_ns, MS);
            seen.record(woken);
            next = woken.next_ns();
        }
        assert_eq!((seen.stall_counts, seen.dropped), ([1, 1, 1], 0));
        assert_eq!(seen.longest, [(1_000 * MS, 300 * MS)]);
        assert_eq!((seen.delays.count(), seen.delays.max().unwrap().estimate), (6_300, 300e6));
        assert_eq!(
            seen.delays.count_above(100e6, hist::LimitInclusion::Exclusive).estimate / 10,
            20
        );
        assert_eq!(seen.duration_ns(), 6_299 * MS + 50_000);
        // 6.3 s in intervals of 100 ms are more than 20 rows, so the interval doubles twice.
        assert_eq!((seen.interval_ns, seen.intervals.len()), (400 * MS, 16));
        assert_eq!(seen.intervals.iter().map(Histogram::count).sum::<u64>(), 6_300);
        assert!(seen.intervals.iter().all(|row| row.count() <= 400));
    }
}
