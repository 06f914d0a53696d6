//! One-pass reader of the usual native histogram: an exponential schema, whole counts, and no value
//! below zero.
//!
//! Its result is the body of a frame, the same as that of the histogram that the general decoder
//! (`remote.rs`, `native.rs`) returns; neither a list of counts nor a histogram is made in between.
//! Everything else (float counts, custom buckets, staleness markers, schemas above 8, sums that
//! need an exact check, invalid messages) is left to the general decoder, which also has the error
//! messages.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::bytes::unzigzag;
use hist::codec::frame_body::{FrameBodyBuffer, FrameBodyWriter, HistogramBody, PlainSummary};

use crate::exponential;
use crate::protobuf::{FieldValue, MessageReader};

use super::READ_SCHEMAS;

/// Number of spans of a usual histogram, at most. A sender with more of them may send empty ones,
/// whose list would take more memory than its message.
const SPANS_MAX: usize = 65_536;

/// Reader of usual histograms; its memory is used by one after the other.
#[derive(Debug, Default)]
pub struct PlainReader {
    body: FrameBodyBuffer,
    /// Offset and length of each span.
    spans: Vec<(i32, u32)>,
}

/// Usual histogram of a remote-write request, with what places it in a series.
#[derive(Clone, Copy, Debug)]
pub struct PlainSample<'a> {
    /// The distribution.
    pub body: HistogramBody<'a>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Version 2: start time, milliseconds since 1970; 0 if unknown.
    pub start_timestamp: i64,
    /// The number of a [`ResetHint`](super::ResetHint).
    pub reset_hint: i32,
}

impl PlainReader {
    /// Reads a message; `None` if [`RemoteSample::from_bytes`](super::RemoteSample::from_bytes)
    /// must read it.
    pub fn read(&mut self, bytes: &[u8]) -> Option<PlainSample<'_>> {
        let PlainReader { body, spans } = self;
        let fields = PlainFields::read(bytes, spans)?;
        let (grid, shift) =
            exponential::exponential_scheme("schema", fields.schema, READ_SCHEMAS).ok()?;
        if shift > 0 {
            return None;
        }
        let mut writer = body.write(grid);
        put_buckets(spans, fields.deltas, &mut writer)?;
        let PlainFields { summary, timestamp, start_timestamp, reset_hint, .. } = fields;
        let body = writer.finish(summary)?;
        Some(PlainSample { body, timestamp, start_timestamp, reset_hint })
    }
}

/// Fields of the message.
struct PlainFields<'a> {
    summary: PlainSummary,
    schema: i32,
    deltas: &'a [u8],
    timestamp: i64,
    start_timestamp: i64,
    reset_hint: i32,
}

impl<'a> PlainFields<'a> {
    /// Reads all fields; the spans into a list.
    fn read(bytes: &'a [u8], spans: &mut Vec<(i32, u32)>) -> Option<PlainFields<'a>> {
        spans.clear();
        let mut summary = PlainSummary { count: 0, sum: 0.0, zero: 0, zero_threshold: 0.0 };
        let (mut schema, mut deltas, mut reset_hint) = (0, None, 0);
        let (mut timestamp, mut start_timestamp) = (0, 0);
        let mut message = MessageReader::new(bytes);
        while let Some((number, field)) = message.field().ok()? {
            match number {
                1 => summary.count = field.varint().ok()?,
                3 => summary.sum = field.double().ok()?,
                4 => schema = field.zigzag32().ok()?,
                5 => summary.zero_threshold = field.double().ok()?,
                6 => summary.zero = field.varint().ok()?,
                11 if spans.len() < SPANS_MAX => spans.push(read_span(field)?),
                // A list in several parts, or not packed, is rare.
                12 if deltas.is_none() => deltas = Some(field.bytes().ok()?),
                14 => reset_hint = field.varint().ok()? as i32,
                15 => timestamp = field.varint().ok()? as i64,
                17 => start_timestamp = field.varint().ok()? as i64,
                2 | 7..=13 | 16 => return None,
                _ => {}
            }
        }
        let deltas = deltas.unwrap_or_default();
        Some(PlainFields { summary, schema, deltas, timestamp, start_timestamp, reset_hint })
    }
}

/// Writes the buckets that are not empty, with the indexes of the grid.
#[inline(always)]
fn put_buckets(
    spans: &[(i32, u32)],
    mut deltas: &[u8],
    writer: &mut FrameBodyWriter<'_>,
) -> Option<()> {
    // Prometheus' index of a bucket is that of the grid plus one.
    let (mut index, mut count) = (-1i64, 0i64);
    for (position, &(offset, length)) in spans.iter().enumerate() {
        if position > 0 && offset < 0 {
            return None;
        }
        index = index.wrapping_add(i64::from(offset));
        for _ in 0..length {
            let (delta, rest) = split_varint(deltas)?;
            deltas = rest;
            count = count.checked_add(unzigzag(delta)).filter(|&count| count >= 0)?;
            if count > 0 && !writer.add_bucket(i32::try_from(index).ok()?, count as u64) {
                return None;
            }
            index = index.wrapping_add(1);
        }
    }
    deltas.is_empty().then_some(())
}

/// The first number of a list, and the others.
#[inline(always)]
fn split_varint(list: &[u8]) -> Option<(u64, &[u8])> {
    // Most deltas take one or two bytes.
    match list {
        [low @ ..0x80, rest @ ..] => Some((u64::from(*low), rest)),
        [low, high @ ..0x80, rest @ ..] => {
            Some((u64::from(low & 0x7f) | u64::from(*high) << 7, rest))
        }
        _ => {
            let mut reader = MessageReader::new(list);
            let number = reader.varint().ok()?;
            Some((number, reader.remaining()))
        }
    }
}

fn read_span(field: FieldValue<'_>) -> Option<(i32, u32)> {
    let (mut offset, mut length) = (0, 0);
    let mut span = field.message().ok()?;
    while let Some((number, field)) = span.field().ok()? {
        match number {
            1 => offset = field.zigzag32().ok()?,
            2 => length = field.varint().ok()? as u32,
            _ => {}
        }
    }
    Some((offset, length))
}

#[cfg(test)]
mod tests {
    use hist::Histogram;
    use hist::codec::frame;
    use hist::codec::header::{FrameUnit, SeriesMeta};
    use proptest::prelude::*;

