//! Rows of a cumulative histogram are increments where they can be, and read as they were added.

use hist::{CompensatedSum, Histogram, HistogramParts, Scheme, TrackedValue};
use model::{BatchWriter, Sample, SampleValue, Series, SeriesId};
use proptest::prelude::*;

use super::*;
use crate::chunk::{self, ChunkSource};
use crate::resolution::{HOUR, MINUTE};
use crate::row::Predecessor;

const KIND: SeriesKind = SeriesKind::Histogram(Temporality::Cumulative);
const NUMBER: SeriesNumber = SeriesNumber(7);
const ALL: Range<i64> = i64::MIN..i64::MAX;

/// A sample: what it adds to the one before it, minutes since then, whether it has a start.
type Step = (Vec<(i32, u64)>, i64, bool);

fn samples(steps: &[Step], reset: Option<usize>) -> Vec<Row<Histogram>> {
    let scheme = Scheme::exp2(3).unwrap();
    let mut value = Histogram::new(scheme.clone());
    let (mut end, mut sum) = (5 * HOUR, 0.0);
    let mut rows = Vec::new();
    for (number, (counts, minutes, has_start)) in steps.iter().enumerate() {
        if Some(number) == reset {
            value = Histogram::new(scheme.clone());
        }
        for &(index, count) in counts {
            let mut parts = HistogramParts::new(scheme.clone());
            (parts.positive, sum) = (vec![(index, count)], sum + count as f64 * 0.1);
            let added = Histogram::from_recorded_parts(parts).unwrap();
            let (sum, unknown) = (CompensatedSum::new(sum), TrackedValue::Absent);
            assert!(value.add_counts(&added, TrackedValue::Exact(sum), unknown, unknown));
        }
        end += minutes * MINUTE;
        let start = if *has_start { end - 1 } else { end };
        rows.push(Row { start, end, value: value.clone() });
    }
    rows
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

fn chunks_of(source: ChunkSource) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    let (id, before) = (SeriesId([7; 16]), Predecessor::Nothing);
    chunk::encode(id, Resolution::Base, KIND, source, before, |_, bytes| {
        chunks.push(bytes.to_owned());
        Ok(())
    })
    .unwrap();
    chunks
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
        let readings = head.readings_of(NUMBER, &range);
        assert_eq!(readings.is_some(), is_ordered, "{range:?}");
        if let Some(readings) = readings {
            let rows = ChunkSource::Rows(Rows::Cumulative(expected));
            assert_eq!(chunks_of(ChunkSource::Readings(readings)), chunks_of(rows), "{range:?}");
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
fn rows_of_a_partition_are_increments() {
    let step = |number: i32| (vec![(number % 30, 1), (40, 100)], 1, false);
    let steps: Vec<Step> = (0..900).map(step).collect();
    let head = check(&samples(&steps, None));
    let rows: Vec<bool> = head.series[&NUMBER]
        .rows(KIND)
        .map(|(.., value)| frame_increment::is_increment(value))
        .collect();
    // A partition begins with a frame: here those that begin at 6, 12 and 18 hours.
    let frames: Vec<usize> = (0..rows.len()).filter(|&row| !rows[row]).collect();
    assert_eq!(frames, [0, 60, 420, 780]);
    let frame = head.series[&NUMBER].last_frame.as_ref().unwrap();
    assert!(head.bytes() < 900 * 40 + frame.held_bytes(), "{} bytes", head.bytes());
}

#[test]
fn a_value_that_only_looks_like_an_increment_is_invalid() {
    let rows = samples(&[(vec![(1, 2)], 1, false), (vec![(2, 2)], 1, false)], None);
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

proptest! {
    #[test]
    fn rows_are_read_as_they_were_added(
        steps in prop::collection::vec(
            (
                prop::collection::vec((-20i32..20, 0u64..1 << 20), 0..5),
                prop_oneof![9 => Just(1i64), 1 => 0i64..500, 1 => -500i64..0],
                prop::bool::weighted(0.1),
            ),
            1..60,
        ),
        reset in prop::option::of(0usize..60),
        negative in prop::option::of(0usize..60),
    ) {
        let mut rows = samples(&steps, reset);
        if let Some(row) = negative.and_then(|number| rows.get_mut(number)) {
            row.value.record(-3.0);
        }
        check(&rows);
    }
}
