//! Blocks: round trips, rejection of damaged blocks, and bytes equal to the page
//! `docs/formats/block.md` and the golden file. A second decoder, written from the page, must read
//! the same.

use hist::codec::block::{self, BlockError};
use hist::codec::frame::{FrameUnit, SeriesMeta, Temporality};
use hist::{
    Accumulator, DoubleDouble, Histogram, HistogramParts, LogLinear2, Scheme, TrackedValue,
};
use proptest::prelude::*;

use crate::block_reference as reference;
use crate::frame::{frame_of, histograms, metas};
use crate::golden::{self, Golden, golden, listing, page};
use crate::page::rows;

pub(crate) fn block_of(histograms: &[Histogram], meta: SeriesMeta) -> Vec<u8> {
    let mut bytes = Vec::new();
    block::encode(histograms, meta, &mut bytes).unwrap();
    bytes
}

/// The reference decoder must read these histograms: each must equal its round trip through a
/// frame.
#[track_caller]
fn check_reference(bytes: &[u8], histograms: &[Histogram], meta: SeriesMeta) -> reference::Sizes {
    check_plain_rows(reference::block(bytes), histograms, meta)
}

#[track_caller]
fn check_plain_rows(
    (head, plains, sizes): (
        reference::ReferenceHeader,
        Vec<reference::PlainHistogram>,
        reference::Sizes,
    ),
    histograms: &[Histogram],
    meta: SeriesMeta,
) -> reference::Sizes {
    assert_eq!(plains.len(), histograms.len());
    for (plain, histogram) in plains.iter().zip(histograms) {
        let (frame_head, from_frame) = reference::frame(&frame_of(histogram, meta));
        assert_eq!(head, frame_head);
        // Debug distinguishes doubles to the bit, including −0 from 0.
        assert_eq!(format!("{plain:?}"), format!("{from_frame:?}"));
    }
    sizes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn blocks_round_trip(histograms in histograms(), meta in metas()) {
        let bytes = block_of(&histograms, meta);
        let (found, found_meta) = block::decode(&bytes).unwrap();
        prop_assert_eq!(block_of(&found, meta), bytes);
        prop_assert_eq!(found, histograms);
        prop_assert_eq!(found_meta, meta);
    }

    #[test]
    fn reference_decoder_reads_blocks(histograms in histograms(), meta in metas()) {
        check_reference(&block_of(&histograms, meta), &histograms, meta);
    }

    // slow: that reader is written to be plain, not fast.
    #[test]
    fn reference_decoder_reads_longer_series(
        rows in 1usize..60,
        values in 1u64..3000,
        octaves in 1i32..40,
        seed in any::<u64>(),
    ) {
        let histograms = series(rows, values, octaves, seed);
        let bytes = block_of(&histograms, SeriesMeta::default());
        check_reference(&bytes, &histograms, SeriesMeta::default());
        prop_assert_eq!(block::decode(&bytes).unwrap().0, histograms);
    }

    #[test]
    fn runs_equal_the_sum_of_their_rows(
        histograms in histograms(),
        cuts in proptest::collection::btree_set(0usize..24, 0..8),
        numbers in proptest::collection::vec(0usize..3, 8),
    ) {
        check_runs(&histograms, &cuts.into_iter().collect::<Vec<_>>(), &numbers)?;
    }

    #[test]
    fn runs_of_longer_series_equal_the_sum_of_their_rows(
        rows in 1usize..120,
        values in 1u64..300,
        seed in any::<u64>(),
        cuts in proptest::collection::btree_set(0usize..130, 0..8),
        numbers in proptest::collection::vec(0usize..3, 8),
    ) {
        let histograms = series(rows, values, 6, seed);
        check_runs(&histograms, &cuts.into_iter().collect::<Vec<_>>(), &numbers)?;
    }

    #[test]
    fn damaged_block_is_rejected(histograms in histograms(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = block_of(&histograms, SeriesMeta::default());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(block::decode(&bytes).is_err());
    }

    #[test]
    fn damage_under_a_valid_checksum_does_not_panic(histograms in histograms(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = block_of(&histograms, SeriesMeta::default());
        let body = bytes.len() - 4;
        bytes[at.index(body)] = byte;
        seal(&mut bytes);
        let _ = block::decode(&bytes);
    }

    #[test]
    fn random_bytes_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = block::decode(&bytes);
    }
}

/// Rows that are invalid histograms are rejected even if their sum is valid: one row has more
/// values above a threshold than in total, the other fewer.
#[test]
fn invalid_row_is_rejected_by_merge_runs() {
    let of = |n| {
        let mut histogram = Histogram::default().with_thresholds(&[5.0]).unwrap();
        histogram.record_n(1.0, 4 - n);
        histogram.record_n(9.0, n);
        histogram
    };
    let bytes = block_of(&[of(1), of(2)], SeriesMeta::default());
    let mut refused = 0;
    for at in 0..8 * (bytes.len() - 4) {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        seal(&mut damaged);
        let mut sum = [Accumulator::new(Scheme::default())];
        let added = block::merge_runs(&damaged, &[(0..2, 0)], &mut sum);
        if block::decode(&damaged).is_err() {
            refused += 1;
            assert!(added.is_err() && sum[0].count() == 0, "bit {at}");
        }
    }
    assert!(refused > 0);
}

/// In a block each row fits 64 bits, while one bucket of all rows does not.
#[test]
fn rows_with_more_values_than_can_be_counted_are_refused_by_an_empty_accumulator_too() {
    for (rows, values) in [(2, 1 << 63), (300, 1 << 56), (4096, 1 << 56)] {
        let mut histogram = Histogram::default();
        histogram.record_n(5.0, values);
        let bytes = block_of(&vec![histogram; rows], SeriesMeta::default());
        let mut sum = Accumulator::new(Scheme::default());
        assert!(block::merge_into(&bytes, 0..rows, &mut sum).is_err(), "{rows} rows");
        assert_eq!(sum.count(), 0, "{rows} rows");
        // Fewer of them fit.
        block::merge_into(&bytes, 0..1, &mut sum).unwrap();
        assert_eq!(sum.to_histogram().count(), values, "{rows} rows");
        assert_eq!(sum.to_histogram().positive().counts(), [values], "{rows} rows");
    }
}

/// Accumulators whose content does not simply add to rows of a block, and rows that are not plain.
#[test]
fn runs_are_added_to_nonempty_accumulators() {
    let rows = series(40, 200, 6, 5);
    let without = |change: &dyn Fn(&mut HistogramParts)| {
        let mut parts = rows[0].clone().into_parts();
        change(&mut parts);
        Histogram::from_recorded_parts(parts).unwrap()
    };
    let befores = [
        Histogram::default(),
        without(&|parts| (parts.min, parts.max) = (TrackedValue::Absent, TrackedValue::Absent)),
        without(&|parts| parts.sum = TrackedValue::Absent),
        Histogram::default().with_zero_threshold(0.5).unwrap(),
        record_values(Scheme::exp2(3).unwrap(), &[(7.0, 3)]),
        record_values(Scheme::default(), &[(-3.0, 1), (f64::NAN, 2), (1e300, 1)]),
    ];
    let mut odd = vec![rows.clone(); 4];
    odd[1][39] = record_values(Scheme::default(), &[(0.0, 2), (1e12, 1)]);
    odd[2][7] = record_values(Scheme::default(), &[(-3.0, 1), (f64::NAN, 2)]);
    odd[3][0] = without(&|parts| parts.min = TrackedValue::Exact(f64::MIN_POSITIVE));
    for (before, rows) in
        befores.iter().flat_map(|before| odd.iter().map(move |rows| (before, rows)))
    {
        let mut found = vec![Accumulator::new(Scheme::default()); 40];
        found.iter_mut().for_each(|sum| sum.add(before).unwrap());
        let mut expected = found.clone();
        let runs: Vec<_> = (0..40).map(|row| (row..row + 1, row / 3)).collect();
        for (range, number) in &runs {
            expected[*number].add(&rows[range.start]).unwrap();
        }
        block::merge_runs(&block_of(rows, SeriesMeta::default()), &runs, &mut found).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.to_histogram(), expected.to_histogram());
        }
    }
}

