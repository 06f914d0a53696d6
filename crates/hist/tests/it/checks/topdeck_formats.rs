//! Frames and blocks.

use hist::codec::decoded_block::{DecodedBlock, DenseCounts};
use hist::codec::{block, frame};
use hist::{Accumulator, Histogram};

use super::histogram::{assert_same_counts, check_all, check_statistics};

pub(super) fn frame(bytes: &[u8]) {
    let Ok((histogram, meta)) = frame::decode(bytes) else { return };
    check_all(&histogram);
    let mut again = Vec::new();
    frame::encode(&histogram, meta, &mut again);
    assert_eq!(frame::decode(&again), Ok((histogram, meta)));
}

/// Maximum number of cells of a block for the full checks. A few bytes may stand for two million
/// cells, which are decoded and merged, but statistics of each would keep a fuzzer busy for
/// seconds.
const CELLS_CHECKED_MAX: usize = 1 << 12;

/// The last four bytes are replaced by the correct checksum: a fuzzer does not find it by chance.
pub(super) fn block(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some((body, checksum)) = bytes.split_last_chunk_mut::<4>() {
        *checksum = crc32c::crc32c(body).to_le_bytes();
    }
    let decoded = block::decode(&bytes);
    let mut accumulator = Accumulator::new(
        decoded
            .as_ref()
            .ok()
            .and_then(|(all, _)| all.first())
            .map_or_else(Default::default, scheme),
    );
    let added = block::merge_into(&bytes, 0..usize::MAX, &mut accumulator);
    let Ok((histograms, meta)) = decoded else {
        assert!(accumulator.count() == 0, "a damaged block was added");
        return;
    };
    if histograms.is_empty() {
        assert!(added.is_ok() && accumulator.count() == 0, "{added:?}");
        return;
    }
    check_counts(&bytes, &histograms);
    let merged = merge_all(&histograms);
    assert_eq!(added.is_ok(), merged.is_some(), "{added:?}");
    if let Some(merged) = merged {
        assert_same_counts(&accumulator.to_histogram(), &merged);
        assert_eq!(accumulator.to_histogram().thresholds(), merged.thresholds());
        check_statistics(&accumulator.to_histogram());
    }
    let cells: usize = histograms.iter().map(|h| h.positive().len() + h.negative().len() + 1).sum();
    if cells > CELLS_CHECKED_MAX {
        return;
    }
    histograms.iter().take(2).for_each(check_all);
    histograms.iter().take(64).for_each(check_statistics);
    let mut again = Vec::new();
    block::encode(&histograms, meta, &mut again).expect("they came from one block");
    assert_eq!(block::decode(&again), Ok((histograms, meta)));
}

/// Counts decoded for sums of rows equal those of the histograms.
fn check_counts(bytes: &[u8], histograms: &[Histogram]) {
    let counts = DecodedBlock::decode(bytes).expect("the block is valid");
    let Some(counts) = counts else { return };
    let totals: Vec<u64> = histograms.iter().map(Histogram::count).collect();
    assert_eq!(counts.totals(), totals);
    let (mut by_rows, mut by_histograms) = (DenseCounts::default(), DenseCounts::default());
    assert!(by_rows.extend_to_block(&counts), "the block fits a window");
    by_rows.add_rows(&counts, 0..histograms.len(), false);
    assert!(histograms.iter().all(|histogram| by_histograms.add_histogram(histogram)));
    assert_eq!(by_rows.buckets(), by_histograms.buckets());
    by_rows.add_rows(&counts, 0..histograms.len(), true);
    assert_eq!(by_rows.buckets(), (Vec::new(), 0));
}

fn scheme(histogram: &Histogram) -> hist::Scheme {
    histogram.scheme().clone()
}

/// All of them merged one by one; `None` if the total exceeds 64 bits.
fn merge_all(histograms: &[Histogram]) -> Option<Histogram> {
    let first = histograms.first()?;
    let mut all = Histogram::new(first.scheme().clone());
    histograms.iter().try_for_each(|histogram| all.merge(histogram)).ok()?;
    Some(all)
}
