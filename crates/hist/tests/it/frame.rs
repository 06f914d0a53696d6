//! Frames and blocks: what goes in comes out, what is damaged is refused.

use hist::codec::block;
use hist::codec::frame::{self, Meaning, Temporality, Unit};
use hist::{Accumulator, Exp2, Histogram, Interpolation, Log, LogLinear2, Parts, Scheme, Side};
use proptest::prelude::*;

fn schemes() -> impl Strategy<Value = Scheme> {
    prop_oneof![
        (-10..=8).prop_map(|scale| Scheme::exp2(scale).unwrap()),
        (1u32..=18, -1022..100).prop_map(|(bits, floor)| {
            Scheme::LogLinear2(LogLinear2::with_floor(bits, floor).unwrap())
        }),
        Just(Scheme::LogLinear10),
        (0.001..0.2).prop_map(|accuracy| Scheme::log(accuracy).unwrap()),
        Just(Scheme::Log(Log::new(1.02, 3.5, Interpolation::Cubic).unwrap())),
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

fn histogram_of(scheme: Scheme, values: &[(f64, u64)], limits: bool, strip: u8) -> Histogram {
    let mut histogram = Histogram::new(scheme);
    if limits {
        histogram = histogram.with_thresholds(&[0.5, 1000.0]).unwrap();
    }
    for &(value, n) in values {
        histogram.record_n(value, n);
    }
    let mut parts = histogram.into_parts();
    if strip & 1 != 0 {
        parts.sum = Side::Absent;
    }
    if strip & 2 != 0 {
        (parts.min, parts.max) = (Side::Absent, Side::Absent);
    }
    if strip & 4 != 0 {
        parts.max = parts.max.value().map_or(Side::Absent, Side::Estimated);
    }
    Histogram::from_parts(parts).unwrap()
}

fn histograms() -> impl Strategy<Value = Vec<Histogram>> {
    let rows =
        proptest::collection::vec((proptest::collection::vec(values(), 0..40), 0u8..16), 0..20);
    (schemes(), rows, any::<bool>(), any::<bool>()).prop_map(|(scheme, rows, limits, plain)| {
        let strip = |s| if plain { 0 } else { s };
        rows.iter().map(|(row, s)| histogram_of(scheme.clone(), row, limits, strip(*s))).collect()
    })
}

fn meanings() -> impl Strategy<Value = Meaning> {
    let units = [
        Unit::None,
        Unit::Nanoseconds,
        Unit::Microseconds,
        Unit::Milliseconds,
        Unit::Seconds,
        Unit::Bytes,
    ];
    let temporality = [Temporality::Delta, Temporality::Cumulative];
    (proptest::sample::select(units.to_vec()), proptest::sample::select(temporality.to_vec()))
        .prop_map(|(unit, temporality)| Meaning { unit, temporality })
}

fn frame_of(histogram: &Histogram, meaning: Meaning) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(histogram, meaning, &mut bytes);
    bytes
}

fn block_of(histograms: &[Histogram], meaning: Meaning) -> Vec<u8> {
    let mut bytes = Vec::new();
    block::encode(histograms, meaning, &mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn frames_come_back(histograms in histograms(), meaning in meanings()) {
        for histogram in &histograms {
            let bytes = frame_of(histogram, meaning);
            prop_assert_eq!(frame::decode(&bytes), Ok((histogram.clone(), meaning)));
        }
    }

    #[test]
    fn blocks_come_back(histograms in histograms(), meaning in meanings()) {
        let bytes = block_of(&histograms, meaning);
        let (found, found_meaning) = block::decode(&bytes).unwrap();
        prop_assert_eq!(found, histograms);
        prop_assert_eq!(found_meaning, meaning);
    }

    #[test]
    fn adding_frames_is_merging(histograms in histograms(), meaning in meanings(), in_memory in any::<bool>()) {
        let Some(first) = histograms.first() else { return Ok(()) };
        let mut merged = Histogram::new(first.scheme().clone());
        let mut accumulator = Accumulator::new(first.scheme().clone());
        for histogram in &histograms {
            merged.merge(histogram).unwrap();
            if in_memory {
                accumulator.add(histogram).unwrap();
            } else {
                accumulator.add_frame(&frame_of(histogram, meaning)).unwrap();
            }
        }
        prop_assert_eq!(accumulator.count(), merged.count());
        prop_assert_eq!(accumulator.to_histogram(), merged.clone());

        let mut from_block = Accumulator::new(first.scheme().clone());
        block::merge_into(&block_of(&histograms, meaning), 0..histograms.len(), &mut from_block).unwrap();
        prop_assert_eq!(from_block.to_histogram(), merged);
    }

    #[test]
    fn a_damaged_frame_is_refused_or_another_histogram(histograms in histograms(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let Some(histogram) = histograms.first() else { return Ok(()) };
        let mut bytes = frame_of(histogram, Meaning::default());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let decoded = frame::decode(&bytes);
        let mut accumulator = Accumulator::new(histogram.scheme().clone());
        accumulator.add(histogram).unwrap();
        let before = accumulator.to_histogram();
        // What decodes adds up, what does not leaves the accumulator as it was.
        if accumulator.add_frame(&bytes).is_err() {
            prop_assert_eq!(accumulator.to_histogram(), before);
        } else {
            let mut expected = before;
            expected.merge(&decoded.unwrap().0).unwrap();
            prop_assert_eq!(accumulator.to_histogram(), expected);
        }
    }

    #[test]
    fn a_damaged_block_is_refused(histograms in histograms(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = block_of(&histograms, Meaning::default());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(block::decode(&bytes).is_err());
    }

    #[test]
    fn damage_under_a_good_checksum_does_no_harm(histograms in histograms(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = block_of(&histograms, Meaning::default());
        let body = bytes.len() - 4;
        bytes[at.index(body)] = byte;
        let checksum = crc32c::crc32c(&bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&checksum);
        let _ = block::decode(&bytes);
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = frame::decode(&bytes);
        let _ = block::decode(&bytes);
        let _ = Accumulator::new(Scheme::default()).add_frame(&bytes);
    }
}

#[test]
fn frames_cut_short_are_refused() {
    let histogram = histogram_of(Scheme::default(), &[(5.0, 3), (1e9, 1), (0.0, 2)], true, 0);
    let bytes = frame_of(&histogram, Meaning::default());
    for len in 0..bytes.len() {
        assert!(frame::decode(&bytes[..len]).is_err(), "cut to {len} bytes");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(frame::decode(&longer).is_err());
}

#[test]
fn another_version_is_refused_politely() {
    let mut bytes = frame_of(&Histogram::default(), Meaning::default());
    bytes[1] = 2;
    let error = frame::decode(&bytes).unwrap_err().to_string();
    assert_eq!(error, "at byte 1: version is 2, expected 1, the version this program reads");
}

#[test]
fn histograms_that_differ_make_no_block() {
    let other = Histogram::new(Scheme::Exp2(Exp2::new(3).unwrap()));
    let error = block::encode(&[Histogram::default(), other], Meaning::default(), &mut Vec::new());
    assert_eq!(error, Err(block::BlockError::Differs { position: 1 }));
}

#[test]
fn a_frame_with_an_impossible_total_is_refused() {
    let mut parts = Parts::new(Scheme::default());
    parts.positive = vec![(1, u64::MAX)];
    let bytes = frame_of(&Histogram::from_parts(parts).unwrap(), Meaning::default());
    let mut accumulator = Accumulator::new(Scheme::default());
    accumulator.add_frame(&bytes).unwrap();
    assert!(accumulator.add_frame(&bytes).is_err());
    assert_eq!(accumulator.count(), u64::MAX);
}
