//! Extremes of the difference of two cumulative samples: exact if they changed, bounds otherwise.

use hist::codec::block;
use hist::codec::frame::SeriesMeta;
use hist::{
    Accumulator, Bracket, CumulativeHistogram, DoubleDouble, Histogram, HistogramParts,
    LimitInclusion, Scheme, TrackedValue,
};
use proptest::prelude::*;

use crate::block::block_of;
use crate::block_reference;
use crate::golden::{self, Golden, golden};

/// Default bounds of OpenTelemetry SDKs, which are meant for milliseconds.
const DEFAULT_BOUNDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0,
    10000.0,
];

/// A cumulative sample of an SDK: all values since the start.
fn sample(values: &[f64]) -> Histogram {
    let mut histogram = Histogram::new(Scheme::explicit(&DEFAULT_BOUNDS).unwrap());
    values.iter().for_each(|&value| histogram.record(value));
    histogram
}

/// The values added after `before` values, as the difference of two samples.
fn added(values: &[f64], before: usize) -> Histogram {
    let mut rest = sample(values);
    rest.subtract(&sample(&values[..before])).unwrap();
    rest
}

#[test]
fn unchanged_extremes_bound_the_values_of_the_window() {
    let window = added(&[0.25, 3.75, 0.5, 1.5], 2);
    assert_eq!(window.tracked_min(), TrackedValue::Bound(0.25));
    assert_eq!(window.tracked_max(), TrackedValue::Bound(3.75));
    let mut without_sum = window.clone().into_parts();
    without_sum.sum = TrackedValue::Absent;
    let without_sum = Histogram::from_parts(without_sum).unwrap();
    let p99 = without_sum.quantile(0.99).unwrap();
    assert_eq!((p99.lower, p99.upper), (0.25, 3.75));
    assert!(p99.estimate <= 3.75);
    let max = without_sum.max().unwrap();
    assert!(!max.is_exact() && max.upper == 3.75);
    // The sum of 0.5 and 1.5 leaves less.
    let max = window.max().unwrap();
    assert!(max.contains(1.5) && max.upper < 1.76, "{max:?}");
    let above = |limit| window.count_above(limit, LimitInclusion::Exclusive);
    assert_eq!(above(4.0), Bracket::exact(0));
    assert_eq!(window.cells().next().map(|cell| (cell.lower, cell.upper)), Some((0.25, 3.75)));
}

#[test]
fn maximum_that_rose_is_the_maximum_of_the_window() {
    let window = added(&[0.25, 0.5, 0.3, 4.5], 2);
    assert_eq!(window.tracked_max(), TrackedValue::Exact(4.5));
    assert_eq!(window.tracked_min(), TrackedValue::Bound(0.25));
    assert_eq!(window.quantile(1.0), Some(Bracket::exact(4.5)));
    // Beyond the bucket of the maximum so far, other values of the window are not bounded by it.
    let window = added(&[0.25, 0.5, 0.3, 80.0], 2);
    assert_eq!(window.tracked_max(), TrackedValue::Exact(80.0));
}

#[test]
fn extremes_since_the_start_are_exact_in_the_sum_of_all_windows() {
    let values = [0.5, 0.25, 3.0, 0.75, 0.1, 2.0];
    let mut all = sample(&values[..1]);
    let mut accumulator = Accumulator::new(all.scheme().clone());
    accumulator.add(&all).unwrap();
    for end in 2..=values.len() {
        let window = added(&values[..end], end - 1);
        all.merge(&window).unwrap();
        accumulator.add(&window).unwrap();
    }
    for all in [all, accumulator.to_histogram()] {
        assert_eq!(all.tracked_min(), TrackedValue::Exact(0.1));
        assert_eq!(all.tracked_max(), TrackedValue::Exact(3.0));
    }
}

#[test]
fn bounds_of_two_series_combine_to_the_wider_one() {
    let mut fast = added(&[0.25, 3.0, 0.5], 2);
    let slow = added(&[0.125, 4.0, 1.0], 2);
    fast.merge(&slow).unwrap();
    assert_eq!(fast.tracked_min(), TrackedValue::Bound(0.125));
    assert_eq!(fast.tracked_max(), TrackedValue::Bound(4.0));
    // A maximum below the bound of the other side is no maximum, but no value is beyond the bound.
    let mut exact = sample(&[2.0]);
    exact.merge(&slow).unwrap();
    assert_eq!(exact.tracked_max(), TrackedValue::Bound(4.0));
    // Nothing bounds a side without extremes except its bucket.
    let mut parts = sample(&[2.0]).into_parts();
    (parts.min, parts.max) = (TrackedValue::Absent, TrackedValue::Absent);
    let mut unknown = Histogram::from_parts(parts).unwrap();
    unknown.merge(&slow).unwrap();
    assert_eq!(unknown.tracked_max(), TrackedValue::Absent);
}