/// Every second space between cuts is left out.
fn check_runs(
    histograms: &[Histogram],
    cuts: &[usize],
    numbers: &[usize],
) -> Result<(), TestCaseError> {
    let Some(first) = histograms.first() else { return Ok(()) };
    let runs: Vec<(std::ops::Range<usize>, usize)> = cuts
        .windows(2)
        .zip(numbers)
        .enumerate()
        .filter(|(place, _)| place % 3 != 1)
        .map(|(_, (cut, &number))| (cut[0]..cut[1], number))
        .collect();
    let empty = Accumulator::new(first.scheme().clone());
    let (mut expected, mut found) = (vec![empty.clone(); 3], vec![empty; 3]);
    for (range, number) in &runs {
        let range = range.start.min(histograms.len())..range.end.min(histograms.len());
        for histogram in &histograms[range] {
            expected[*number].add(histogram).unwrap();
        }
    }
    let bytes = block_of(histograms, SeriesMeta::default());
    prop_assert_eq!(block::rows(&bytes), Ok(histograms.len()));
    block::merge_runs(&bytes, &runs, &mut found).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        let (found, expected) = (found.to_histogram(), expected.to_histogram());
        let (found_sum, expected_sum) = (found.tracked_sum(), expected.tracked_sum());
        let value =
            |side: TrackedValue<DoubleDouble>| side.value().map_or(0.0, DoubleDouble::value);
        // Sums of doubles may differ in their second words.
        let near =
            (value(found_sum) - value(expected_sum)).abs() <= value(expected_sum).abs() * 1e-15;
        prop_assert!(near || value(found_sum).to_bits() == value(expected_sum).to_bits());
        let plain = |histogram: Histogram| {
            let mut parts = histogram.into_parts();
            parts.sum = TrackedValue::Absent;
            parts
        };
        prop_assert_eq!(plain(found), plain(expected));
    }
    let mut damaged = bytes;
    let at = damaged.len() / 2;
    damaged[at] ^= 4;
    prop_assert!(block::merge_runs(&damaged, &runs, &mut found).is_err());
    Ok(())
}

