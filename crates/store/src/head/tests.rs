//! Rows of a cumulative histogram are increments where they can be, and read as they were added.

use hist::{DoubleDouble, Histogram, HistogramParts, Scheme, TrackedValue};
use model::{BatchWriter, Sample, SampleValue, Series, SeriesId};
use proptest::prelude::*;

use super::*;
use crate::chunk::{self, ChunkSource};
use crate::resolution::{HOUR, MINUTE};
use crate::row::Predecessor;

const KIND: SeriesKind = SeriesKind::Histogram(Temporality::Cumulative);
const NUMBER: SeriesNumber = SeriesNumber(7);
const ALL: Range<i64> = i64::MIN..i64::MAX;

/// What happens before a sample.
#[derive(Clone, Copy, Debug)]
enum SampleEvent {
    Growth,
    /// Counts start at zero.
    Reset,
    /// This sample and later ones begin at the end of the one before it.
    MovedStart,
    Decrease,
    Scale(i32),
    ExplicitBounds(u8),
    ZeroThreshold(f64),
    Sum(f64),
    Negative,
    Empty,
    Repeated,
}

/// A sample: what happens before it, what it adds to the one before, minutes since then.
type Step = (SampleEvent, Vec<(i32, u64)>, i64);

fn samples(steps: &[Step]) -> Vec<Row<Histogram>> {
    let mut parts = HistogramParts::new(Scheme::exp2(3).unwrap());
    let (mut start, mut end, mut sum) = (None, 5 * HOUR, 0.0);
    let mut rows: Vec<Row<Histogram>> = Vec::new();
    for (event, counts, minutes) in steps {
        let grid = match *event {
            SampleEvent::Scale(scale) => Some(Scheme::exp2(scale).unwrap()),
            SampleEvent::ExplicitBounds(bounds) => {
                let bounds: Vec<f64> = (0..90).map(|bound| f64::from(bound + bounds)).collect();
                Some(Scheme::explicit(&bounds).unwrap())
            }
            SampleEvent::Reset => Some(parts.scheme.clone()),
            _ => None,
        };
        if let Some(grid) = grid {
            // Counts go on where the grid becomes coarser.
            let mut counts = Histogram::new(grid.clone());
            let is_kept = matches!(event, SampleEvent::Scale(_))
                && counts.merge(&Histogram::from_recorded_parts(parts.clone()).unwrap()).is_ok()
                && *counts.scheme() == grid;
            match is_kept {
                true => parts.positive = counts.positive().iter().collect(),
                false => (parts.positive, parts.negative, parts.zero) = (vec![], vec![], 0),
            }
            parts.scheme = grid;
        }
        let is_mirrored = parts.scheme.is_mirrored();
        for &(index, count) in counts {
            let index = if is_mirrored { index } else { index + 40 };
            sum += count as f64 * 0.1;
            match parts.positive.binary_search_by_key(&index, |bucket| bucket.0) {
                Ok(at) => parts.positive[at].1 += count,
                Err(at) => parts.positive.insert(at, (index, count.max(1))),
            }
        }
        parts.sum = TrackedValue::Exact(DoubleDouble::new(sum));
        let before = end;
        end += minutes * MINUTE;
        let mut value = parts.clone();
        match *event {
            SampleEvent::MovedStart => start = Some(before),
            SampleEvent::Decrease if !parts.positive.is_empty() => drop(parts.positive.remove(0)),
            SampleEvent::ZeroThreshold(threshold) => parts.zero_threshold = threshold,
            SampleEvent::Sum(sum) => value.sum = TrackedValue::Exact(DoubleDouble::new(sum)),
            SampleEvent::Negative if is_mirrored => value.negative = vec![(1, 1)],
            SampleEvent::Empty => {
                let scheme = parts.scheme.clone();
                value = HistogramParts { sum: value.sum, ..HistogramParts::new(scheme) };
            }
            _ => {}
        }
        let value = Histogram::from_recorded_parts(value).unwrap();
        let begin = start.filter(|&start| start < end).unwrap_or(end);
        rows.push(Row { start: begin, end, value });
        if let SampleEvent::Repeated = event {
            rows.push(rows[rows.len() / 2].clone());
        }
    }
    rows
}