/// Some SDKs report the extremes of the interval beside counts since the start.
#[test]
fn maximum_that_fell_without_a_reset_is_not_believed() {
    let mut parts = sample(&[0.5, 4.0, 1.0]).into_parts();
    (parts.min, parts.max) = (TrackedValue::Exact(1.0), TrackedValue::Exact(1.0));
    let mut window = Histogram::from_parts(parts).unwrap();
    window.subtract(&sample(&[0.5, 4.0])).unwrap();
    assert_eq!(window.tracked_min(), TrackedValue::Absent);
    assert_eq!(window.tracked_max(), TrackedValue::Absent);
}

#[test]
fn bound_outside_of_the_outermost_bucket_is_dropped() {
    let with = |min: f64, max: f64| {
        let mut parts = sample(&[7.0]).into_parts();
        (parts.min, parts.max) = (TrackedValue::Bound(min), TrackedValue::Bound(max));
        let histogram = Histogram::from_parts(parts).unwrap();
        (histogram.tracked_min(), histogram.tracked_max())
    };
    assert_eq!(with(6.0, 9.0), (TrackedValue::Bound(6.0), TrackedValue::Bound(9.0)));
    assert_eq!(with(1.0, 20.0), (TrackedValue::Absent, TrackedValue::Absent));
    assert_eq!(with(20.0, 1.0), (TrackedValue::Absent, TrackedValue::Absent));
    assert_eq!(with(f64::NAN, f64::NAN), (TrackedValue::Absent, TrackedValue::Absent));
    // No more than the bucket says.
    assert_eq!(with(5.0f64.next_up(), 10.0), (TrackedValue::Absent, TrackedValue::Absent));
    // Contradicts itself.
    assert_eq!(with(9.0, 6.0), (TrackedValue::Absent, TrackedValue::Absent));
}

/// Blocks with bounds, version 3. A block without bounds is written as version 2.
fn goldens() -> Vec<(&'static str, Vec<Histogram>)> {
    let mut unknown = sample(&[7.0, 8.0]).into_parts();
    (unknown.min, unknown.max) = (TrackedValue::Absent, TrackedValue::Estimated(8.0));
    unknown.sum = TrackedValue::Estimated(DoubleDouble::new(15.0));
    let unknown = Histogram::from_parts(unknown).unwrap();
    let bound = added(&[0.25, 3.75, 0.5, 1.5], 2);
    let rose = added(&[0.25, 0.5, 0.3, 4.5], 2);
    vec![
        ("bounds", vec![bound.clone(), bound.clone()]),
        ("mixed", vec![sample(&[0.25, 3.75]), bound, sample(&[]), rose, unknown]),
    ]
}

const LEGEND: &str = "Blocks of version 3: name, contents, bytes.
These bytes are to be read for ever: see README.md.";

