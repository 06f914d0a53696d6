//! Chunks round-trip; damage is detected.

use hist::codec::header::Temporality;
use hist::{Histogram, Scheme};
use proptest::prelude::*;

use super::*;
use crate::resolution::MINUTE;
use crate::row::{NumberAggregate, Row};

const SERIES: SeriesId = SeriesId([7; 16]);

fn chunks(rows: Rows) -> Vec<(ChunkHeader, Vec<u8>)> {
    chunks_after(SeriesKind::Gauge, rows, Predecessor::Unknown)
}

fn chunks_after(
    kind: SeriesKind,
    rows: Rows,
    predecessor: Predecessor,
) -> Vec<(ChunkHeader, Vec<u8>)> {
    let mut chunks = Vec::new();
    let rows = ChunkSource::Rows(rows);
    encode(SERIES, Resolution::Base, kind, rows, predecessor, |header, bytes| {
        chunks.push((header, bytes.to_owned()));
        Ok(())
    })
    .unwrap();
    chunks
}

/// Checks that rows round-trip, in any number of chunks.
#[track_caller]
fn check(rows: Rows) -> Vec<(ChunkHeader, Vec<u8>)> {
    let chunks = chunks(rows.clone());
    let mut found: Option<Rows> = None;
    for (header, bytes) in &chunks {
        assert_eq!(self::check_header(bytes), *header);
        let (rows, _) = decode(header, bytes).unwrap();
        match &mut found {
            Some(found) => found.append(rows),
            None => found = Some(rows),
        }
    }
    let Some(mut found) = found else {
        assert_eq!(rows.len(), 0);
        return chunks;
    };
    if let Rows::Histograms(rows) = &mut found {
        rows.sort_by_key(Row::time);
    }
    assert_eq!(found, rows);
    chunks
}

fn check_header(bytes: &[u8]) -> ChunkHeader {
    super::check(bytes).unwrap()
}

fn with_times<T>(values: Vec<T>) -> Vec<Row<T>> {
    let row = |(at, value)| Row { start: at as i64 * MINUTE, end: (at as i64 + 1) * MINUTE, value };
    values.into_iter().enumerate().map(row).collect()
}

fn histogram(scheme: &Scheme, values: &[f64]) -> Histogram {
    let mut histogram = Histogram::new(scheme.clone());
    values.iter().for_each(|&value| histogram.record(value));
    histogram
}

/// Samples of a histogram that each add values, with a reset where the number is 0.
fn growing_histograms(steps: &[(u8, Vec<f64>)]) -> Vec<Histogram> {
    let mut held = Histogram::default();
    let step = |(reset, more): &(u8, Vec<f64>)| {
        if *reset == 0 {
            held = Histogram::default();
        }
        held.merge(&histogram(held.scheme(), more)).unwrap();
        held.clone()
    };
    steps.iter().map(step).collect()
}

fn schemes() -> impl Strategy<Value = Scheme> {
    prop_oneof![
        Just(Scheme::exp2(5).unwrap()),
        Just(Scheme::exp2(3).unwrap()),
        Just(Scheme::LogLinear10)
    ]
}

proptest! {
    #[test]
    fn histograms_round_trip(
        rows in prop::collection::vec((schemes(), prop::collection::vec(-1e3f64..1e6, 0..30)), 0..40),
    ) {
        let values = rows.iter().map(|(scheme, values)| histogram(scheme, values)).collect();
        check(Rows::Histograms(with_times(values)));
    }

    #[test]
    fn cumulative_histograms_round_trip(
        rows in prop::collection::vec((0u8..10, prop::collection::vec(0f64..1e6, 0..30)), 0..40),
    ) {
        check(Rows::Cumulative(with_times(growing_histograms(&rows))));
    }

    #[test]
    fn numbers_and_texts_round_trip(numbers in prop::collection::vec(any::<f64>().prop_filter("equal", |x| !x.is_nan()), 0..500)) {
        let summary = |&x: &f64| NumberAggregate { last: -x, ..NumberAggregate::of_number(x) };
        check(Rows::Aggregates(with_times(numbers.iter().map(summary).collect())));
        check(Rows::Texts(with_times(numbers.iter().map(f64::to_string).collect())));
        check(Rows::Numbers(with_times(numbers)));
    }
}