/// Updates the checksum.
fn seal(bytes: &mut [u8]) {
    let body = bytes.len() - 4;
    let checksum = crc32c::crc32c(&bytes[..body]).to_le_bytes();
    bytes[body..].copy_from_slice(&checksum);
}

#[test]
fn blocks_of_other_versions_are_rejected() {
    for version in [0, 1, 4] {
        let mut bytes = block_of(&example(), SeriesMeta::default());
        bytes[1] = version;
        seal(&mut bytes);
        let expected = format!(
            "at byte 1: version is {version}, expected 2 or 3, the versions this program reads"
        );
        assert_eq!(block::decode(&bytes).unwrap_err().to_string(), expected);
        assert_eq!(block::rows(&bytes).unwrap_err().to_string(), expected);
        let merged = block::merge_into(&bytes, 0..2, &mut Accumulator::new(Scheme::default()));
        assert_eq!(merged.unwrap_err().to_string(), expected);
    }
}

#[test]
fn histograms_that_differ_make_no_block() {
    let other = Histogram::new(Scheme::exp2(3).unwrap());
    let error =
        block::encode(&[Histogram::default(), other], SeriesMeta::default(), &mut Vec::new());
    assert_eq!(error, Err(BlockError::NotUniform { position: 1 }));
}

#[test]
fn more_than_the_limits_make_no_block() {
    #[track_caller]
    fn check(histograms: &[Histogram]) {
        let error = block::encode(histograms, SeriesMeta::default(), &mut Vec::new());
        assert!(matches!(error, Err(BlockError::TooMany { .. })));
    }
    check(&vec![Histogram::default(); block::HISTOGRAMS_MAX + 1]);
    let mut wide = Histogram::new(Scheme::log_linear2(18).unwrap());
    (0..=block::CELLS_MAX / 1024).for_each(|n| wide.record(1.0 + n as f64 / 8192.0));
    let mut rows = vec![Histogram::new(wide.scheme().clone()); 1024];
    rows[7] = wide;
    check(&rows);
}

#[test]
fn maximum_thresholds_fit_a_block() {
    let limits: Vec<f64> = (0..=Histogram::THRESHOLDS_MAX).map(|limit| limit as f64).collect();
    assert!(Histogram::default().with_thresholds(&limits).is_err());
    let most = Histogram::default().with_thresholds(&limits[1..]).unwrap();
    block::encode(&[most], SeriesMeta::default(), &mut Vec::new()).unwrap();
}

