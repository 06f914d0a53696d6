//! Sparse buckets in Prometheus' encoding: spans of consecutive buckets, then all counts as one
//! list.
//!
//! The first span starts at its offset; each other span starts at its offset after the end of the
//! previous one. A span's length is only a claim: nothing is allocated before the lengths equal the
//! number of counts.

use hist::DecodeError;

use crate::message::field_error;
use crate::protobuf::{Error, FieldValue, MessageFields, MessageWriter};

/// Span of consecutive buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BucketSpan {
    /// Number of empty buckets before this span; for the first span, its first index.
    pub offset: i32,
    /// Number of buckets in this span. A client marks an empty histogram as native by a span of
    /// length 0.
    pub length: u32,
}

impl MessageFields for BucketSpan {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.offset = field.zigzag32()?,
            2 => self.length = field.varint()? as u32,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.sint32(1, self.offset);
        out.varint(2, self.length.into());
    }
}

/// Index and count of each non-empty bucket of one sign.
pub(super) fn index_buckets<N: Copy + Default + PartialEq>(
    field: &'static str,
    spans: &[BucketSpan],
    counts: &[N],
) -> Result<Vec<(i64, N)>, DecodeError> {
    let length: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    if length != counts.len() as u64 {
        let found = format_args!("{length} buckets long");
        return Err(field_error(
            field,
            found,
            format_args!("{}, one for each count", counts.len()),
        ));
    }
    let mut buckets = Vec::with_capacity(counts.len());
    let mut counts = counts.iter();
    let mut index = 0i64;
    for (position, span) in spans.iter().enumerate() {
        if position > 0 && span.offset < 0 {
            let found = format_args!("offset {} in span {position}", span.offset);
            return Err(field_error(field, found, "no offset below 0 after span 0"));
        }
        index = index.wrapping_add(i64::from(span.offset));
        for &count in counts.by_ref().take(span.length as usize) {
            if count != N::default() {
                buckets.push((index, count));
            }
            index = index.wrapping_add(1);
        }
    }
    Ok(buckets)
}

/// Counts from the deltas in which whole counts are written.
pub(super) fn from_deltas(field: &'static str, deltas: &[i64]) -> Result<Vec<u64>, DecodeError> {
    let mut count = 0i64;
    let mut counts = Vec::with_capacity(deltas.len());
    for (position, &delta) in deltas.iter().enumerate() {
        let next = count.checked_add(delta).and_then(|next| u64::try_from(next).ok());
        let Some(next) = next else {
            let found = format_args!("{delta} after a count of {count}, in bucket {position}");
            return Err(field_error(field, found, "counts of 0..2^63"));
        };
        count = next as i64;
        counts.push(next);
    }
    Ok(counts)
}

/// Differences of counts, each below 2^63.
pub(super) fn to_deltas(counts: &[u64]) -> Vec<i64> {
    let mut previous = 0;
    let delta = |&count: &u64| {
        let delta = (count as i64).wrapping_sub(previous);
        previous = count as i64;
        delta
    };
    counts.iter().map(delta).collect()
}

/// Spans over ascending indexes, and the list of counts. Consecutive buckets share a span; gaps are
/// not filled.
pub(super) fn to_spans<N>(buckets: impl Iterator<Item = (i32, N)>) -> (Vec<BucketSpan>, Vec<N>) {
    let (mut spans, mut counts): (Vec<BucketSpan>, Vec<N>) = (Vec::new(), Vec::new());
    let mut next = 0;
    for (index, count) in buckets {
        match spans.last_mut() {
            Some(span) if index == next => span.length = span.length.wrapping_add(1),
            _ => spans.push(BucketSpan { offset: index.wrapping_sub(next), length: 1 }),
        }
        next = index.wrapping_add(1);
        counts.push(count);
    }
    (spans, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spans: &[(i32, u32)], deltas: &[i64], expected: &[(i64, u64)]) {
        let spans: Vec<_> =
            spans.iter().map(|&(offset, length)| BucketSpan { offset, length }).collect();
        let counts = from_deltas("deltas", deltas).unwrap();
        assert_eq!(to_deltas(&counts), deltas);
        let read = index_buckets("spans", &spans, &counts).unwrap();
        assert_eq!(read, expected);
        let (again, counts) = to_spans(read.iter().map(|&(index, count)| (index as i32, count)));
        assert_eq!(index_buckets("spans", &again, &counts).unwrap(), expected);
    }

    #[track_caller]
    fn check_error(spans: &[(i32, u32)], counts: &[u64], error: &str) {
        let spans: Vec<_> =
            spans.iter().map(|&(offset, length)| BucketSpan { offset, length }).collect();
        assert_eq!(index_buckets("spans", &spans, counts).unwrap_err().to_string(), error);
    }

    #[test]
    fn offsets_count_from_the_end_of_the_span_before() {
        check(&[], &[], &[]);
        check(&[(0, 3)], &[1, 1, -1], &[(0, 1), (1, 2), (2, 1)]);
        check(&[(-3, 2), (2, 1)], &[1, 2, -1], &[(-3, 1), (-2, 3), (1, 2)]);
        check(&[(0, 1), (0, 1)], &[1, 0], &[(0, 1), (1, 1)]);
        check(&[(0, 3)], &[4, -4, 4], &[(0, 4), (2, 4)]);
    }

    #[test]
    fn a_span_of_no_buckets_moves_on() {
        check(&[(0, 0)], &[], &[]);
        check(&[(2, 0), (3, 1)], &[7], &[(5, 7)]);
    }

    #[test]
    fn spans_and_counts_must_agree() {
        check_error(&[(0, 2)], &[1], "spans is 2 buckets long, expected 1, one for each count");
        check_error(
            &[(0, u32::MAX), (0, u32::MAX)],
            &[1],
            "spans is 8589934590 buckets long, expected 1, one for each count",
        );
        check_error(
            &[(0, 1), (-1, 1)],
            &[1, 1],
            "spans is offset -1 in span 1, expected no offset below 0 after span 0",
        );
    }

    #[test]
    fn counts_stay_within_0_and_2_to_the_63() {
        for deltas in [&[1, -2][..], &[i64::MAX, 1], &[i64::MIN]] {
            assert!(from_deltas("deltas", deltas).is_err(), "{deltas:?}");
        }
    }
}
