//! Tests of the batch format.

use hist::Exp2;
use hist::codec::frame_body::{FrameBodyBuffer, PlainSummary};
use proptest::prelude::*;

use super::*;
use crate::exemplar::{ExemplarAttributes, ExemplarSource};

fn series(number: u8) -> Series {
    let kind = match number % 4 {
        0 => SeriesKind::Histogram(Temporality::Delta),
        1 => SeriesKind::Counter(Temporality::Cumulative),
        2 => SeriesKind::Gauge,
        _ => SeriesKind::Text,
    };
    Series::new(format!("m{number}"), kind).with_unit("ms").validate().unwrap()
}

fn value(kind: SeriesKind, number: f64) -> SampleValue {
    match kind {
        SeriesKind::Histogram(_) => {
            let mut histogram = Histogram::default();
            histogram.record(number);
            SampleValue::Histogram(Box::new(histogram))
        }
        SeriesKind::Counter(_) | SeriesKind::Gauge => SampleValue::Number(number),
        SeriesKind::Text => SampleValue::Text(number.to_string()),
    }
}

#[test]
fn histogram_by_its_frame_is_that_sample() {
    let mut buffer = FrameBodyBuffer::default();
    let (mut by_frame, mut by_value) = (BatchWriter::default(), BatchWriter::default());
    let max = HISTOGRAM_COUNT_MAX;
    for (number, count) in [(0, 1), (0, max), (0, max + 1), (1, 1)] {
        let mut body = buffer.write(Exp2::DEFAULT);
        assert!(body.add_bucket(3, count));
        let sum = 1.08 * count as f64;
        let summary = PlainSummary { count, sum, zero: 0, zero_threshold: 0.0 };
        let body = body.finish(summary).unwrap();
        let series = series(number);
        by_frame.series(&series);
        by_value.series(&series);
        for (start, end) in [(5, 9), (9, 5)] {
            let value = SampleValue::Histogram(Box::new(body.to_histogram()));
            let expected = by_value.sample(&Sample { start, end, value });
            assert_eq!(by_frame.frame((start, end), &body), expected);
        }
    }
    assert_eq!(by_frame.len(), 2);
    assert_eq!(by_frame.finish(), by_value.finish());
}

#[test]
fn histogram_with_more_buckets_than_a_block_holds_is_refused() {
    let grid = Exp2::new(8).unwrap();
    let edges = hist::Scheme::Exp2(grid);
    let max = HISTOGRAM_BUCKETS_MAX;
    let mut buffer = FrameBodyBuffer::default();
    let mut writer = BatchWriter::default();
    writer.series(&series(0));
    for (buckets, is_taken) in [(max, true), (max + 1, false)] {
        let mut body = buffer.write(grid);
        let mut sum = 0.0;
        for index in (-200_000..).take(buckets as usize) {
            assert!(body.add_bucket(index, 1));
            let (lower, upper) = edges.edges(index).unwrap();
            sum += lower.midpoint(upper);
        }
        let summary = PlainSummary { count: buckets, sum, zero: 0, zero_threshold: 0.0 };
        let body = body.finish(summary).unwrap();
        let value = SampleValue::Histogram(Box::new(body.to_histogram()));
        let results = [
            writer.frame((0, 1), &body),
            writer.sample(&Sample { start: 0, end: 1, value: value.clone() }),
        ];
        for result in results {
            match result {
                Ok(()) => assert!(is_taken),
                Err(error) => {
                    assert!(!is_taken);
                    let text = error.to_string();
                    assert!(text.contains("has 262145 buckets, limit 262144; "), "{text}");
                }
            }
        }
    }
    assert_eq!(writer.len(), 2);
    // A batch that another process wrote is checked as a whole.
    assert!(Batch::decode(writer.finish().bytes().to_vec()).is_ok());
}

