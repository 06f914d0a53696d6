//! Frames: round trips, rejection of damaged frames, and bytes equal to the page
//! `docs/formats/frame.md` and the golden file.

use hist::codec::frame::{self, FLAGS, FrameUnit, SeriesMeta, Temporality};
use hist::codec::header;
use hist::{
    Accumulator, DecodeError, DoubleDouble, Explicit, Histogram, HistogramParts, Interpolation,
    LogLinear2, Logarithmic, Scheme, TrackedValue,
};
use proptest::prelude::*;

use crate::block_reference as reference;
use crate::golden::{self, Golden, golden, listing, page};
use crate::page::{check_fields, rows};

fn schemes() -> impl Strategy<Value = Scheme> {
    prop_oneof![
        (-10..=8).prop_map(|scale| Scheme::exp2(scale).unwrap()),
        (1u32..=18, -1022..100).prop_map(|(bits, floor)| {
            Scheme::LogLinear2(LogLinear2::with_floor(bits, floor).unwrap())
        }),
        Just(Scheme::LogLinear10),
        (0.001..0.2).prop_map(|accuracy| Scheme::log(accuracy).unwrap()),
        Just(Scheme::Logarithmic(Logarithmic::new(1.02, 3.5, Interpolation::Cubic).unwrap())),
        proptest::collection::btree_set(-1000i32..1000, 0..20).prop_map(|bounds| {
            let bounds: Vec<f64> = bounds.into_iter().map(f64::from).collect();
            Scheme::explicit(&bounds).unwrap()
        }),
    ]
}

fn values() -> impl Strategy<Value = (f64, u64)> {
    let value = prop_oneof![
        4 => (0u64..10_000_000).prop_map(|v| v as f64),
        2 => 1e-6..1e9f64,
        1 => -1e6..1e6f64,
        1 => Just(0.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(f64::MAX),
        1 => Just(1e-200),
    ];
    (value, prop_oneof![6 => 1u64..4, 1 => 1u64..100_000, 1 => Just(1u64 << 50)])
}

pub(crate) fn histogram_of(
    scheme: Scheme,
    values: &[(f64, u64)],
    limits: bool,
    strip: u8,
) -> Histogram {
    let mut histogram = Histogram::new(scheme);
    if limits {
        histogram = histogram.with_thresholds(&[0.5, 1000.0]).unwrap();
    }
    for &(value, n) in values {
        histogram.record_n(value, n);
    }
    let mut parts = histogram.into_parts();
    if strip & 1 != 0 {
        parts.sum = TrackedValue::Absent;
    }
    if strip & 2 != 0 {
        (parts.min, parts.max) = (TrackedValue::Absent, TrackedValue::Absent);
    }
    if strip & 4 != 0 {
        parts.max = parts.max.value().map_or(TrackedValue::Absent, TrackedValue::Estimated);
    }
    Histogram::from_parts(parts).unwrap()
}

pub(crate) fn histograms() -> impl Strategy<Value = Vec<Histogram>> {
    let rows =
        proptest::collection::vec((proptest::collection::vec(values(), 0..40), 0u8..16), 0..20);
    (schemes(), rows, any::<bool>(), any::<bool>()).prop_map(|(scheme, rows, limits, plain)| {
        let strip = |s| if plain { 0 } else { s };
        rows.iter().map(|(row, s)| histogram_of(scheme.clone(), row, limits, strip(*s))).collect()
    })
}

pub(crate) fn metas() -> impl Strategy<Value = SeriesMeta> {
    let units = [
        FrameUnit::None,
        FrameUnit::Nanoseconds,
        FrameUnit::Microseconds,
        FrameUnit::Milliseconds,
        FrameUnit::Seconds,
        FrameUnit::Bytes,
    ];
    let temporality = [Temporality::Delta, Temporality::Cumulative];
    (proptest::sample::select(units.to_vec()), proptest::sample::select(temporality.to_vec()))
        .prop_map(|(unit, temporality)| SeriesMeta { unit, temporality })
}

pub(crate) fn frame_of(histogram: &Histogram, meta: SeriesMeta) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(histogram, meta, &mut bytes);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn frames_round_trip(histograms in histograms(), meta in metas()) {
        for histogram in &histograms {
            let bytes = frame_of(histogram, meta);
            prop_assert_eq!(frame::decode(&bytes), Ok((histogram.clone(), meta)));
            prop_assert_eq!(frame_of(&frame::decode(&bytes).unwrap().0, meta), bytes);
        }
    }

    #[test]
    fn reference_decoder_reads_frames(histograms in histograms(), meta in metas()) {
        for histogram in &histograms {
            let (head, plain) = reference::frame(&frame_of(histogram, meta));
            prop_assert_eq!(&head.scheme, histogram.scheme());
            prop_assert_eq!(head.cumulative, meta.temporality == Temporality::Cumulative);
            prop_assert_eq!(UNITS[usize::from(head.unit)].1, meta.unit);
            check_plain(&plain, histogram);
        }
    }

    #[test]
    fn damaged_frame_is_detected(histograms in histograms(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let Some(histogram) = histograms.first() else { return Ok(()) };
        let mut bytes = frame_of(histogram, SeriesMeta::default());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let decoded = frame::decode(&bytes);
        let mut accumulator = Accumulator::new(histogram.scheme().clone());
        accumulator.add(histogram).unwrap();
        let before = accumulator.to_histogram();
        // A decoded frame is added; a damaged frame leaves the accumulator unchanged.
        if accumulator.add_frame(&bytes).is_err() {
            prop_assert_eq!(accumulator.to_histogram(), before);
        } else {
            let mut expected = before;
            expected.merge(&decoded.unwrap().0).unwrap();
            prop_assert_eq!(accumulator.to_histogram(), expected);
        }
    }

    #[test]
    fn random_bytes_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = frame::decode(&bytes);
        let _ = Accumulator::new(Scheme::default()).add_frame(&bytes);
    }
}