fn growth(steps: impl IntoIterator<Item = Vec<(i32, u64)>>) -> Vec<Row<Histogram>> {
    let step = |counts| (SampleEvent::Growth, counts, 1);
    samples(&steps.into_iter().map(step).collect::<Vec<_>>())
}

fn head_of(rows: &[Row<Histogram>]) -> Head {
    let mut writer = BatchWriter::default();
    writer.series(&Series::new("latency", KIND).validate().unwrap());
    for Row { start, end, value } in rows {
        let value = SampleValue::Histogram(Box::new(value.clone()));
        writer.sample(&Sample { start: *start, end: *end, value }).unwrap();
    }
    let mut head = Head::default();
    writer.finish().read().for_each(|entry| head.add(NUMBER, &entry.unwrap(), KIND));
    head
}

fn chunks_of(source: ChunkSource<'_>) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    let (id, before) = (SeriesId([7; 16]), Predecessor::Nothing);
    chunk::encode(id, Resolution::Base, KIND, source, before, |_, bytes| {
        chunks.push(bytes.to_owned());
        Ok(())
    })
    .unwrap();
    chunks
}

fn rows_in(chunks: &[Vec<u8>]) -> Vec<Row<Histogram>> {
    let mut rows = Vec::new();
    for bytes in chunks {
        let header = chunk::check(bytes).unwrap();
        let Rows::Cumulative(more) = chunk::decode(&header, bytes).unwrap().0 else { panic!() };
        rows.extend(more);
    }
    rows
}

/// Checks that a head returns the rows that were added, in any range, and that their increments
/// give the chunks that the rows give.
#[track_caller]
fn check(rows: &[Row<Histogram>]) -> Head {
    let head = head_of(rows);
    let times: Vec<i64> = rows.iter().map(|row| row.end).collect();
    let some = [times[0], times[times.len() / 2] - 1, 6 * HOUR, times[times.len() - 1]];
    let ranges = some.iter().flat_map(|&from| some.iter().map(move |&to| from..to));
    for range in ranges.chain([ALL]).filter(|range| range.start <= range.end) {
        let is_in_range = |row: &&Row<Histogram>| range.contains(&(row.end - 1));
        let expected: Vec<Row<Histogram>> = rows.iter().filter(is_in_range).cloned().collect();
        let found = head.rows_of(NUMBER, KIND, &range);
        assert_eq!(found, Some(Rows::Cumulative(expected.clone())), "{range:?}");
        let is_ordered = expected.is_sorted_by(|a, b| a.end < b.end);
        let samples = head.samples_of(NUMBER, &range);
        assert_eq!(samples.is_some(), is_ordered, "{range:?}");
        if let Some(samples) = samples.filter(|_| !expected.is_empty()) {
            let chunks = chunks_of(ChunkSource::Samples(Box::new(samples)));
            assert_eq!(rows_in(&chunks), expected, "{range:?}");
            let rows = ChunkSource::Rows(Rows::Cumulative(expected));
            assert_eq!(chunks, chunks_of(rows), "{range:?}");
        }
    }
    let mut sorted = Rows::Cumulative(rows.to_vec());
    sorted.normalize(KIND);
    for time in some.into_iter().flat_map(|time| [time - 1, time]) {
        assert_eq!(head.last_sample(NUMBER, KIND, time), sorted.last_sample(time), "{time}");
    }
    head
}