#[test]
fn golden_blocks_with_bounds_are_read_and_written_to_the_byte() {
    let line = |(name, histograms): &(&str, Vec<Histogram>)| Golden {
        name: (*name).into(),
        contents: histograms.iter().map(golden::text).collect::<Vec<_>>().join(" / "),
        bytes: block_of(histograms, SeriesMeta::default()),
    };
    let lines: Vec<Golden> = goldens().iter().map(line).collect();
    let stored = golden("block/v3.tsv", LEGEND, &lines);
    assert_eq!(stored.len(), lines.len());
    for ((stored, line), (_, histograms)) in stored.iter().zip(&lines).zip(goldens()) {
        assert_eq!((&stored.name, &stored.contents), (&line.name, &line.contents));
        assert_eq!(golden::hex(&stored.bytes), golden::hex(&line.bytes), "{}", line.name);
        assert_eq!(stored.bytes[1], 3);
        assert_eq!(block::decode(&stored.bytes), Ok((histograms.clone(), SeriesMeta::default())));
        let (_, plain, _) = block_reference::block(&stored.bytes);
        for (plain, histogram) in plain.iter().zip(&histograms) {
            for (found, side) in
                [(plain.min, histogram.tracked_min()), (plain.max, histogram.tracked_max())]
            {
                let expected = match side {
                    TrackedValue::Absent => None,
                    TrackedValue::Estimated(value) => Some((1, value)),
                    TrackedValue::Exact(value) => Some((2, value)),
                    TrackedValue::Bound(value) => Some((3, value)),
                };
                assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn block_of_version_2_has_no_bounds() {
    let bytes = block_of(&goldens()[0].1, SeriesMeta::default());
    let mut older = bytes[..bytes.len() - 4].to_vec();
    older[1] = 2;
    let checksum = crc32c::crc32c(&older);
    older.extend(checksum.to_le_bytes());
    let error = block::decode(&older).unwrap_err().to_string();
    assert!(error.contains("exactness"), "{error}");
}

#[test]
fn merged_rows_of_a_block_have_the_extremes_of_the_sum() {
    let (_, rows) = goldens().swap_remove(0);
    let start = sample(&[0.25, 3.75]);
    let bytes = block_of(&[vec![start.clone()], rows].concat(), SeriesMeta::default());
    let mut accumulator = Accumulator::new(start.scheme().clone());
    block::merge_into(&bytes, 0..3, &mut accumulator).unwrap();
    let sum = accumulator.to_histogram();
    assert_eq!(sum.tracked_min(), TrackedValue::Exact(0.25));
    assert_eq!(sum.tracked_max(), TrackedValue::Exact(3.75));
    assert_eq!(HistogramParts::new(sum.scheme().clone()).max, TrackedValue::Absent);
}

/// 34,424 requests in the bucket of 0 to 5 s, with a mean of 47 ms.
#[test]
fn count_above_250_ms_is_at_most_what_the_mean_allows() {
    let bucket = |sum: Option<f64>, min: TrackedValue<f64>, max: TrackedValue<f64>| {
        let mut parts = HistogramParts::new(Scheme::explicit(&DEFAULT_BOUNDS).unwrap());
        parts.positive = vec![(1, 34_424)];
        parts.sum = sum.map_or(TrackedValue::Absent, |sum| {
            TrackedValue::Exact(DoubleDouble::new(sum * 34_424.0))
        });
        (parts.min, parts.max) = (min, max);
        Histogram::from_parts(parts).unwrap()
    };
    let absent = TrackedValue::Absent;
    let above = |histogram: &Histogram| {
        histogram.count_above(0.25, LimitInclusion::Exclusive).fraction_of(34_424)
    };
    let unknown = above(&bucket(None, absent, absent));
    assert_eq!((unknown.lower, unknown.upper), (0.0, 1.0));
    assert!(unknown.estimate > 0.94, "the even spread is a guess");
    let mean = above(&bucket(Some(0.047), absent, absent));
    assert!(mean.lower == 0.0 && mean.upper > 0.187 && mean.upper < 0.189, "{mean:?}");
    assert!(mean.estimate <= mean.upper);
    // A minimum of 30 ms leaves 17 ms of 220 each.
    let min = above(&bucket(Some(0.047), TrackedValue::Exact(0.03), absent));
    assert!(min.upper > 0.077 && min.upper < 0.078, "{min:?}");
    let max = above(&bucket(Some(0.047), absent, TrackedValue::Exact(0.2)));
    assert_eq!((max.lower, max.upper), (0.0, 0.0));
    // A mean of 4 s is impossible without values above.
    let slow = above(&bucket(Some(4.0), absent, absent));
    assert!(slow.lower > 0.789 && slow.lower < 0.79, "{slow:?}");
    let median = bucket(Some(0.047), absent, absent).quantile(0.5).unwrap();
    assert!(median.upper > 0.0939 && median.upper < 0.0942, "{median:?}");
    assert!(median.is_wide() && unknown.is_wide() && mean.is_wide() && !max.is_wide());
}

proptest! {
    /// Bounds narrowed by the sum contain the truth, and queries through cumulative counts agree.
    #[test]
    fn bounds_contain_the_truth(
        values in prop::collection::vec(0.0f64..12_000.0, 1..60),
        limit in 0.0f64..12_000.0,
        q in 0.0f64..=1.0,
    ) {
        let histogram = sample(&values);
        let mut sorted = values;
        sorted.sort_by(f64::total_cmp);
        let above = sorted.iter().filter(|&&value| value > limit).count() as u64;
        prop_assert!(histogram.count_above(limit, LimitInclusion::Exclusive).contains(above));
        let rank = ((q * sorted.len() as f64).ceil() as usize).max(1);
        let quantile = histogram.quantile(q).unwrap();
        prop_assert!(quantile.contains(sorted[rank - 1]), "{quantile:?} {}", sorted[rank - 1]);
        prop_assert_eq!(CumulativeHistogram::new(&histogram).quantile(q), Some(quantile));
    }
}