const UNITS: [(&str, FrameUnit); 6] = [
    ("none", FrameUnit::None),
    ("nanoseconds", FrameUnit::Nanoseconds),
    ("microseconds", FrameUnit::Microseconds),
    ("milliseconds", FrameUnit::Milliseconds),
    ("seconds", FrameUnit::Seconds),
    ("bytes", FrameUnit::Bytes),
];

fn in_unit(unit: FrameUnit) -> SeriesMeta {
    SeriesMeta { unit, ..SeriesMeta::default() }
}

/// The result of a decoder written from the page must equal the histogram.
#[track_caller]
fn check_plain(plain: &reference::PlainHistogram, histogram: &Histogram) {
    let buckets = |buckets: &hist::Buckets| -> Vec<(i64, u64)> {
        buckets.iter().map(|(index, n)| (index.into(), n)).collect()
    };
    assert_eq!(plain.positive, buckets(histogram.positive()));
    assert_eq!(plain.negative, buckets(histogram.negative()));
    assert_eq!(plain.zero, histogram.zero_count());
    assert_eq!(plain.zero_threshold, histogram.zero_threshold());
    assert_eq!(plain.overflow, histogram.overflow());
    assert_eq!(plain.underflow, histogram.underflow());
    assert_eq!(plain.nan, histogram.nan_count());
    let side = |side: TrackedValue<f64>| {
        side.value().map(|value| (1 + u64::from(side.exact().is_some()), value))
    };
    assert_eq!(plain.min, side(histogram.tracked_min()));
    assert_eq!(plain.max, side(histogram.tracked_max()));
    if !histogram.is_empty() {
        let sum = histogram.tracked_sum();
        let found = plain.sum.map(|(is_exact, high, low)| (is_exact, high + low));
        assert_eq!(found, sum.value().map(|value| (sum.exact().is_some(), value.value())));
    }
    let thresholds = histogram.thresholds().iter().map(|limit| (limit.value, limit.above));
    assert_eq!(plain.thresholds, thresholds.collect::<Vec<_>>());
}

/// The histogram of the page's example.
fn example() -> Histogram {
    let mut histogram = Histogram::default().with_thresholds(&[50.0]).unwrap();
    for (value, n) in [(0.0, 1), (12.0, 1), (15.5, 40), (480.0, 1)] {
        histogram.record_n(value, n);
    }
    histogram
}