    use super::*;
    use crate::prometheus::{
        BucketSpan, HistogramSample, RemoteCount, RemoteHistogram, RemoteSample, RemoteZeroCount,
        STALE_MARKER,
    };

    /// Whether the message was read in one pass. Its frame must be that of the general decoder.
    #[track_caller]
    fn check_bytes(bytes: &[u8]) -> bool {
        let mut reader = PlainReader::default();
        let Some(plain) = reader.read(bytes) else { return false };
        let general = RemoteSample::from_bytes(bytes).unwrap();
        let HistogramSample::Integer(histogram) = general.value else {
            panic!("not whole counts: {:?}", general.value);
        };
        let meta = SeriesMeta { unit: FrameUnit::Seconds, ..SeriesMeta::default() };
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        plain.body.put(meta, &mut found);
        frame::encode(&histogram, meta, &mut expected);
        assert_eq!(found, expected);
        assert_eq!(
            (plain.timestamp, plain.start_timestamp, plain.reset_hint),
            (general.timestamp, general.start_timestamp, general.reset_hint)
        );
        true
    }

    #[track_caller]
    fn check(message: &RemoteHistogram) -> bool {
        check_bytes(&message.to_bytes())
    }

    fn usual() -> RemoteHistogram {
        let mut histogram = Histogram::default();
        for value in [0.0, 0.001, 0.25, 0.26, 0.5, 40.0] {
            histogram.record_n(value, 300);
        }
        let message = RemoteHistogram::from_histogram(&histogram).unwrap();
        RemoteHistogram { timestamp: 1_700_000_000_000, reset_hint: 2, ..message }
    }

    #[test]
    fn usual_histogram_is_read_in_one_pass() {
        assert!(check(&usual()));
        // As clients write it: 2^-128.
        assert!(check(&RemoteHistogram { zero_threshold: 2.938735877055719e-39, ..usual() }));
        assert!(check(&RemoteHistogram { timestamp: -1, start_timestamp: 5, ..usual() }));
    }

