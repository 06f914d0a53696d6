//! Checks of other formats. Fields that their encoders omit by design are excluded from the
//! comparison.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use codecs::otlp::{ExponentialHistogramDataPoint, HistogramDataPoint};
use codecs::prometheus::{ClientHistogram, HistogramSample, RemoteHistogram};
use codecs::{circllhist, ddsketch, hdr, hlog};
use hist::{Histogram, Scheme, TrackedValue};

use super::histogram::{assert_same_counts, check_all, check_statistics};

/// Binary, base64 and text.
pub(super) fn circllhist(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes);
    let decoded = [
        circllhist::decode(bytes).ok(),
        text.ok().and_then(|text| circllhist::decode_base64(text).ok()),
        text.ok().and_then(|text| circllhist::decode_text(text).ok()),
    ];
    for histogram in decoded.into_iter().flatten() {
        check_all(&histogram);
        let binary = circllhist::encode(&histogram).unwrap();
        assert_eq!(circllhist::decode(&binary).as_ref(), Ok(&histogram));
        let base64 = circllhist::encode_base64(&histogram).unwrap();
        assert_eq!(circllhist::decode_base64(&base64).as_ref(), Ok(&histogram));
        let text = circllhist::encode_text(&histogram).unwrap().join("\n");
        assert_eq!(circllhist::decode_text(&text).as_ref(), Ok(&histogram));
    }
}

