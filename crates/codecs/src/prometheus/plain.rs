//! One-pass decoder of the usual native histogram: an exponential schema, whole counts, and no
//! value below zero.
//!
//! Its result is that of the general decoder (`remote.rs`, `native.rs`), without a list of deltas,
//! one of counts, and one of indexes in between. Everything else (float counts, custom buckets,
//! staleness markers, schemas above 8, invalid messages) is left to the general decoder, which also
//! has the error messages.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::{HistogramParts, Scheme};

use crate::exponential;
use crate::protobuf::{FieldValue, MessageReader};

use super::native::{assemble, nan_count};
use super::remote::RemoteSample;
use super::{HistogramSample, READ_SCHEMAS, STALE_MARKER};

/// Fields of the message, borrowed where they are lists.
#[derive(Default)]
struct PlainFields<'a> {
    count: u64,
    sum: f64,
    schema: i32,
    zero_threshold: f64,
    zero_count: u64,
    /// Offset and length of each span.
    spans: Vec<(i32, u32)>,
    deltas: Option<&'a [u8]>,
    reset_hint: i32,
    timestamp: i64,
    start_timestamp: i64,
}

/// Reads a message; `None` if the general decoder must read it.
pub(super) fn read(bytes: &[u8]) -> Option<RemoteSample> {
    let fields = PlainFields::read(bytes)?;
    if fields.sum.to_bits() == STALE_MARKER || fields.count == 0 && fields.sum.is_nan() {
        return None;
    }
    let (grid, shift) =
        exponential::exponential_scheme("schema", fields.schema, READ_SCHEMAS).ok()?;
    let parts = HistogramParts {
        zero_threshold: fields.zero_threshold,
        positive: fields.buckets().filter(|_| shift == 0)?,
        zero: fields.zero_count,
        ..HistogramParts::new(Scheme::Exp2(grid))
    };
    let (count, sum) = (fields.count, fields.sum);
    let histogram = assemble(parts, sum, |held| nan_count(count, held, sum)).ok()?;
    Some(RemoteSample {
        value: HistogramSample::Integer(histogram),
        timestamp: fields.timestamp,
        start_timestamp: fields.start_timestamp,
        reset_hint: fields.reset_hint,
    })
}

impl<'a> PlainFields<'a> {
    fn read(bytes: &'a [u8]) -> Option<PlainFields<'a>> {
        let mut fields = PlainFields::default();
        let mut message = MessageReader::new(bytes);
        while let Some((number, field)) = message.field().ok()? {
            match number {
                1 => fields.count = field.varint().ok()?,
                3 => fields.sum = field.double().ok()?,
                4 => fields.schema = field.zigzag32().ok()?,
                5 => fields.zero_threshold = field.double().ok()?,
                6 => fields.zero_count = field.varint().ok()?,
                11 => fields.spans.push(read_span(field)?),
                // A list in several parts, or not packed, is rare.
                12 if fields.deltas.is_none() => fields.deltas = Some(field.bytes().ok()?),
                14 => fields.reset_hint = field.varint().ok()? as i32,
                15 => fields.timestamp = field.varint().ok()? as i64,
                17 => fields.start_timestamp = field.varint().ok()? as i64,
                2 | 7..=10 | 12 | 13 | 16 => return None,
                _ => {}
            }
        }
        Some(fields)
    }

    /// Index of the grid and count of each bucket that is not empty.
    fn buckets(&self) -> Option<Vec<(i32, u64)>> {
        let mut deltas = MessageReader::new(self.deltas.unwrap_or_default());
        // Each bucket has a delta of at least a byte.
        let mut buckets = Vec::with_capacity(deltas.remaining().len());
        // Prometheus' index of a bucket is that of the grid plus one.
        let (mut index, mut count) = (-1i64, 0i64);
        for (position, &(offset, length)) in self.spans.iter().enumerate() {
            if position > 0 && offset < 0 {
                return None;
            }
            index = index.wrapping_add(i64::from(offset));
            for _ in 0..length {
                if deltas.remaining().is_empty() {
                    return None;
                }
                let delta = hist::codec::bytes::unzigzag(deltas.varint().ok()?);
                count = count.checked_add(delta).filter(|&count| count >= 0)?;
                if count > 0 {
                    buckets.push((i32::try_from(index).ok()?, count as u64));
                }
                index = index.wrapping_add(1);
            }
        }
        deltas.remaining().is_empty().then_some(buckets)
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
    use proptest::prelude::*;

    use super::*;
    use crate::prometheus::{BucketSpan, RemoteCount, RemoteHistogram, RemoteZeroCount};

    /// Whether the message was read in one pass. Its result must be that of the general decoder.
    #[track_caller]
    fn check_bytes(bytes: &[u8]) -> bool {
        let general = RemoteHistogram::from_bytes(bytes).and_then(|message| {
            Ok(RemoteSample {
                value: message.to_sample()?,
                timestamp: message.timestamp,
                start_timestamp: message.start_timestamp,
                reset_hint: message.reset_hint,
            })
        });
        // As text: NaN differs from itself.
        let (plain, whole) = (read(bytes), RemoteSample::from_bytes(bytes));
        assert_eq!(format!("{whole:?}"), format!("{general:?}"));
        if let Some(plain) = &plain {
            assert_eq!(format!("{:?}", Ok::<_, hist::DecodeError>(plain)), format!("{general:?}"));
        }
        plain.is_some()
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
        assert!(check(&RemoteHistogram::default()));
        let nan = RemoteHistogram { sum: f64::NAN, ..usual() };
        assert!(check(&RemoteHistogram { count: Some(RemoteCount::Int(9_999)), ..nan }));
        assert!(check(&RemoteHistogram { sum: 1e300, ..usual() }), "the sum is an estimate");
    }

    #[test]
    fn unusual_histogram_is_read_by_the_general_decoder() {
        let span = |offset, length| BucketSpan { offset, length };
        for other in [
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

    proptest! {
        #[test]
        fn histogram_equals_that_of_the_general_decoder(
            schema in -10i32..10,
            spans in prop::collection::vec((-3i32..40, 0u32..6), 0..5),
            deltas in prop::collection::vec(prop_oneof![-3i64..300, any::<i64>()], 0..12),
            fits in any::<bool>(),
            beside in (0u64..3, prop_oneof![Just(0.0), 0.0f64..2.0]),
            sum in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -1e3f64..1e9],
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
            let total = deltas.iter().fold(beside.0, |total, &delta| {
                count = count.wrapping_add(delta);
                total.wrapping_add(count as u64)
            });
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
                sum,
                ..RemoteHistogram::default()
            };
            let is_plain = check(&message);
            let is_usual = fits && (0..=8).contains(&schema) && more == 0 && total > 0;
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