    #[test]
    fn unusual_histogram_is_read_by_the_general_decoder() {
        let span = |offset, length| BucketSpan { offset, length };
        for other in [
            RemoteHistogram::default(),
            RemoteHistogram { count: Some(RemoteCount::Int(9_999)), sum: f64::NAN, ..usual() },
            // The sum is an estimate.
            RemoteHistogram { sum: 1e300, ..usual() },
            RemoteHistogram { sum: f64::from_bits(STALE_MARKER), ..usual() },
            RemoteHistogram { schema: 9, ..usual() },
            RemoteHistogram { schema: 53, ..usual() },
            RemoteHistogram { schema: -53, custom_values: vec![1.0, 2.0], ..usual() },
            RemoteHistogram { custom_values: vec![1.0], ..usual() },
            RemoteHistogram { count: Some(RemoteCount::Float(2.5)), ..usual() },
            RemoteHistogram { zero_count: Some(RemoteZeroCount::Float(2.0)), ..usual() },
            RemoteHistogram {
                negative_spans: vec![span(1, 1)],
                negative_deltas: vec![1],
                ..usual()
            },
            RemoteHistogram { positive_spans: vec![span(0, u32::MAX); 3], ..usual() },
            RemoteHistogram { positive_spans: vec![span(0, 1), span(-1, 1)], ..usual() },
            RemoteHistogram { positive_spans: vec![span(i32::MAX, 6)], ..usual() },
            RemoteHistogram { positive_deltas: vec![1, -2, 3, 4, 5], ..usual() },
            RemoteHistogram { positive_counts: vec![1.0], ..usual() },
            RemoteHistogram { zero_threshold: f64::NAN, ..usual() },
            RemoteHistogram { count: Some(RemoteCount::Int(7)), ..usual() },
            RemoteHistogram { count: None, zero_count: None, sum: f64::NAN, ..usual() },
        ] {
            assert!(!check(&other), "{other:?}");
        }
        // Deltas in two lists, and one that is not packed.
        let mut bytes = usual().to_bytes();
        bytes.extend([12 << 3 | 2, 1, 0]);
        assert!(!check_bytes(&bytes));
        bytes.extend([12 << 3, 0]);
        assert!(!check_bytes(&bytes));
    }

    /// Indexes of all buckets, as Prometheus numbers them.
    fn indexes(spans: &[BucketSpan]) -> impl Iterator<Item = i64> {
        let mut next = 0;
        spans.iter().flat_map(move |span| {
            let first = next + i64::from(span.offset);
            next = first + i64::from(span.length);
            first..next
        })
    }

    proptest! {
        #[test]
        fn histogram_equals_that_of_the_general_decoder(
            schema in -10i32..10,
            spans in prop::collection::vec((-3i32..40, 0u32..6), 0..5),
            deltas in prop::collection::vec(prop_oneof![-3i64..300, any::<i64>()], 0..12),
            fits in any::<bool>(),
            beside in (0u64..3, prop_oneof![Just(0.0), 0.0f64..2.0]),
            sum in prop_oneof![Just(None), Just(Some(f64::NAN)), (-1e3f64..1e9).prop_map(Some)],
            times in (any::<i64>(), any::<i64>(), -1i32..5),
            more in 0u64..2,
        ) {
            let mut spans: Vec<BucketSpan> =
                spans.into_iter().map(|(offset, length)| BucketSpan { offset, length }).collect();
            let mut deltas = deltas;
            if fits {
                deltas.iter_mut().for_each(|delta| *delta = delta.rem_euclid(500));
                spans.iter_mut().skip(1).for_each(|span| span.offset = span.offset.abs());
                deltas.resize(spans.iter().map(|span| span.length as usize).sum(), 1);
            }
            let mut count = 0i64;
            let counts: Vec<u64> = deltas
                .iter()
                .map(|&delta| {
                    count = count.wrapping_add(delta);
                    count as u64
                })
                .collect();
            let total = counts.iter().fold(beside.0, |total, &count| total.wrapping_add(count));
            let middles = indexes(&spans).map(|index| {
                ((index as f64 - 0.5) / f64::from(schema).exp2()).exp2()
            });
            let fair = middles.zip(&counts).map(|(middle, &count)| middle * count as f64).sum();
            let is_usual = fits
                && (0..=8).contains(&schema)
                && more == 0
                && total > beside.0
                && beside.1 == 0.0
                && sum.is_none();
            let message = RemoteHistogram {
                count: Some(RemoteCount::Int(total.wrapping_add(more))),
                zero_count: Some(RemoteZeroCount::Int(beside.0)),
                zero_threshold: beside.1,
                positive_spans: spans,
                positive_deltas: deltas,
                timestamp: times.0,
                start_timestamp: times.1,
                reset_hint: times.2,
                schema,
                sum: sum.unwrap_or(fair),
                ..RemoteHistogram::default()
            };
            let is_plain = check(&message);
            prop_assert!(is_plain || !is_usual);
        }

        #[test]
        fn damaged_histogram_equals_that_of_the_general_decoder(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            end in any::<prop::sample::Index>(),
            cut in any::<bool>(),
        ) {
            let mut bytes = usual().to_bytes();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if cut {
                bytes.truncate(end.index(bytes.len()));
            }
            check_bytes(&bytes);
        }

        #[test]
        fn random_bytes_equal_those_of_the_general_decoder(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            check_bytes(&bytes);
        }
    }
}