#[test]
fn page_example_matches_the_encoder() {
    let meta = in_unit(FrameUnit::Milliseconds);
    let bytes = frame_of(&example(), meta);
    let documented = listing(&page("frame.md"), "Example");
    assert_eq!(golden::hex(&documented), golden::hex(&bytes));
    assert_eq!(frame::decode(&documented), Ok((example(), meta)));
}

#[test]
fn page_lists_the_layout() {
    let page = page("frame.md");
    check_fields(&page, "### Header", &header::FIELDS);
    let documented = rows(&page, "### Header", "|");
    assert_eq!(documented.len(), header::FIELDS.len() + 1, "the last row is what follows");

    let documented = rows(&page, "### Units", "|");
    for (code, (name, unit)) in UNITS.into_iter().enumerate() {
        assert_eq!(documented[code], [code.to_string(), name.to_owned()]);
        assert_eq!(usize::from(frame_of(&Histogram::default(), in_unit(unit))[3]), code);
    }
    assert_eq!(documented.len(), UNITS.len());

    let documented = rows(&page, "### Schemes", "|");
    let grids = [
        ("exponential, base 2", Scheme::default()),
        ("log-linear, base 2", Scheme::log_linear2(7).unwrap()),
        ("log-linear, base 10", Scheme::LogLinear10),
        ("logarithmic", Scheme::log(0.01).unwrap()),
        ("explicit", Scheme::explicit(&[1.0]).unwrap()),
    ];
    for (row, (name, scheme)) in documented.iter().zip(&grids) {
        let tag = frame_of(&Histogram::new(scheme.clone()), SeriesMeta::default())[2];
        assert_eq!(row[..2], [tag.to_string(), name.to_string()]);
    }
    assert_eq!(documented.len(), grids.len());

    let documented = rows(&page, "### Flags", "|");
    let documented: Vec<_> = documented.iter().map(|row| [row[0], row[1]]).collect();
    let flags = FLAGS.map(|(name, flag)| [flag.ilog2().to_string(), name.to_owned()]);
    assert_eq!(documented, flags);

    let limits =
        [("thresholds", frame::THRESHOLDS_MAX), ("explicit bounds", Explicit::BOUNDS_MAX as u64)];
    let limits = limits.map(|(name, limit)| vec![name.to_owned(), limit.to_string()]);
    assert_eq!(rows(&page, "### Limits", "|"), limits);
}

fn record_values(scheme: Scheme, values: &[(f64, u64)]) -> Histogram {
    let mut histogram = Histogram::new(scheme);
    values.iter().for_each(|&(value, n)| histogram.record_n(value, n));
    histogram
}

fn with_parts(histogram: Histogram, change: impl FnOnce(&mut HistogramParts)) -> Histogram {
    let mut parts = histogram.into_parts();
    change(&mut parts);
    Histogram::from_parts(parts).unwrap()
}

