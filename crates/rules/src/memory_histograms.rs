//! Classic histograms of series in memory: the samples of `x_bucket`, `x_count` and `x_sum` as
//! distributions of `x`, as a store reads its counters.
//!
//! The increases between two scrapes are a distribution on explicit bounds, if both scrapes have
//! the same buckets. A counter that falls has begun anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hist::codec::header::Temporality;
use hist::{DoubleDouble, Histogram, HistogramParts, Mixture, Scheme, TrackedValue};
use model::{Selector, Series, SeriesKind};
use query::{LabelSet, NAME, SeriesHandle, StepValue, bucket_counters};

/// First key of the handles of classic histograms.
const FIRST_KEY: usize = 1 << 40;
const BUCKET: &str = "_bucket";
const BOUND: &str = "le";

/// Samples by time.
pub(crate) type MemorySamples = BTreeMap<i64, StepValue>;

/// Whether a handle is one of a classic histogram.
pub(crate) fn is_classic(handle: &SeriesHandle) -> bool {
    handle.key >= FIRST_KEY
}

/// Handles of the classic histograms that a selector means by their name.
pub(crate) fn select_classic(
    series: &BTreeMap<LabelSet, MemorySamples>,
    selector: &Selector,
) -> Vec<SeriesHandle> {
    let Some(counters) = bucket_counters(selector) else { return Vec::new() };
    let mut found = BTreeSet::new();
    for labels in series.keys() {
        let kind = SeriesKind::Histogram(Temporality::Cumulative);
        let of = |labels: &LabelSet, kind| {
            let others = labels.iter().filter(|(name, _)| *name != NAME);
            Series::new(labels.name(), kind).with_labels(others)
        };
        let base = labels.name().strip_suffix(BUCKET).filter(|_| bound(labels).is_some());
        let Some(base) = base else { continue };
        let histogram = labels.with(NAME, base).with(BOUND, "");
        let distribution = of(&histogram, kind).with_unit(unit_of_name(base));
        if counters.matches(&of(labels, SeriesKind::Gauge)) && selector.matches(&distribution) {
            found.insert(histogram);
        }
    }
    let handle = |(at, labels): (usize, LabelSet)| SeriesHandle {
        unit: unit_of_name(labels.name()),
        kind: SeriesKind::Histogram(Temporality::Cumulative),
        key: FIRST_KEY + at,
        labels,
    };
    found.into_iter().enumerate().map(handle).collect()
}

/// Unit that the last word of a name says, as `s` of `took_seconds`; empty if it says none.
pub(crate) fn unit_of_name(name: &str) -> String {
    decode::unit_of_name(name).map_or_else(String::new, |unit| unit.name().to_owned())
}

fn bound(labels: &LabelSet) -> Option<f64> {
    labels.get(BOUND).parse().ok().filter(|bound: &f64| *bound > f64::NEG_INFINITY)
}

/// The values of a classic histogram in a range (start exclusive, end inclusive).
pub(crate) fn classic_values(
    series: &BTreeMap<LabelSet, MemorySamples>,
    histogram: &LabelSet,
    range: &Range<i64>,
) -> Mixture {
    let buckets = bucket_samples(series, histogram);
    let sum = part(series, histogram, "_sum");
    let times = times_of(&buckets, range.end);
    let mut values = Mixture::default();
    for (earlier, later) in times.iter().zip(times.iter().skip(1)) {
        if *later <= range.start {
            continue;
        }
        if let Some(scrape) = scrape_values(&buckets, sum, [*earlier, *later]) {
            values.add(&scrape).expect("BUG: the histograms of tests can be merged");
        }
    }
    values
}

/// Times of the scrapes of a classic histogram up to a time.
pub(crate) fn classic_times(
    series: &BTreeMap<LabelSet, MemorySamples>,
    histogram: &LabelSet,
    end_ns: i64,
) -> BTreeSet<i64> {
    times_of(&bucket_samples(series, histogram), end_ns)
}

fn times_of(buckets: &[(f64, &MemorySamples)], end_ns: i64) -> BTreeSet<i64> {
    let samples = buckets.iter().flat_map(|(_, samples)| samples.range(..=end_ns));
    samples.map(|(time, _)| *time).collect()
}

fn part<'s>(
    series: &'s BTreeMap<LabelSet, MemorySamples>,
    histogram: &LabelSet,
    suffix: &str,
) -> Option<&'s MemorySamples> {
    series.get(&histogram.with(NAME, &format!("{}{suffix}", histogram.name())))
}

/// Samples of the buckets of a classic histogram, by ascending bound.
fn bucket_samples<'s>(
    series: &'s BTreeMap<LabelSet, MemorySamples>,
    histogram: &LabelSet,
) -> Vec<(f64, &'s MemorySamples)> {
    let bucket = |(labels, samples)| {
        let of: &LabelSet = labels;
        let base = of.name().strip_suffix(BUCKET)?;
        let is_of = of.with(NAME, base).with(BOUND, "") == *histogram;
        bound(of).filter(|_| is_of).map(|bound| (bound, samples))
    };
    let mut buckets: Vec<(f64, &MemorySamples)> = series.iter().filter_map(bucket).collect();
    if !buckets.iter().any(|(bound, _)| bound.is_infinite()) {
        let count = part(series, histogram, "_count");
        buckets.extend(count.map(|samples| (f64::INFINITY, samples)));
    }
    model::sort::by(&mut buckets, |a, b| a.0.total_cmp(&b.0));
    buckets.dedup_by_key(|bucket| bucket.0);
    buckets
}

/// The values between two scrapes; `None` if they have not the same buckets, or no finite bound.
fn scrape_values(
    buckets: &[(f64, &MemorySamples)],
    sum: Option<&MemorySamples>,
    times: [i64; 2],
) -> Option<Histogram> {
    let number = |samples: &MemorySamples, time: i64| {
        samples.get(&time)?.number().filter(|number| !number.is_nan())
    };
    let increase = |samples: &MemorySamples| {
        let [earlier, later] = times.map(|time| number(samples, time));
        let (earlier, later) = (earlier?, later?);
        Some(if later < earlier { later } else { later - earlier })
    };
    let [earlier, later] =
        times.map(|time| buckets.iter().filter(|of| number(of.1, time).is_some()).count());
    if earlier != later {
        return None;
    }
    let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0_u64);
    for (bound, samples) in buckets.iter().filter(|of| number(of.1, times[1]).is_some()) {
        let up_to = (increase(samples)?.round().max(0.0) as u64).max(below);
        counts.push(up_to - below);
        bounds.push(*bound);
        below = up_to;
    }
    let has_total = bounds.pop_if(|bound| bound.is_infinite()).is_some();
    let sum = sum.filter(|_| has_total && bounds.first().is_some_and(|first| *first >= 0.0));
    let parts = HistogramParts {
        positive: (0..).zip(counts).filter(|(_, count)| *count > 0).collect(),
        sum: match sum.and_then(increase) {
            Some(sum) => TrackedValue::Exact(DoubleDouble::new(sum)),
            None => TrackedValue::Absent,
        },
        ..HistogramParts::new(Scheme::explicit(&bounds).ok().filter(|_| !bounds.is_empty())?)
    };
    Histogram::from_parts(parts).ok()
}