#[test]
fn many_rows_make_many_chunks() {
    assert_eq!(check(Rows::Numbers(with_times(vec![1.5; 1000]))).len(), 3);
    let histograms = vec![histogram(&Scheme::LogLinear10, &[1.0, 5.0]); 800];
    assert_eq!(check(Rows::Histograms(with_times(histograms))).len(), 3);
}

#[test]
fn many_buckets_make_many_chunks() {
    // Each row has other buckets: 360 rows have 360 * 400 columns, too many for one block.
    let mut values = Vec::new();
    for row in 0..360 {
        let parts = hist::HistogramParts {
            positive: (0..400).map(|at| (row * 400 + at, 1)).collect(),
            ..hist::HistogramParts::new(Scheme::Explicit(hist::Explicit::new(&bounds()).unwrap()))
        };
        if let Ok(histogram) = Histogram::from_parts(parts) {
            values.push(histogram);
        }
    }
    assert!(!values.is_empty());
    check(Rows::Histograms(with_times(values)));
}

fn bounds() -> Vec<f64> {
    (0..hist::Explicit::BOUNDS_MAX).map(|at| at as f64).collect()
}

#[test]
fn every_flipped_bit_is_found() {
    let rows =
        Rows::Histograms(with_times(vec![histogram(&Scheme::LogLinear10, &[1.0, 5.0, 5.0]); 3]));
    let (header, bytes) = chunks(rows).remove(0);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(super::check(&damaged).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(super::check(&bytes[..len]).is_err());
    }
    assert_eq!(header.rows, 3);
}

#[test]
fn nan_keeps_its_bits() {
    let odd = f64::from_bits(0x7ff8_0000_0000_1234);
    let (header, bytes) = chunks(Rows::Numbers(with_times(vec![odd, -0.0]))).remove(0);
    let (Rows::Numbers(rows), _) = decode(&header, &bytes).unwrap() else { panic!("numbers") };
    assert_eq!(rows[0].value.to_bits(), odd.to_bits());
    assert!(rows[1].value.is_sign_negative());
}

/// Checks that the predecessor, or its absence, round-trips, and that the last sample decodes
/// without the others.
#[track_caller]
fn check_after(kind: SeriesKind, mut rows: Rows, predecessor: Predecessor) {
    let chunks = chunks_after(kind, rows.clone(), predecessor.clone());
    let mut before = predecessor;
    let mut found = Rows::empty_for(kind);
    for (header, bytes) in &chunks {
        assert_eq!(check_header(bytes), *header);
        let (some, recorded) = decode(header, bytes).unwrap();
        assert_eq!(recorded, before);
        for time in [header.start, header.end - 1, header.end, i64::MAX] {
            assert_eq!(last_sample(header, bytes, time).unwrap(), some.last_sample(time), "{time}");
        }
        before = some.last_sample(i64::MAX).map_or(before, Predecessor::Sample);
        found.append(some);
    }
    found.normalize(kind);
    rows.normalize(kind);
    assert_eq!(found, rows);
}

proptest! {
    #[test]
    fn cumulative_histograms_with_predecessor_round_trip(
        rows in prop::collection::vec((0u8..10, prop::collection::vec(-1e2f64..1e6, 0..30)), 1..40),
        known in 0u8..3,
    ) {
        let mut rows = with_times(growing_histograms(&rows));
        let first = rows.remove(0);
        let predecessor = match known {
            0 => Predecessor::Unknown,
            1 => Predecessor::Nothing,
            _ => Predecessor::Sample(Rows::Cumulative(vec![first])),
        };
        check_after(SeriesKind::Histogram(Temporality::Cumulative), Rows::Cumulative(rows), predecessor);
    }

    #[test]
    fn numbers_with_predecessor_round_trip(
        numbers in prop::collection::vec(any::<f64>().prop_filter("equal", |x| !x.is_nan()), 1..800),
        known in 0u8..3,
    ) {
        let mut rows = with_times(numbers);
        let first = rows.remove(0);
        let predecessor = match known {
            0 => Predecessor::Unknown,
            1 => Predecessor::Nothing,
            _ => Predecessor::Sample(Rows::Numbers(vec![first])),
        };
        check_after(SeriesKind::Counter(Temporality::Cumulative), Rows::Numbers(rows), predecessor);
    }
}
