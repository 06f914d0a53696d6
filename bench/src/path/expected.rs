//! Exact expected values: the counts that were sent, by window and endpoint.
//!
//! Counts are those of native buckets of schema 5, into which every format moves whole source
//! buckets. An answer lies within bounds that follow from the bucket of the value; a server with
//! wider buckets of its own gets wider bounds.

use std::collections::BTreeMap;

use synthetic::{Dataset, SyntheticSample};

use super::answer::{AnswerBounds, AnswerKey};
use crate::store::remote_write::{BUCKETS, BucketMap, FIRST};

/// Counts by window, group and native bucket.
#[derive(Clone)]
pub(crate) struct CountOracle {
    window_minutes: usize,
    windows: usize,
    start_ns: i64,
    /// Endpoint of each group; one empty name if the series have none.
    groups: Vec<String>,
    group_of_series: Vec<usize>,
    counts: Vec<u32>,
}

/// Greatest common divisors of the windows of the queries, in minutes: 4 and 90; 5, 15 and a day.
const WINDOW_A: usize = 2;
const WINDOW_B: usize = 5;

impl CountOracle {
    pub(crate) fn new(dataset: &Dataset) -> CountOracle {
        let scale = dataset.scale();
        let window_minutes = if scale.series == 1 { WINDOW_A } else { WINDOW_B };
        let mut groups: Vec<String> = Vec::new();
        let group_of_series = (0..scale.series).map(|at| {
            let labels = dataset.series(at).labels;
            let endpoint = labels.into_iter().find(|(name, _)| *name == "endpoint");
            let name = endpoint.map_or(String::new(), |(_, value)| value);
            groups.iter().position(|one| *one == name).unwrap_or_else(|| {
                groups.push(name);
                groups.len() - 1
            })
        });
        let group_of_series = group_of_series.collect();
        let windows = scale.minutes.div_ceil(window_minutes);
        CountOracle {
            window_minutes,
            windows,
            start_ns: dataset.start_ns(0),
            counts: vec![0; windows * groups.len() * BUCKETS],
            groups,
            group_of_series,
        }
    }

    pub(crate) fn add(&mut self, sample: &SyntheticSample, moved: &BucketMap) {
        let group = self.group_of_series[sample.series];
        let window = sample.minute / self.window_minutes;
        let start = (window * self.groups.len() + group) * BUCKETS;
        for &(index, count) in &sample.buckets {
            self.counts[start + moved.target(index)] += count as u32;
        }
    }

    pub(crate) fn merge(&mut self, other: &CountOracle) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
    }

    /// Bounds of the counts in windows of this many minutes, of all series together.
    pub(crate) fn counts(&self, minutes: usize) -> AnswerBounds {
        self.each(minutes, false, |counts| {
            let count = counts.iter().sum::<u64>() as f64;
            Some((count, count))
        })
    }

    /// Bounds of a quantile in seconds, of each endpoint or of all. A server with buckets wider
    /// than those of schema 5 gets bounds that are wider by the factor `widen`.
    pub(crate) fn quantiles(
        &self,
        q: f64,
        minutes: usize,
        by_endpoint: bool,
        widen: f64,
    ) -> AnswerBounds {
        self.each(minutes, by_endpoint, |counts| quantile_bounds(counts, q, widen))
    }

    /// Bounds of the share at or below a limit in seconds.
    pub(crate) fn shares(&self, limit_s: f64, minutes: usize, widen: f64) -> AnswerBounds {
        self.each(minutes, false, |counts| {
            let total: u64 = counts.iter().sum();
            let below = |is_below: &dyn Fn(usize) -> bool| {
                let all = counts.iter().enumerate().filter(|&(at, _)| is_below(at));
                all.map(|(_, count)| count).sum::<u64>() as f64 / total as f64
            };
            let lower = below(&|at| edge_s(at + 1) * widen <= limit_s);
            let upper = below(&|at| edge_s(at) / widen < limit_s);
            (total > 0).then_some((lower, upper))
        })
    }

    /// Bounds of each window of this many minutes, from the counts of its buckets.
    fn each(
        &self,
        minutes: usize,
        by_endpoint: bool,
        bounds: impl Fn(&[u64]) -> Option<(f64, f64)>,
    ) -> AnswerBounds {
        let (mut all, each) = (BTreeMap::new(), minutes / self.window_minutes);
        let groups: Vec<&str> = match by_endpoint {
            true => self.groups.iter().map(String::as_str).collect(),
            false => vec![""],
        };
        for window in 0..self.windows / each.max(1) {
            let mut sums = vec![0; groups.len() * BUCKETS];
            let size = self.groups.len() * BUCKETS;
            let of_window = &self.counts[window * each * size..(window + 1) * each * size];
            for (at, &count) in of_window.iter().enumerate() {
                // Counts of all groups follow one another, and repeat with each part of the window.
                let place = at % sums.len();
                sums[place] += u64::from(count);
            }
            for (group, counts) in groups.iter().zip(sums.chunks(BUCKETS)) {
                if let Some(found) = bounds(counts) {
                    all.insert(AnswerKey::new(group, self.end_s((window + 1) * each)), found);
                }
            }
        }
        all
    }

    /// End of the first `windows` windows.
    fn end_s(&self, windows: usize) -> i64 {
        self.start_ns / 1_000_000_000 + (windows * self.window_minutes) as i64 * 60
    }
}

/// Bounds of a quantile in seconds, from the counts of native buckets.
pub(crate) fn quantile_bounds(counts: &[u64], q: f64, widen: f64) -> Option<(f64, f64)> {
    let total: u64 = counts.iter().sum();
    let rank = q * total as f64;
    let bucket = |rank: f64| {
        let mut below = 0;
        counts.iter().position(|&count| {
            below += count;
            below as f64 >= rank && below > 0
        })
    };
    let (first, last) = (bucket(rank.floor())?, bucket(rank.ceil())?);
    Some((edge_s(first) / widen, edge_s(last + 1) * widen))
}

/// Lower edge of the native bucket at a place.
fn edge_s(at: usize) -> f64 {
    ((FIRST + at as i64 - 1) as f64 / 32.0).exp2()
}