#[test]
fn most_rows_are_increments() {
    let head = check(&growth((0..900).map(|number| vec![(number % 30, 1), (40, 100)])));
    let rows: Vec<bool> = head.series[&NUMBER]
        .rows(KIND)
        .map(|(.., value)| frame_increment::is_increment(value))
        .collect();
    // No reader of a row decodes more than a few rows before it.
    let frames: Vec<usize> = (0..rows.len()).filter(|&row| !rows[row]).collect();
    let step = usize::from(previous_sample::INCREMENTS_MAX) + 1;
    assert_eq!(frames, (0..900).step_by(step).collect::<Vec<_>>());
}

#[test]
fn the_limit_of_a_head_counts_the_samples_of_a_series_without_increments() {
    let sample = growth([(0..1_000).map(|bucket| (bucket, 1)).collect()]).remove(0);
    let rows: Vec<_> = (0..200).map(|_| sample.clone()).collect();
    let all = head_of(&rows);
    assert!(all.bytes() < 50_000, "they are increments: {} bytes", all.bytes());
    assert!(all.limited_bytes() >= 200 * 1_000, "{} bytes", all.limited_bytes());
}

#[test]
fn groups_with_too_many_buckets_are_halved() {
    // Each row has buckets of its own.
    let counts = |number: i32| (0..40).map(|bucket| (number * 40 + bucket - 6_000, 1)).collect();
    let rows = growth((0..300).map(counts));
    let head = head_of(&rows);
    let samples = head.samples_of(NUMBER, &ALL).unwrap();
    let chunks = chunks_of(ChunkSource::Samples(Box::new(samples)));
    assert!(chunks.len() > 1, "{} chunks", chunks.len());
    assert_eq!(rows_in(&chunks), rows);
    assert_eq!(chunks, chunks_of(ChunkSource::Rows(Rows::Cumulative(rows))));
}

#[test]
fn a_value_that_only_looks_like_an_increment_is_invalid() {
    let rows = growth([vec![(1, 2)], vec![(2, 2)]]);
    let mut head = head_of(&rows);
    let increment = head.series[&NUMBER].rows(KIND).nth(1).unwrap().2.to_owned();
    assert!(frame_increment::is_increment(&increment));
    let mut writer = BatchWriter::default();
    writer.series(&Series::new("latency", KIND).validate().unwrap());
    let value = SampleValue::Histogram(Box::new(rows[1].value.clone()));
    writer.sample(&Sample { start: 0, end: HOUR, value }).unwrap();
    let batch = writer.finish();
    let mut entry = batch.read().next().unwrap().unwrap();
    entry.value = &increment;
    head.add(NUMBER, &entry, KIND);
    let last = head.series[&NUMBER].rows(KIND).last().unwrap();
    assert_eq!(last.2, b"", "it is rejected as any frame that is none");
}

fn step() -> impl Strategy<Value = Step> {
    let event = prop_oneof![
        Just(SampleEvent::Reset),
        Just(SampleEvent::MovedStart),
        Just(SampleEvent::Decrease),
        (-1i32..6).prop_map(SampleEvent::Scale),
        (0u8..3).prop_map(SampleEvent::ExplicitBounds),
        prop::sample::select(vec![0.0, 1e-3, 8.0]).prop_map(SampleEvent::ZeroThreshold),
        prop::sample::select(vec![f64::NAN, f64::INFINITY, -1.0]).prop_map(SampleEvent::Sum),
        Just(SampleEvent::Negative),
        Just(SampleEvent::Empty),
        Just(SampleEvent::Repeated),
    ];
    (
        prop_oneof![15 => Just(SampleEvent::Growth), 1 => event],
        prop::collection::vec((-20i32..20, 0u64..1 << 20), 0..5),
        prop_oneof![40 => Just(1i64), 1 => 0i64..500, 1 => -500i64..0],
    )
}

proptest! {
    #[test]
    fn rows_are_read_as_they_were_added(steps in prop::collection::vec(step(), 1..120)) {
        check(&samples(&steps));
    }
}