/// Negative buckets of explicit bounds, and a middle far below -2^63: the parts are rejected, but
/// only after predictions are computed from them.
#[test]
fn huge_negative_explicit_bounds_are_rejected() {
    let scheme = Scheme::explicit(&[-4e300, -1e300]).unwrap();
    let mut histogram = Histogram::new(scheme);
    histogram.record(-2e300);
    let bytes = block_of(&[histogram], SeriesMeta::default());
    // Header with 2 bounds, 1 histogram, zero threshold, no limits; positive: a matrix; negative: a
    // zero; the columns, preceded by their length. Swapping the matrices turns positive buckets
    // into negative ones.
    let positive = 4 + (1 + 16) + 3;
    let negative = (positive..bytes.len() - 5)
        .find(|&at| bytes[at] == 0 && at + 2 + usize::from(bytes[at + 1]) == bytes.len() - 4)
        .unwrap();
    assert_eq!(bytes[negative], 0);
    let mut swapped =
        [&bytes[..positive], &[0], &bytes[positive..negative], &bytes[negative + 1..]].concat();
    seal(&mut swapped);
    assert!(block::decode(&swapped).is_err());
}

/// The histograms of the page's example.
fn example() -> Vec<Histogram> {
    [[(17.0, 3), (100.0, 20)], [(17.0, 2), (103.0, 18)]]
        .map(|values| record_values(Scheme::default(), &values))
        .to_vec()
}

#[test]
fn page_example_matches_the_encoder() {
    let meta = SeriesMeta { unit: FrameUnit::Microseconds, ..SeriesMeta::default() };
    let bytes = block_of(&example(), meta);
    let documented = listing(&page("block.md"), "Example");
    assert_eq!(golden::hex(&documented), golden::hex(&bytes));
    assert_eq!(block::decode(&documented), Ok((example(), meta)));
    check_reference(&documented, &example(), meta);
}

#[test]
fn page_lists_the_limits() {
    let limits = [
        ("histograms", block::HISTOGRAMS_MAX as u64),
        ("cells of a matrix", block::CELLS_MAX),
        ("thresholds", block::THRESHOLDS_MAX),
    ];
    let limits = limits.map(|(name, limit)| vec![name.to_owned(), limit.to_string()]);
    assert_eq!(rows(&page("block.md"), "### Limits", "|"), limits);
}

fn record_values(scheme: Scheme, values: &[(f64, u64)]) -> Histogram {
    let mut histogram = Histogram::new(scheme);
    values.iter().for_each(|&(value, n)| histogram.record_n(value, n));
    histogram
}

/// Rows of log-normal whole numbers, reproducible on every machine: only additions, multiplications
/// and square roots. One value in four is more than `octaves` / 9 octaves from the middle.
fn series(rows: usize, values: u64, octaves: i32, mut seed: u64) -> Vec<Histogram> {
    let roots: Vec<f64> = std::iter::successors(Some(2f64), |x| Some(x.sqrt())).take(11).collect();
    let mut random = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 48) as i32
    };
    let mut row = |_| {
        let mut histogram = Histogram::default();
        for _ in 0..values {
            // Twelve even numbers add up to a nearly normal one, of variance 1 at 2^16.
            let normal = (0..12).map(|_| random()).sum::<i32>() - 6 * 65536;
            // In 1024ths of an octave.
            let log = normal / 64 * octaves / 6 + 10 * 1024;
            let (octave, part) = (log.div_euclid(1024), log.rem_euclid(1024));
            let mut value = 2f64.powi(octave);
            for bit in 0..10 {
                value *= if part >> (9 - bit) & 1 == 1 { roots[bit + 1] } else { 1.0 };
            }
            histogram.record(value.floor());
        }
        histogram
    };
    (0..rows).map(&mut row).collect()
}

