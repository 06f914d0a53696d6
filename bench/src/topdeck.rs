//! The topdeck contender of the histogram comparisons: the only file of those that calls the crate
//! under test.

use std::hint::black_box;

use hist::codec::block;
use hist::codec::frame::{self, FrameUnit, SeriesMeta, Temporality};
use hist::{
    Accumulator, Bracket, CumulativeHistogram, Histogram, Recorder, Scheme, SharedRecorder,
};

use crate::accuracy::{BracketCheck, QuantileAnswers, nearest_rank};
use crate::bytes::{FormatSize, for_each_stored, raw_and_zstd};
use crate::data::Values;
use crate::merge::merge_all;
use crate::quantile::query_quantiles;
use crate::record::SUM_MIN_MAX;
use crate::rounds::{BenchContender, for_each_value};
use crate::threads::SharedContender;

const RECORDER: &str = "topdeck, Recorder";
const HANDLE: &str = "topdeck, SharedRecorder, handle";
const THREAD_LOCAL: &str = "topdeck, SharedRecorder, thread-local";
/// Recorder rows with a target, on one thread and on two.
pub(crate) const RECORDERS: [&str; 3] = [RECORDER, HANDLE, THREAD_LOCAL];
pub(crate) const SHARED: [&str; 2] = [HANDLE, THREAD_LOCAL];
/// The row that other merges are compared with.
pub(crate) const MERGE_STORED: &str = "topdeck, Accumulator, from bytes";
/// The row of the block format.
pub(crate) const BLOCK: &str = "topdeck block of 360 frames";
/// Maximum error of a value reconstructed from its bucket.
pub(crate) const ERROR: &str = "1.08 %";
const MEANING: SeriesMeta =
    SeriesMeta { unit: FrameUnit::Nanoseconds, temporality: Temporality::Delta };
pub(crate) const QUANTILE: &str = "topdeck, Histogram";
pub(crate) const QUANTILE_CACHED: &str = "topdeck, Cumulative (cached)";

/// Recording of one value.
pub(crate) fn record_contenders(values: &Values) -> Vec<BenchContender<'_>> {
    let whole = &values.nanoseconds;
    let mut recorder = Recorder::new();
    let mut handle = SharedRecorder::new().thread_recorder();
    let mut shared = SharedRecorder::new();
    let mut histogram = Histogram::default();
    vec![
        BenchContender::new(RECORDER, SUM_MIN_MAX, move || {
            for_each_value(&mut recorder, whole, |h, value| h.record(value))
        }),
        BenchContender::new(HANDLE, SUM_MIN_MAX, move || {
            for_each_value(&mut handle, whole, |h, value| h.record(value))
        }),
        BenchContender::new(THREAD_LOCAL, SUM_MIN_MAX, move || {
            for_each_value(&mut shared, whole, |h, value| h.record(value))
        }),
        BenchContender::new(
            "topdeck, Histogram (any scheme, any double)",
            SUM_MIN_MAX,
            move || for_each_value(&mut histogram, &values.reals, |h, value| h.record(value)),
        ),
    ]
}

/// Recording of one value on one of several threads.
pub(crate) fn shared_contenders() -> Vec<SharedContender> {
    let (by_handle, by_thread) = (SharedRecorder::new(), SharedRecorder::new());
    vec![
        SharedContender::new(HANDLE, SUM_MIN_MAX, move |session| {
            let mut own = by_handle.thread_recorder();
            session(&mut |values| {
                for_each_value(&mut own, &values.nanoseconds, |h, value| h.record(value));
            })
        }),
        SharedContender::new(THREAD_LOCAL, SUM_MIN_MAX, move |session| {
            let mut own = &by_thread;
            session(&mut |values| {
                for_each_value(&mut own, &values.nanoseconds, |h, value| h.record(value));
            })
        }),
    ]
}

/// Merge of a histogram into an accumulator.
pub(crate) fn merge_contenders(frames: &[Vec<u64>]) -> Vec<BenchContender<'static>> {
    let histograms: Vec<Histogram> = frames.iter().map(|frame| histogram(frame)).collect();
    let stored: Vec<Vec<u8>> = histograms.iter().map(encode).collect();
    let (also, too) = (stored.clone(), histograms.clone());
    let accumulator = || Accumulator::new(Scheme::default());
    let (mut from_bytes, mut from_memory, mut decoded) =
        (accumulator(), accumulator(), accumulator());
    let mut plain = Histogram::default();
    vec![
        BenchContender::new(MERGE_STORED, SUM_MIN_MAX, move || {
            merge_all(&mut from_bytes, &stored, |sum, bytes| {
                sum.add_frame(bytes).expect("own bytes")
            })
        }),
        BenchContender::new("topdeck, Accumulator", SUM_MIN_MAX, move || {
            merge_all(&mut from_memory, &histograms, |sum, one| {
                sum.add(one).expect("equal schemes")
            })
        }),
        BenchContender::new("topdeck, Accumulator, decode then add", SUM_MIN_MAX, move || {
            merge_all(&mut decoded, &also, |sum, bytes| {
                let (one, _) = frame::decode(bytes).expect("own bytes");
                sum.add(&one).expect("equal schemes");
            })
        }),
        BenchContender::new("topdeck, Histogram into Histogram", SUM_MIN_MAX, move || {
            merge_all(&mut plain, &too, |sum, one| sum.merge(one).expect("equal schemes"))
        }),
    ]
}

