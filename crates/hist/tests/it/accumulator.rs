//! Accumulators: adding equals merging, for all input forms.

use hist::codec::block;
use hist::codec::frame::SeriesMeta;
use hist::{Accumulator, Histogram, HistogramParts, Scheme};
use proptest::prelude::*;

use crate::block::block_of;
use crate::frame::{frame_of, histograms, metas};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn adding_frames_is_merging(histograms in histograms(), meta in metas(), in_memory in any::<bool>()) {
        let Some(first) = histograms.first() else { return Ok(()) };
        let mut merged = Histogram::new(first.scheme().clone());
        let mut accumulator = Accumulator::new(first.scheme().clone());
        for histogram in &histograms {
            merged.merge(histogram).unwrap();
            if in_memory {
                accumulator.add(histogram).unwrap();
            } else {
                accumulator.add_frame(&frame_of(histogram, meta)).unwrap();
            }
        }
        prop_assert_eq!(accumulator.count(), merged.count());
        prop_assert_eq!(accumulator.to_histogram(), merged.clone());

        let mut from_block = Accumulator::new(first.scheme().clone());
        block::merge_into(&block_of(&histograms, meta), 0..histograms.len(), &mut from_block).unwrap();
        prop_assert_eq!(from_block.to_histogram(), merged);
    }
}

#[test]
fn frame_with_impossible_total_is_rejected() {
    let mut parts = HistogramParts::new(Scheme::default());
    parts.positive = vec![(1, u64::MAX)];
    let bytes = frame_of(&Histogram::from_parts(parts).unwrap(), SeriesMeta::default());
    let mut accumulator = Accumulator::new(Scheme::default());
    accumulator.add_frame(&bytes).unwrap();
    assert!(accumulator.add_frame(&bytes).is_err());
    assert_eq!(accumulator.count(), u64::MAX);
}

#[test]
fn frame_overflowing_with_nan_is_rejected() {
    let of = |value, n| {
        let mut histogram = Histogram::default();
        histogram.record_n(value, n);
        histogram
    };
    let mut accumulator = Accumulator::new(Scheme::default());
    accumulator.add(&of(f64::NAN, u64::MAX - 1)).unwrap();
    accumulator.add(&of(1.0, 1)).unwrap();
    let one = of(1.0, 1);
    assert!(accumulator.add(&one).is_err());
    assert!(accumulator.add_frame(&frame_of(&one, SeriesMeta::default())).is_err());
    assert_eq!(accumulator.to_histogram().count(), 1);
}