/// What the golden file holds.
fn goldens() -> Vec<(String, Histogram, SeriesMeta)> {
    let exp2 = |scale| Scheme::exp2(scale).unwrap();
    let plain = |values: &[(f64, u64)]| record_values(Scheme::default(), values);
    let latencies = [(12.0, 5), (15.0, 40), (21.5, 17), (480.0, 1)];
    let mut limits = Histogram::default().with_thresholds(&[-1.5, 0.0, 50.0]).unwrap();
    latencies.iter().for_each(|&(value, n)| limits.record_n(value, n));
    let mut wide = Histogram::default().with_zero_threshold(0.25).unwrap();
    [0.1, -0.25, 0.5].into_iter().for_each(|value| wide.record(value));
    let cubic = Scheme::Logarithmic(Logarithmic::new(1.02, 3.5, Interpolation::Cubic).unwrap());
    let floor = Scheme::LogLinear2(LogLinear2::with_floor(3, -5).unwrap());
    let integers = Scheme::LogLinear2(LogLinear2::integers(7).unwrap());
    let mut goldens = vec![
        ("empty", Histogram::default()),
        ("one", plain(&[(17.0, 1)])),
        ("zeros", plain(&[(0.0, 3)])),
        ("minus-zero", plain(&[(-0.0, 1)])),
        ("negatives", plain(&[(-1.0, 2), (-2.5, 1), (-1e6, 1), (3.0, 4)])),
        (
            "outside",
            record_values(Scheme::LogLinear10, &[(1e200, 2), (-1e150, 3), (f64::NAN, 4), (7.0, 1)]),
        ),
        ("infinite", plain(&[(f64::INFINITY, 1), (1.0, 1)])),
        ("both-infinities", plain(&[(f64::INFINITY, 1), (f64::NEG_INFINITY, 1)])),
        ("only-nan", plain(&[(f64::NAN, 2)])),
        ("thresholds", limits),
        ("zero-threshold", wide),
        ("exp2-coarsest", record_values(exp2(-10), &latencies)),
        ("exp2-finest", record_values(exp2(8), &latencies)),
        ("log-linear-2", record_values(floor, &latencies)),
        ("integers", record_values(integers, &[(0.0, 2), (1.0, 1), (127.0, 3), (300.0, 1)])),
        ("log-linear-10", record_values(Scheme::LogLinear10, &latencies)),
        ("log", record_values(Scheme::log(0.01).unwrap(), &latencies)),
        ("log-cubic", record_values(cubic, &latencies)),
        (
            "explicit",
            record_values(Scheme::explicit(&[-5.0, 0.5, 10.0, 100.0]).unwrap(), &latencies),
        ),
        ("explicit-no-bounds", record_values(Scheme::explicit(&[]).unwrap(), &latencies)),
        (
            "no-sides",
            with_parts(plain(&latencies), |parts| {
                (parts.sum, parts.min, parts.max) =
                    (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent)
            }),
        ),
        (
            "estimated-sides",
            with_parts(plain(&latencies), |parts| {
                (parts.sum, parts.min) = (
                    TrackedValue::Estimated(DoubleDouble::new(1500.25)),
                    TrackedValue::Estimated(12.05),
                );
                parts.max = TrackedValue::Absent;
            }),
        ),
        (
            "escapes",
            with_parts(Histogram::default(), |parts| {
                parts.positive = vec![
                    (-400, 14),
                    (-399, 15),
                    (-398, 16),
                    (-383, 17),
                    (-367, 142),
                    (-350, 143),
                    (100, 144),
                    (10_000, 1 << 40),
                    (10_001, u64::MAX - (1 << 41)),
                ];
                (parts.sum, parts.min, parts.max) =
                    (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent);
            }),
        ),
        ("low-word", plain(&[(0.1, 3), (1e9, 1)])),
        ("whole-low-word", plain(&[(9_007_199_254_740_991.0, 4095)])),
        ("large-numbers", plain(&[(2f64.powi(61), 1), (2f64.powi(60), 1)])),
    ]
    .into_iter()
    .map(|(name, histogram)| (name.to_owned(), histogram, in_unit(FrameUnit::Milliseconds)))
    .collect::<Vec<_>>();
    for (name, unit) in UNITS {
        let one = plain(&[(3.0, 1)]);
        goldens.push((format!("unit-{name}"), one.clone(), in_unit(unit)));
        let meta = SeriesMeta { unit, temporality: Temporality::Cumulative };
        goldens.push((format!("cumulative-{name}"), one, meta));
    }
    goldens
}

const LEGEND: &str = "Frames of version 1: name, contents, bytes. These bytes are to be read for \
                      ever: see README.md.";

fn golden_lines() -> Vec<(Golden, Histogram, SeriesMeta)> {
    let lines: Vec<Golden> = goldens()
        .into_iter()
        .map(|(name, histogram, meta)| {
            let text = golden::text(&histogram);
            let contents = format!("{}; {text}", golden::meta_text(meta));
            Golden { name, contents, bytes: frame_of(&histogram, meta) }
        })
        .collect();
    let kept = golden("frame/v1.tsv", LEGEND, &lines);
    assert_eq!(kept.len(), lines.len());
    for (kept, line) in kept.iter().zip(&lines) {
        assert_eq!((&kept.name, &kept.contents), (&line.name, &line.contents));
        assert_eq!(golden::hex(&kept.bytes), golden::hex(&line.bytes), "{}", kept.name);
    }
    kept.into_iter()
        .zip(goldens())
        .map(|(line, (_, histogram, meta))| (line, histogram, meta))
        .collect()
}