/// Quantile queries.
pub(crate) fn quantile_contenders(values: &[u64]) -> Vec<BenchContender<'static>> {
    let mut histogram = histogram(values);
    let mut cumulative = CumulativeHistogram::new(&histogram);
    vec![
        BenchContender::new(QUANTILE, "bracket", move || {
            query_quantiles(&mut histogram, |h, q| h.quantile(q))
        }),
        BenchContender::new(QUANTILE_CACHED, "bracket", move || {
            query_quantiles(&mut cumulative, |h, q| h.quantile(q))
        }),
    ]
}

fn histogram(values: &[u64]) -> Histogram {
    let mut recorder = Recorder::new();
    values.iter().for_each(|&value| recorder.record(value));
    recorder.snapshot()
}

fn encode(histogram: &Histogram) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(histogram, MEANING, &mut bytes);
    bytes
}

/// Encoded sizes of a series.
pub(crate) fn format_sizes(frames: &[Vec<u64>]) -> Vec<FormatSize> {
    let histograms: Vec<Histogram> = frames.iter().map(|frame| histogram(frame)).collect();
    let stored: Vec<Vec<u8>> = histograms.iter().map(encode).collect();
    let block = encode_block(&histograms);
    let (decoded, _) = block::decode(&block).expect("own bytes");
    assert!(decoded == histograms, "BUG: a decoded block differs from its input");
    let mut rows = vec![FormatSize::new(BLOCK, SUM_MIN_MAX, ERROR, block.len())];
    rows.extend(raw_and_zstd("topdeck frame", SUM_MIN_MAX, ERROR, &stored));
    rows
}

/// Encoding and decoding of the frames of a series.
pub(crate) fn coding_contenders(frames: &[Vec<u64>]) -> Vec<BenchContender<'static>> {
    let histograms: Vec<Histogram> = frames.iter().map(|frame| histogram(frame)).collect();
    let stored: Vec<Vec<u8>> = histograms.iter().map(encode).collect();
    let (stored_block, also) = (encode_block(&histograms), encode_block(&histograms));
    let (count, one_by_one) = (frames.len(), histograms.clone());
    let mut sum = Accumulator::new(Scheme::default());
    vec![
        BenchContender::new("topdeck, encode", "frame", move || {
            for_each_stored(&one_by_one, |one| {
                black_box(encode(one));
            })
        }),
        BenchContender::new("topdeck, decode", "frame", move || {
            for_each_stored(&stored, |bytes| {
                black_box(frame::decode(bytes).expect("own bytes"));
            })
        }),
        BenchContender::new("topdeck, encode", "block of 360", move || {
            black_box(encode_block(black_box(&histograms)));
            count as u64
        }),
        BenchContender::new("topdeck, decode", "block of 360", move || {
            black_box(block::decode(black_box(&stored_block)).expect("own bytes"));
            count as u64
        }),
        BenchContender::new("topdeck, add to an Accumulator", "block of 360", move || {
            block::merge_into(black_box(&also), 0..count, &mut sum).expect("own bytes");
            count as u64
        }),
    ]
}

fn encode_block(histograms: &[Histogram]) -> Vec<u8> {
    let mut bytes = Vec::new();
    block::encode(histograms, MEANING, &mut bytes).expect("frames of one series make a block");
    bytes
}

/// Maximum error of a value reconstructed from its bucket.
pub(crate) fn relative_error() -> f64 {
    Scheme::default().relative_error().expect("the default scheme bounds it")
}

/// Answers to be compared with the exact values.
pub(crate) fn quantile_answers(values: &[u64]) -> QuantileAnswers {
    let histogram = histogram(values);
    QuantileAnswers::new("topdeck", |q| histogram.quantile(q).expect("not empty").estimate)
}

/// Brackets that must contain the exact value, from the sorted values.
pub(crate) fn bracket_checks(sorted: &[u64]) -> Vec<BracketCheck> {
    let histogram = histogram(sorted);
    let cumulative = CumulativeHistogram::new(&histogram);
    let mut all = Vec::new();
    let mut check = |question: String, contains_truth| {
        all.push(BracketCheck { question, contains_expected: contains_truth });
    };
    let evenly = (0..=10_000).map(|i| f64::from(i) / 1e4);
    for q in evenly.chain([0.5, 0.9, 0.99, 0.999, 0.9999, 1.0]) {
        let truth = nearest_rank(sorted, q) as f64;
        let answers = [histogram.quantile(q), cumulative.quantile(q)];
        let held = answers.iter().all(|one| one.is_some_and(|one| one.contains(truth)));
        check(format!("quantile {q}: {truth}, {answers:?}"), held);
    }
    // Exact: the sum of 10^7 values of at most one hour is below 2^66.
    let sum: u128 = sorted.iter().map(|&value| u128::from(value)).sum();
    let n = sorted.len() as f64;
    let (least, greatest) = (sorted[0] as f64, sorted[sorted.len() - 1] as f64);
    let exactly = |answer: Option<Bracket>, truth| answer == Some(Bracket::exact(truth));
    check("count".to_owned(), histogram.count() == sorted.len() as u64);
    check("sum".to_owned(), histogram.sum().contains(sum as f64));
    check("min".to_owned(), exactly(histogram.min(), least));
    check("max".to_owned(), exactly(histogram.max(), greatest));
    check("mean".to_owned(), histogram.mean().is_some_and(|mean| mean.contains(sum as f64 / n)));
    all
}
