//! Frames added from their bytes, compared with frames decoded and merged one by one.

use arbitrary::{Result, Unstructured};
use hist::codec::frame::{self, SeriesMeta, Temporality};
use hist::{Accumulator, Histogram};

use super::histogram::{assert_same_counts, check_statistics};
use super::statistics::{number, scheme, value};

/// Maximum number of frames in a sequence.
const FRAMES_MAX: usize = 24;

pub(super) fn frames(bytes: &[u8]) {
    let _ = try_frames(&mut Unstructured::new(bytes));
}

fn try_frames(u: &mut Unstructured<'_>) -> Result<()> {
    let common = scheme(u)?;
    let mut accumulator = Accumulator::new(common.clone());
    let mut model = Histogram::new(common.clone());
    let mut added = 0;
    while !u.is_empty() && added < FRAMES_MAX {
        added += 1;
        let other = if u.ratio(1, 4)? { scheme(u)? } else { common.clone() };
        let bytes = frame_of(u, Histogram::new(other))?;
        let decoded = frame::decode(&bytes).ok();
        if let Some((histogram, _)) = &decoded {
            assert_eq!(frame::count(&bytes).ok(), Some(histogram.count()));
        }
        if u.ratio(1, 8)? {
            if let Some((histogram, _)) = decoded {
                assert_eq!(accumulator.add(&histogram), model.merge(&histogram));
            }
        } else {
            let expected = decoded.and_then(|(histogram, _)| model.merge(&histogram).ok());
            assert_eq!(accumulator.add_frame(&bytes).ok(), expected);
        }
        assert_eq!(accumulator.count(), model.count());
    }
    assert_same(&accumulator.to_histogram(), &model);
    Ok(())
}

/// A frame of some values, sometimes with changed bytes.
fn frame_of(u: &mut Unstructured<'_>, mut histogram: Histogram) -> Result<Vec<u8>> {
    if u.ratio(1, 8)? {
        let threshold = number(u)?.abs();
        histogram = histogram.clone().with_zero_threshold(threshold).unwrap_or(histogram);
    }
    if u.ratio(1, 8)? {
        let limit = number(u)?;
        histogram = histogram.clone().with_thresholds(&[limit]).unwrap_or(histogram);
    }
    for _ in 0..u.int_in_range(0..=12)? {
        let n = if u.ratio(1, 8)? { u.arbitrary::<u64>()? >> 2 } else { 1 };
        if (histogram.count() + histogram.nan_count()).checked_add(n).is_some() {
            histogram.record_n(value(u)?, n);
        }
    }
    let temporality = if u.arbitrary()? { Temporality::Cumulative } else { Temporality::Delta };
    let mut bytes = Vec::new();
    frame::encode(&histogram, SeriesMeta { temporality, ..SeriesMeta::default() }, &mut bytes);
    if u.ratio(1, 4)? {
        for _ in 0..u.int_in_range(1..=4)? {
            let at = u.choose_index(bytes.len())?;
            bytes[at] = u.arbitrary()?;
        }
    }
    Ok(bytes)
}

/// Equal counts and statistics. A sum in another order of additions may differ in its last bits,
/// and only one of the two may detect a frame with a wrong sum.
fn assert_same(accumulated: &Histogram, model: &Histogram) {
    assert_same_counts(accumulated, model);
    assert_eq!(accumulated.thresholds(), model.thresholds());
    assert_eq!(accumulated.tracked_min(), model.tracked_min());
    assert_eq!(accumulated.tracked_max(), model.tracked_max());
    check_statistics(accumulated);
    check_statistics(model);
}