#[test]
fn golden_frames_are_read_and_written_to_the_byte() {
    for (Golden { name, bytes, .. }, histogram, meta) in golden_lines() {
        assert_eq!(frame::decode(&bytes), Ok((histogram.clone(), meta)), "{name}");
        let again = frame_of(&frame::decode(&bytes).unwrap().0, meta);
        assert_eq!(golden::hex(&again), golden::hex(&bytes), "{name}");
        check_plain(&reference::frame(&bytes).1, &histogram);
        let mut accumulator = Accumulator::new(histogram.scheme().clone());
        accumulator.add_frame(&bytes).unwrap();
        assert_eq!(accumulator.count(), histogram.count(), "{name}");
    }
}

#[test]
fn truncated_golden_frames_are_rejected() {
    for (Golden { name, bytes, .. }, ..) in golden_lines() {
        for len in 0..bytes.len() {
            assert!(frame::decode(&bytes[..len]).is_err(), "{name} cut to {len} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(frame::decode(&longer).is_err(), "{name} and a zero");
    }
}

#[test]
fn golden_frames_with_flipped_bit_are_detected() {
    for (Golden { name, bytes, .. }, histogram, meta) in golden_lines() {
        for bit in 0..8 * bytes.len() {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = frame::decode(&bytes);
            // Debug distinguishes −0 from 0.
            let same = format!("{:?}", Ok::<_, DecodeError>((&histogram, meta)));
            // Above 2^53 several whole numbers are one double.
            assert!(name == "large-numbers" || format!("{read:?}") != same, "{name}, bit {bit}");
            let mut accumulator = Accumulator::new(histogram.scheme().clone());
            let added = accumulator.add_frame(&bytes);
            assert!(read.is_ok() || added.is_err(), "{name}, bit {bit}");
        }
    }
}

#[test]
fn exactness_without_value_is_rejected() {
    let bytes = frame_of(&record_values(Scheme::default(), &[(3.0, 1)]), SeriesMeta::default());
    let bit = |name: &str| FLAGS.iter().find(|flag| flag.0 == name).unwrap().1;
    // The flags are two bytes of a varint.
    assert_eq!(u64::from(bytes[5] & 0x7f) | u64::from(bytes[6]) << 7, 0xf60);
    for name in ["sum", "min", "max"] {
        let flags = 0xf60 & !bit(name);
        let mut bytes = bytes.clone();
        (bytes[5], bytes[6]) = (flags as u8 | 0x80, (flags >> 7) as u8);
        assert!(matches!(frame::decode(&bytes), Err(DecodeError::Invalid { field: "flags", .. })));
    }
}

#[test]
fn unknown_version_is_rejected() {
    let mut bytes = frame_of(&Histogram::default(), SeriesMeta::default());
    bytes[1] = 2;
    let error = frame::decode(&bytes).unwrap_err().to_string();
    assert_eq!(error, "at byte 1: version is 2, expected 1, the version this program reads");
}

/// Otherwise a flipped bit would not be detected: schemes store zero without a sign.
#[test]
fn negative_zero_bound_or_offset_is_rejected() {
    let log = Scheme::Logarithmic(Logarithmic::new(1.02, 0.0, Interpolation::None).unwrap());
    for scheme in [log, Scheme::explicit(&[0.0]).unwrap()] {
        let mut bytes = frame_of(&Histogram::new(scheme), SeriesMeta::default());
        let zero = bytes.windows(8).position(|double| double == [0; 8]).unwrap();
        bytes[zero + 7] = 0x80;
        let error = frame::decode(&bytes).unwrap_err().to_string();
        assert!(error.ends_with("is -0, expected 0 without a sign"), "{error}");
    }
}