/// What the golden file holds.
fn goldens() -> Vec<(&'static str, Vec<Histogram>, SeriesMeta)> {
    let plain = |values: &[(f64, u64)]| record_values(Scheme::default(), values);
    let change = |histogram: &Histogram, change: &dyn Fn(&mut HistogramParts)| {
        let mut parts = histogram.clone().into_parts();
        change(&mut parts);
        Histogram::from_parts(parts).unwrap()
    };
    let latencies = [(12.0, 5), (15.0, 40), (21.0, 17), (480.0, 1)];
    let known = plain(&latencies);
    let absent = change(&known, &|parts| {
        (parts.sum, parts.min, parts.max) =
            (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent)
    });
    let estimated = change(&known, &|parts| {
        (parts.sum, parts.min) =
            (TrackedValue::Estimated(DoubleDouble::new(1500.0)), TrackedValue::Estimated(12.0));
    });
    let limits = |scale: u64| {
        let empty = Histogram::default().with_thresholds(&[13.0, 50.5, 1e6]).unwrap();
        let mut histogram = empty.with_zero_threshold(0.5).unwrap();
        latencies.iter().for_each(|&(value, n)| histogram.record_n(value, n * scale));
        histogram.record_n(0.25, scale);
        histogram
    };
    let all = |scheme: Scheme| {
        vec![
            record_values(scheme.clone(), &latencies),
            record_values(scheme.clone(), &[]),
            record_values(scheme, &latencies[1..3]),
        ]
    };
    let delta = SeriesMeta { unit: FrameUnit::Microseconds, temporality: Temporality::Delta };
    let cumulative = SeriesMeta { temporality: Temporality::Cumulative, ..delta };
    let integers = Scheme::LogLinear2(LogLinear2::integers(7).unwrap());
    vec![
        ("none", vec![], delta),
        ("one", vec![known.clone()], delta),
        ("three", vec![known.clone(), plain(&latencies[..2]), known.clone()], cumulative),
        ("series", series(360, 40, 6, 1), delta),
        ("empty", vec![Histogram::default(), plain(&[(f64::NAN, 3)])], delta),
        ("standings", vec![known.clone(), absent, Histogram::default(), estimated], delta),
        ("not-whole", vec![plain(&[(0.1, 3), (1.5, 1)]), known.clone()], delta),
        (
            "negatives",
            vec![
                plain(&[(-17.0, 3), (-1.0, 1), (4.0, 2)]),
                plain(&[(-1.0, 2), (0.0, 1)]),
                plain(&[(-1000.0, 5)]),
            ],
            delta,
        ),
        ("thresholds", vec![limits(1), limits(3), limits(2)], delta),
        (
            "outside",
            vec![
                record_values(Scheme::LogLinear10, &[(1e200, 1), (-1e150, 2), (3.0, 1)]),
                record_values(Scheme::LogLinear10, &[(1e-200, 2), (f64::NAN, 1)]),
            ],
            delta,
        ),
        (
            "minus-zero",
            vec![plain(&[(-0.0, 2)]), plain(&[(-0.0, 1), (3.0, 1)]), known.clone()],
            delta,
        ),
        ("infinite", vec![plain(&[(f64::INFINITY, 1), (f64::NEG_INFINITY, 1)]), known], delta),
        ("integers", all(integers), delta),
        ("log", all(Scheme::log(0.01).unwrap()), delta),
        ("explicit", all(Scheme::explicit(&[-1.0, 12.5, 20.0, 100.0]).unwrap()), delta),
        ("explicit-no-bounds", all(Scheme::explicit(&[]).unwrap()), delta),
        (
            "large-counts",
            vec![
                plain(&[(3.0, 15), (5.0, 16), (9.0, 1 << 20), (100.0, u64::MAX >> 2)]),
                plain(&[(3.0, 19), (5.0, 20), (9.0, (1 << 40) + 12_345)]),
                plain(&[(100.0, 1 << 62)]),
            ],
            delta,
        ),
    ]
}

const LEGEND: &str =
    "Blocks of version 2: name, contents (all added up, where there are more than four), bytes.
These bytes are to be read for ever: see README.md.";