#[test]
fn filtered_batch_keeps_other_groups() {
    let mut writer = BatchWriter::default();
    let mut expected = Vec::new();
    for n in 0..12u8 {
        let series = series(n % 6);
        if n % 4 < 2 {
            writer.series(&series)
        } else {
            writer.series_by_id(series.id(), &series)
        }
        for start in [i64::from(n) << 40, i64::MIN + 1] {
            let span = if start > 0 { i64::from(n) } else { i64::MAX };
            let sample =
                Sample { start, end: start + span, value: value(series.kind(), f64::from(n)) };
            writer.sample(&sample).unwrap();
            expected.push((series.id(), sample));
        }
    }
    let gap = Gap { start: 1, end: 2, producer: None, lost: None, reason: "why".to_owned() };
    writer.gap(gap.clone());
    let batch = writer.finish();
    let refused = [series(1).id(), series(4).id()];
    let mut left_out = 0;
    let left = batch.filter_series(&mut |series| !refused.contains(&series.id()), &mut |entry| {
        assert!(refused.contains(&entry.series.id()));
        left_out += 1;
    });
    let left = left.unwrap();
    let left = left.with_gaps([gap.clone()].into_iter());
    let left = Batch::decode(left.bytes().to_owned()).unwrap();
    expected.retain(|(id, _)| !refused.contains(id));
    assert_eq!((left.samples() as usize, left_out), (expected.len(), 24 - expected.len()));
    let mut reader = left.read();
    let found: Vec<(SeriesId, Sample)> = reader
        .by_ref()
        .map(|entry| {
            let entry = entry.unwrap();
            let value = entry.decode().unwrap();
            (entry.series.id(), Sample { start: entry.start, end: entry.end, value })
        })
        .collect();
    assert_eq!((found, reader.gaps()), (expected, &[gap.clone(), gap][..]));
    let whole = batch.filter_series(&mut |_| true, &mut |_| unreachable!()).unwrap();
    assert_eq!(whole.bytes(), batch.bytes());
}

proptest! {
    #[test]
    fn batches_round_trip(
        samples in prop::collection::vec((0u8..6, any::<bool>(), any::<i32>(), 0i64..1 << 40, 0.1f64..1e9), 0..40),
    ) {
        let mut writer = BatchWriter::default();
        let mut expected = Vec::new();
        for &(number, by_key, start, span, x) in &samples {
            let series = series(number);
            if by_key {
                writer.series(&series)
            } else {
                writer.series_by_id(series.id(), &series)
            }
            let start = i64::from(start) << 20;
            let sample = Sample { start, end: start + span, value: value(series.kind(), x) };
            writer.sample(&sample).unwrap();
            expected.push((series.id(), sample));
        }
        let gap = Gap { start: 1, end: 2, producer: Some(7), lost: None, reason: "why".into() };
        writer.gap(gap.clone());
        let batch = writer.finish();
        let mut reader = batch.read();
        let mut found = Vec::new();
        for entry in reader.by_ref() {
            let entry = entry.unwrap();
            let value = entry.decode().unwrap();
            found.push((entry.series.id(), Sample { start: entry.start, end: entry.end, value }));
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(reader.gaps(), &[gap]);
        prop_assert_eq!(batch.samples(), samples.len() as u64);
        prop_assert_eq!(Batch::decode(batch.bytes().to_owned()), Ok(batch.clone()));
        let values: Vec<u64> = batch.read().map(|entry| entry.unwrap().values().unwrap()).collect();
        prop_assert_eq!(values, vec![1; samples.len()]);
    }

    #[test]
    fn batch_with_keys_equals_batch_written_with_keys(
        samples in prop::collection::vec((0u8..6, any::<bool>(), any::<i32>(), 0i64..1 << 40, 0.1f64..1e9), 0..40),
        has_gap in any::<bool>(),
    ) {
        let [mut mixed, mut canonical_keys] = [BatchWriter::default(), BatchWriter::default()];
        for &(number, by_key, start, span, x) in &samples {
            let series = series(number);
            let (start, value) = (i64::from(start) << 20, value(series.kind(), x));
            let sample = Sample { start, end: start + span, value };
            if by_key {
                mixed.series(&series)
            } else {
                mixed.series_by_id(series.id(), &series)
            }
            canonical_keys.series(&series);
            mixed.sample(&sample).unwrap();
            canonical_keys.sample(&sample).unwrap();
        }
        if has_gap {
            let gap = Gap { start: 1, end: 2, producer: None, lost: Some(3), reason: "why".into() };
            mixed.gap(gap.clone());
            canonical_keys.gap(gap);
        }
        let (mixed, canonical_keys) = (mixed.finish(), canonical_keys.finish());
        let found = |id| (0..6).map(series).find(|series| series.id() == id);
        let canonical_key_of = |id| found(id).map(|series| series.canonical_key());
        let whole = mixed.with_canonical_keys(&mut { canonical_key_of });
        prop_assert_eq!(whole, Ok(canonical_keys.clone()));
        let unchanged = canonical_keys.with_canonical_keys(&mut |_| None);
        prop_assert_eq!(unchanged, Ok(canonical_keys.clone()));
        let is_whole = samples.iter().all(|sample| sample.1);
        prop_assert_eq!(mixed.with_canonical_keys(&mut |_| None).is_ok(), is_whole);
    }

    #[test]
    fn random_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Batch::decode(bytes.clone());
        bytes.splice(0..0, [MAGIC, VERSION]);
        let _ = Batch::decode(bytes.clone());
        bytes[VERSION_OFFSET] = VERSION_WITH_SECTIONS;
        let _ = Batch::decode(bytes);
    }
}