/// The bytes plain, in base64, and as the content of a zlib stream: a fuzzer does not find its
/// checksum by chance.
pub(super) fn hdr(bytes: &[u8]) {
    let decoded = [hdr::decode(bytes), hdr::decode_base64(bytes), hdr::decode(&compressed(bytes))];
    for recording in decoded.into_iter().flatten() {
        check_all(&recording.histogram);
        check_round_trip(&recording);
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    let stream = encoder.finish().unwrap();
    let cookie = hdr::layout::V2_COMPRESSED | 0x10;
    let len = stream.len() as u32;
    [&cookie.to_be_bytes()[..], &len.to_be_bytes(), &stream].concat()
}

/// Size limit of a counts array that is written in full, as in V0 and V1: at 50 MB each, few would
/// be tried per minute.
const COUNTS_WRITTEN_MAX: usize = 1 << 12;

fn check_round_trip(recording: &hdr::HdrHistogramData) {
    let last = recording.histogram.positive().indexes().last().copied().unwrap_or(0) as usize;
    for version in [hdr::HdrVersion::V0, hdr::HdrVersion::V1, hdr::HdrVersion::V2] {
        if version != hdr::HdrVersion::V2 && last > COUNTS_WRITTEN_MAX {
            continue;
        }
        let plain = match recording.encode(version) {
            Ok(plain) => plain,
            Err(error) => {
                assert_eq!(version, hdr::HdrVersion::V0, "{error}");
                continue;
            }
        };
        assert_eq!(hdr::decode(&plain).as_ref(), Ok(recording), "{version:?}");
    }
    let base64 = recording.encode_base64(hdr::HdrVersion::V2).unwrap();
    assert_eq!(hdr::decode_base64(base64).as_ref(), Ok(recording), "in base64");
}

/// A log of these bytes, and a log of one line with the bytes as its histogram.
pub(super) fn hlog(bytes: &[u8]) {
    let line = format!("Tag=a,0.1,1.0,2.5,{}\n", STANDARD.encode(compressed(bytes)));
    for log in [bytes, line.as_bytes()] {
        let mut reader = hlog::HlogReader::new(log);
        for (position, interval) in reader.by_ref().enumerate() {
            if let Ok(interval) = interval {
                // Compression takes most of the time; every third input covers it.
                if position < 2 {
                    check_interval_round_trip(&interval);
                    check_statistics(&interval.recording.histogram);
                }
            }
        }
        let _ = (reader.start_time_s(), reader.base_time_s());
    }
}

fn check_interval_round_trip(interval: &hlog::HlogInterval) {
    let preamble = hlog::HlogPreamble { base_time_s: Some(0.0), ..Default::default() };
    let mut writer = hlog::HlogWriter::new(Vec::new(), &preamble).unwrap();
    if let Err(error) = writer.write(interval) {
        assert!(matches!(error, hlog::HlogWriteError::Tag { .. }), "{error}");
        return;
    }
    let log = writer.into_inner();
    let again = hlog::HlogReader::new(&log[..]).next().unwrap().unwrap();
    let expected = hlog::HlogInterval { start_s: interval.logged_start_s, ..interval.clone() };
    assert_eq!(again, expected);
}

pub(super) fn otlp(bytes: &[u8]) {
    if let Ok(point) = ExponentialHistogramDataPoint::from_bytes(bytes) {
        let again = ExponentialHistogramDataPoint::from_bytes(&point.to_bytes()).unwrap();
        assert_eq!(again.to_bytes(), point.to_bytes());
        if let Ok(Some(histogram)) = point.to_histogram() {
            check_all(&histogram);
            let point = ExponentialHistogramDataPoint::from_histogram(&histogram).unwrap();
            let again = ExponentialHistogramDataPoint::from_bytes(&point.to_bytes()).unwrap();
            assert_same_values(&again.to_histogram().unwrap().unwrap(), &histogram);
        }
    }
    if let Ok(point) = HistogramDataPoint::from_bytes(bytes)
        && let Ok(Some(histogram)) = point.to_histogram()
    {
        check_all(&histogram);
        let point = HistogramDataPoint::from_histogram(&histogram).unwrap();
        let again = HistogramDataPoint::from_bytes(&point.to_bytes()).unwrap();
        assert_same_values(&again.to_histogram().unwrap().unwrap(), &histogram);
    }
}

/// Equal except for estimated minima and maxima, which are not written.
#[track_caller]
fn assert_same_values(again: &Histogram, before: &Histogram) {
    assert_same_counts(again, before);
    assert_eq!(again.tracked_sum(), before.tracked_sum());
    for (again, before) in
        [(again.tracked_min(), before.tracked_min()), (again.tracked_max(), before.tracked_max())]
    {
        assert_eq!(again.exact(), before.exact());
    }
}

/// Remote write and the client model, native and classic, whole and float counts.
pub(super) fn prometheus(bytes: &[u8]) {
    if let Ok(message) = RemoteHistogram::from_bytes(bytes)
        && let Ok(sample) = message.to_sample()
    {
        check_sample(&sample, RemoteHistogram::from_histogram, |again| {
            RemoteHistogram::from_bytes(&again.to_bytes()).unwrap().to_sample().unwrap()
        });
    }
    if let Ok(message) = ClientHistogram::from_bytes(bytes) {
        let native = message.to_native().ok().flatten();
        let classic = message.to_classic().ok().flatten();
        let read = |again: ClientHistogram| {
            let again = ClientHistogram::from_bytes(&again.to_bytes()).unwrap();
            let classic = again.to_classic().unwrap();
            again.to_native().unwrap().or(classic).unwrap()
        };
        for sample in [native, classic].into_iter().flatten() {
            check_sample(&sample, ClientHistogram::from_histogram, read);
        }
    }
}

/// Whether a message can represent the grid: Prometheus writes schemas from -4 on.
fn is_writable(scheme: &Scheme) -> bool {
    !matches!(scheme, Scheme::Exp2(grid) if grid.scale() < -4)
}

/// Whole counts are written and read again; float counts are converted if they are whole.
fn check_sample<M, E: std::fmt::Debug>(
    sample: &HistogramSample,
    write: impl Fn(&Histogram) -> Result<M, E>,
    read: impl Fn(M) -> HistogramSample,
) {
    let histogram = match sample {
        HistogramSample::Integer(histogram) => histogram,
        HistogramSample::Float(float) => {
            return float.to_histogram().iter().for_each(check_all);
        }
        HistogramSample::Stale => return,
    };
    check_all(histogram);
    let too_many = histogram.positive().counts().iter().chain(histogram.negative().counts());
    let too_many = too_many
        .chain([&histogram.overflow(), &histogram.underflow()])
        .any(|&count| i64::try_from(count).is_err());
    match write(histogram) {
        // Messages keep a sum that contradicts the buckets, as the estimate that was read.
        Ok(message) => assert_eq!(read(message), *sample),
        Err(error) => assert!(!is_writable(histogram.scheme()) || too_many, "{error:?}"),
    }
}

/// Binary and protobuf.
pub(super) fn ddsketch(bytes: &[u8]) {
    let decoded = [ddsketch::decode(bytes).ok(), ddsketch::decode_protobuf(bytes).ok()];
    for histogram in decoded.into_iter().flatten() {
        check_all(&histogram);
        if histogram.count() > ddsketch::COUNT_MAX {
            assert!(ddsketch::encode(&histogram).is_err());
            continue;
        }
        let again = ddsketch::decode(&ddsketch::encode(&histogram).unwrap()).unwrap();
        assert_same_counts(&again, &histogram);
        let sides = (histogram.tracked_sum(), histogram.tracked_min(), histogram.tracked_max());
        if let (TrackedValue::Exact(sum), TrackedValue::Exact(min), TrackedValue::Exact(max)) =
            sides
        {
            assert_eq!(again.tracked_sum().value().map(|sum| sum.value()), Some(sum.value()));
            assert_eq!(again.tracked_min(), TrackedValue::Exact(min));
            assert_eq!(again.tracked_max(), TrackedValue::Exact(max));
        }
        let protobuf = ddsketch::encode_protobuf(&histogram).unwrap();
        assert_same_counts(&ddsketch::decode_protobuf(&protobuf).unwrap(), &histogram);
    }
}
