//! Encodings of HdrHistogram with damage, and histograms that they cannot represent.

use codecs::hdr::layout;
use codecs::hdr::{self, HdrHeader, HdrHistogramData, HdrVersion};
use hist::{DecodeError, Histogram, HistogramParts, Scheme};

use crate::hdr::{recording, without_summary};

/// The bytes of a V2 histogram with three digits up to an hour and the counts `payload`.
fn v2(payload: &[u8]) -> Vec<u8> {
    let mut bytes = recording(&[]).encode(HdrVersion::V2).unwrap();
    bytes.truncate(40);
    bytes[4..8].copy_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// [`v2`] with `len` bytes at `at` changed.
fn v2_with(at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = v2(&[2]);
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[track_caller]
fn check_rejected(bytes: &[u8], expected: &str) {
    let error = hdr::decode(bytes).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn hostile_bytes_are_reported_with_field_and_offset() {
    check_rejected(b"", "at byte 0: the input ends inside cookie");
    check_rejected(
        b"\x1c\x84\x93\x05",
        "at byte 0: cookie is 0x1c849305, expected a cookie of HdrHistogram V0, V1 or V2 with \
         words of 2, 4 or 8 bytes",
    );
    check_rejected(
        b"\x1c\x84\x93\x61____",
        "at byte 0: cookie is 0x1c849361, expected a cookie of HdrHistogram V0, V1 or V2 with \
         words of 2, 4 or 8 bytes",
    );
    check_rejected(&v2(&[2])[..38], "at byte 32: the input ends inside conversion ratio");
    check_rejected(&v2_with(15, &[6]), "at byte 12: digits is 6, expected 0 to 5");
    check_rejected(
        &v2_with(16, &[0; 8]),
        "at byte 16: lowest discernible value is 0, expected at least 1, with value · 2 · buckets \
         per octave < 2^63",
    );
    check_rejected(
        &v2_with(24, &1i64.to_be_bytes()),
        "at byte 24: highest trackable value is 1, expected at least twice the lowest discernible \
         value",
    );
    check_rejected(
        &v2_with(8, &(-33_792i32).to_be_bytes()),
        "at byte 8: normalizing index offset is -33792, expected smaller in magnitude than the \
         length of the counts array",
    );
    check_rejected(
        &v2_with(32, &f64::NAN.to_be_bytes()),
        "at byte 32: conversion ratio is NaN, expected a finite number",
    );
    check_rejected(&v2_with(7, &[2]), "at byte 41: the input ends inside count");
    check_rejected(
        &v2_with(7, &[0]),
        "at byte 40: end is more bytes, expected nothing after the histogram",
    );
    check_rejected(&v2(&[0x82]), "at byte 40: the input ends inside count");
    // A run of zeros over the whole array is the longest valid one; then one more, then the
    // maximum.
    assert!(hdr::decode(&v2(&leb(-33_792))).unwrap().histogram.is_empty());
    check_rejected(
        &v2(&leb(-33_793)),
        "at byte 40: end of the counts is 33793, the limit is 33792",
    );
    check_rejected(
        &v2(&[leb(-33_792), leb(1)].concat()),
        "at byte 43: end of the counts is 33793, the limit is 33792",
    );
    check_rejected(
        &v2(&leb(i64::MIN)),
        "at byte 40: end of the counts is 9223372036854775808, the limit is 33792",
    );
    check_rejected(
        &v2(&[leb(i64::MAX), leb(1)].concat()),
        "at byte 49: count is 1, expected a total of at most 2^63 - 1 values",
    );
}

/// ZigZag LEB128-64b9B, implemented independently.
fn leb(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut out = Vec::new();
    while rest >= 0x80 && out.len() < 8 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}

#[test]
fn hostile_words_are_rejected() {
    let v0 = recording(&[(1, 1), (2, 2)]).encode(HdrVersion::V0).unwrap();
    check_rejected(
        &v0[..v0.len() - 8],
        "at byte 24: total count is 3, expected the sum of the counts",
    );
    check_rejected(&v0[..v0.len() - 1], "at byte 48: the input ends inside count");
    let mut v1 = recording(&[(1, 1), (2, 2)]).encode(HdrVersion::V1).unwrap();
    v1[40] = 0x80;
    check_rejected(&v1, "at byte 40: count is -9223372036854775808, expected at least 0");
    v1[7] -= 1;
    check_rejected(&v1, "at byte 4: payload length is 23, expected a multiple of the word size");
}

fn compressed(cookie: u32, plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    let zlib = encoder.finish().unwrap();
    [&cookie.to_be_bytes()[..], &(zlib.len() as u32).to_be_bytes(), &zlib].concat()
}

#[test]
fn a_zip_bomb_ends_with_the_counts_array() {
    // 256 MiB of zeros compressed to 256 KiB, as the counts of the longest array.
    let mut plain = HdrHistogramData::new(HdrHeader::new(5, 1, i64::MAX).unwrap())
        .encode(HdrVersion::V2)
        .unwrap();
    plain[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    plain.resize(256 << 20, 0);
    let bytes = compressed(layout::V2_COMPRESSED | 0x10, &plain);
    assert!(bytes.len() < 300 << 10);
    check_rejected(&bytes, "at byte 6160424: end of the counts is 6160385, the limit is 6160384");
    // One MiB of counts of one, more than the limit.
    plain.truncate(40 + (6 << 20));
    plain[40..].fill(2);
    let bytes = compressed(layout::V2_COMPRESSED | 0x10, &plain);
    check_rejected(&bytes, "at byte 1048616: buckets in use is 1048577, the limit is 1048576");
}

#[test]
fn damaged_zlib_stream_is_rejected() {
    let mut bytes = recording(&[(1, 1), (70_000, 5)]).encode_compressed(HdrVersion::V2).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let error = hdr::decode(&bytes).unwrap_err();
    assert!(matches!(error, DecodeError::Invalid { field: "zlib stream", .. }), "{error}");
    let cut = &bytes[..bytes.len() - 1];
    check_rejected(cut, "at byte 8: the input ends inside zlib stream");
}

#[test]
fn a_wrapper_of_doubles_is_checked() {
    let header = HdrHeader::double(3, 1000, 0.25).unwrap();
    let bytes = HdrHistogramData::new(header).encode(HdrVersion::V2).unwrap();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    check_rejected(
        &with(7, &[2]),
        "at byte 28: digits is 3, expected the digits of the wrapper around it",
    );
    check_rejected(
        &with(8, &[0; 8]),
        "at byte 8: highest to lowest value ratio is 0, expected at least 2",
    );
    check_rejected(
        &with(48, &0.1f64.to_be_bytes()),
        "at byte 48: conversion ratio is 0.1, expected an exact power of two from 2^-1022 on: \
         other units have no lossless grid",
    );
    check_rejected(&bytes[..19], "at byte 16: the input ends inside cookie");
}

#[test]
fn unrepresentable_histograms_are_not_written() {
    #[track_caller]
    fn check_unrepresentable(change: impl FnOnce(&mut HistogramParts), expected: &str) {
        let mut recording = recording(&[(5, 1)]);
        let mut parts = recording.histogram.clone().into_parts();
        change(&mut parts);
        recording.histogram = Histogram::from_parts(parts).unwrap();
        let error = recording.encode(HdrVersion::V2).unwrap_err().to_string();
        assert_eq!(error, format!("HdrHistogram cannot represent {expected}"));
    }
    check_unrepresentable(|parts| parts.overflow = 2, "values above the grid (2)");
    check_unrepresentable(|parts| parts.underflow = 3, "values below the grid (3)");
    check_unrepresentable(|parts| parts.nan = 4, "NaN (4)");
    check_unrepresentable(|parts| parts.negative = vec![(1, 5)], "negative values (5)");
    check_unrepresentable(
        |parts| parts.zero = 6,
        "values counted as zero beside the bucket of zero (6)",
    );
    check_unrepresentable(|parts| parts.zero_threshold = 0.5, "a zero threshold (0.5)");
    check_unrepresentable(
        |parts| parts.positive = vec![(33_792, 1)],
        "bucket 33792 above the highest trackable value 3600000000000",
    );
    check_unrepresentable(
        |parts| parts.positive = vec![(0, 1 << 63)],
        "more than 2^63 - 1 values (9223372036854775808)",
    );
    let mut other = recording(&[]);
    other.histogram = Histogram::default();
    assert_eq!(
        other.encode(HdrVersion::V2).unwrap_err().to_string(),
        "HdrHistogram cannot represent exp2 scale 5 buckets; convert the histogram first"
    );
}

#[track_caller]
fn check_covering(scheme: Scheme, values: &[f64]) {
    let mut histogram = Histogram::new(scheme);
    values.iter().for_each(|&value| histogram.record(value));
    let header = HdrHeader::for_histogram(&histogram).unwrap();
    let recording = HdrHistogramData { histogram: without_summary(histogram), header };
    let read = hdr::decode(&recording.encode(HdrVersion::V2).unwrap());
    assert_eq!(read.as_ref(), Ok(&recording));
}

#[test]
fn any_grid_of_hdr_histogram_finds_its_header() {
    for bits in [0, 4, 7, 10, 14, 17] {
        for unit in [-300, -3, 0, 1, 10, 40] {
            let grid = hist::LogLinear2::with_floor(bits, unit + bits as i32).unwrap();
            let lowest = f64::from(unit).exp2();
            for factor in [1.0, 100.0, 1e3] {
                check_covering(Scheme::LogLinear2(grid), &[0.0, lowest, factor * lowest]);
            }
        }
    }
    for scheme in [Scheme::default(), Scheme::log_linear2(10).unwrap(), Scheme::LogLinear10] {
        assert!(HdrHeader::for_histogram(&Histogram::new(scheme)).is_err());
    }
}