#[test]
fn key_of_another_kind_is_rejected() {
    let mut writer = BatchWriter::default();
    writer.series_by_id(series(2).id(), &series(2));
    writer.sample(&Sample { start: 0, end: 1, value: SampleValue::Number(1.0) }).unwrap();
    assert!(writer.finish().with_canonical_keys(&mut |_| Some(series(3).canonical_key())).is_err());
}

#[test]
fn gaps_are_mapped_and_samples_kept() {
    let gap = |producer| Gap {
        start: 1,
        end: 2,
        producer,
        lost: None,
        reason: Gap::UNCLEAN_SHUTDOWN.to_owned(),
    };
    let write = |gaps: &[Gap]| {
        let mut writer = BatchWriter::default();
        for number in 0..8 {
            let series = series(number);
            writer.series(&series);
            for end in 1..3 {
                let value = value(series.kind(), end as f64);
                writer.sample(&Sample { start: end - 1, end, value }).unwrap();
            }
        }
        gaps.iter().for_each(|gap| writer.gap(gap.clone()));
        writer.finish()
    };
    let mut map = |gap: &mut Gap| gap.producer = Some(7);
    let both = Batch::decode(write(&[gap(None), gap(Some(3))]).bytes().to_vec()).unwrap();
    let mapped = both.with_mapped_gaps(&mut map).unwrap();
    assert_eq!(mapped, write(&[gap(Some(7)), gap(Some(7))]));
    let without = write(&[]);
    assert_eq!(without.clone().with_mapped_gaps(&mut map).unwrap(), without);
}

#[test]
fn oversized_values_are_rejected() {
    let mut writer = BatchWriter::default();
    writer.series(&series(2));
    let text = SampleValue::Text(String::new());
    assert!(writer.sample(&Sample { start: 0, end: 1, value: text }).is_err());
    let number = SampleValue::Number(1.0);
    assert!(writer.sample(&Sample { start: 2, end: 1, value: number.clone() }).is_err());
    assert!(writer.sample(&Sample { start: i64::MIN, end: 1, value: number }).is_err());
}

fn exemplar(number: u8) -> Exemplar {
    Exemplar {
        time: i64::from(number) << 30,
        value: f64::from(number) + 0.5,
        trace_id: [number; 16],
        span_id: [number; 8],
        attributes: ExemplarAttributes::new([("user", "u1")]).0,
        source: ExemplarSource::Scrape,
    }
}