fn golden_lines() -> Vec<(Golden, Vec<Histogram>, SeriesMeta)> {
    let contents = |histograms: &[Histogram], meta: SeriesMeta| {
        let texts = match histograms.len() {
            0..=4 => histograms.iter().map(golden::text).collect::<Vec<_>>(),
            _ => {
                let mut all = Histogram::new(histograms[0].scheme().clone());
                histograms.iter().for_each(|histogram| all.merge(histogram).unwrap());
                vec![golden::text(&all)]
            }
        };
        let (unit, n) = (golden::meta_text(meta), histograms.len());
        format!("{unit}; {n} histograms: {}", texts.join(" / "))
    };
    let lines: Vec<Golden> = goldens()
        .into_iter()
        .map(|(name, histograms, meta)| Golden {
            name: name.into(),
            contents: contents(&histograms, meta),
            bytes: block_of(&histograms, meta),
        })
        .collect();
    let kept = golden("block/v2.tsv", LEGEND, &lines);
    assert_eq!(kept.len(), lines.len());
    for (kept, line) in kept.iter().zip(&lines) {
        assert_eq!((&kept.name, &kept.contents), (&line.name, &line.contents));
        assert_eq!(golden::hex(&kept.bytes), golden::hex(&line.bytes), "{}", kept.name);
    }
    kept.into_iter()
        .zip(goldens())
        .map(|(line, (_, histograms, meta))| (line, histograms, meta))
        .collect()
}

#[test]
fn golden_blocks_are_read_and_written_to_the_byte() {
    for (Golden { name, bytes, .. }, histograms, meta) in golden_lines() {
        assert_eq!(block::decode(&bytes), Ok((histograms.clone(), meta)), "{name}");
        let again = block_of(&block::decode(&bytes).unwrap().0, meta);
        assert_eq!(golden::hex(&again), golden::hex(&bytes), "{name}");
        let sizes = check_reference(&bytes, &histograms, meta);
        println!("{name}: {} bytes, {sizes:?}", bytes.len());
    }
}

#[test]
fn truncated_golden_blocks_are_rejected() {
    for (Golden { name, bytes, .. }, ..) in golden_lines() {
        for len in 0..bytes.len() {
            assert!(block::decode(&bytes[..len]).is_err(), "{name} cut to {len} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(block::decode(&longer).is_err(), "{name} and a zero");
    }
}

#[test]
fn golden_blocks_with_flipped_bit_are_rejected() {
    for (Golden { name, mut bytes, .. }, ..) in golden_lines() {
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(block::decode(&bytes).is_err(), "{name}, bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// The reference decoder reads blocks of typical series; `--nocapture` prints their size.
#[test]
fn sizes_of_series() {
    let sizes = |name: &str, histograms: &[Histogram]| {
        let bytes = block_of(histograms, SeriesMeta::default());
        let frames: usize =
            histograms.iter().map(|h| frame_of(h, SeriesMeta::default()).len()).sum();
        let sizes = check_reference(&bytes, histograms, SeriesMeta::default());
        println!("{name}: {} bytes, {frames} as frames, {sizes:?}", bytes.len());
    };
    for values in [1, 40, 1000] {
        let whole = series(360, values, 6, 7);
        sizes(&format!("whole, {values}"), &whole);
        let thousandths = |histogram: &Histogram| {
            let mut parts = histogram.clone().into_parts();
            let mut scaled = Histogram::default();
            for &(index, n) in &parts.positive {
                let (lower, upper) = Scheme::default().edges(index).unwrap();
                scaled.record_n((lower / 2.0 + upper / 2.0).round().max(1.0) / 1000.0, n);
            }
            parts = scaled.into_parts();
            Histogram::from_parts(parts).unwrap()
        };
        let fractions: Vec<Histogram> = whole.iter().map(thousandths).collect();
        sizes(&format!("thousandths, {values}"), &fractions);
        let mut log = Vec::new();
        for histogram in &whole {
            let mut other = Histogram::new(Scheme::log(0.01).unwrap());
            for (index, n) in histogram.positive().iter() {
                let (lower, upper) = Scheme::default().edges(index).unwrap();
                other.record_n((lower / 2.0 + upper / 2.0).round().max(1.0), n);
            }
            log.push(other);
        }
        sizes(&format!("log, {values}"), &log);
        let mut outlier = whole.clone();
        outlier[100].record(f64::INFINITY);
        sizes(&format!("one overflow, {values}"), &outlier);
        sizes(&format!("one row, {values}"), &whole[..1]);
    }
}