fn batch_with_exemplars(numbers: std::ops::Range<u8>) -> Batch {
    let mut writer = BatchWriter::default();
    for number in [0, 2] {
        writer.series_by_id(series(number).id(), &series(number));
        let value = value(series(number).kind(), 1.0);
        writer.sample(&Sample { start: 0, end: 1, value }).unwrap();
    }
    writer.gap(Gap { start: 1, end: 2, producer: None, lost: None, reason: "why".to_owned() });
    for number in numbers {
        writer.exemplar(series(number % 4).id(), &exemplar(number));
        writer.trace(spans(number));
    }
    writer.finish()
}

fn spans(number: u8) -> TraceSpans<'static> {
    TraceSpans { trace_id: [number; 16], is_cut: number.is_multiple_of(2), spans: b"spans" }
}

fn exemplars_of(batch: &Batch) -> Vec<(SeriesId, Exemplar)> {
    let mut reader = batch.read();
    assert_eq!(reader.by_ref().map(Result::unwrap).count() as u64, batch.samples());
    reader.exemplars().map(Result::unwrap).collect()
}

#[test]
fn exemplars_follow_their_batch() {
    let batch = batch_with_exemplars(0..9);
    let expected: Vec<_> = (0..9).map(|n| (series(n % 4).id(), exemplar(n))).collect();
    assert_eq!(batch.exemplars(), 9);
    assert_eq!(exemplars_of(&batch), expected);
    assert_eq!(Batch::decode(batch.bytes().to_owned()), Ok(batch.clone()));
    let key = |id| (0..4).map(series).find(|of| of.id() == id).map(|of| of.canonical_key());
    let gap = Gap { start: 3, end: 4, producer: None, lost: None, reason: "more".to_owned() };
    let changed = [
        batch.with_canonical_keys(&mut { key }).unwrap(),
        batch.filter_series(&mut |_| false, &mut |_| {}).unwrap(),
        batch.clone().with_gaps([gap].into_iter()),
        batch.clone().with_mapped_gaps(&mut |gap| gap.producer = Some(1)).unwrap(),
    ];
    for changed in changed {
        assert_eq!(changed.exemplars(), 9);
        assert_eq!(exemplars_of(&changed), expected);
        let mut reader = changed.read();
        assert!(reader.by_ref().all(|entry| entry.is_ok()));
        let found: Vec<TraceSpans<'_>> = reader.traces().map(Result::unwrap).collect();
        assert_eq!(found, (0..9).map(spans).collect::<Vec<_>>());
        assert_eq!(Batch::decode(changed.bytes().to_owned()), Ok(changed));
    }
    let without = batch.without_sections().unwrap();
    assert_eq!(without, batch_with_exemplars(0..0));
}

/// Releases without exemplars read all batches that have none.
#[test]
fn only_batches_with_exemplars_have_version_2() {
    assert_eq!(batch_with_exemplars(0..0).bytes()[..2], [MAGIC, 1]);
    assert_eq!(batch_with_exemplars(0..1).bytes()[..2], [MAGIC, 2]);
    let mut writer = BatchWriter::default();
    writer.exemplar(series(0).id(), &exemplar(0));
    assert!(writer.exemplar_bytes() > 0 && !writer.is_empty());
    assert_eq!(writer.discard_exemplars(), 1);
    assert_eq!(writer.finish().bytes(), [MAGIC, 1]);
}

#[test]
fn unknown_sections_are_skipped_in_version_2_only() {
    let mut bytes = batch_with_exemplars(0..2).bytes().to_vec();
    bytes.extend_from_slice(&[200, 3, 1, 2, 3]);
    let batch = Batch::decode(bytes.clone()).unwrap();
    assert_eq!((batch.samples(), batch.exemplars()), (2, 2));
    bytes[VERSION_OFFSET] = VERSION;
    assert!(Batch::decode(bytes.clone()).is_err());
    (bytes[VERSION_OFFSET], bytes[2]) = (3, GAPS);
    let error = Batch::decode(bytes).unwrap_err().to_string();
    assert!(error.contains("version at byte 1 is 3, expected 1 or 2"), "{error}");
    let cut = batch.bytes().len() - 1;
    assert!(Batch::decode(batch.bytes()[..cut].to_vec()).is_err());
}
