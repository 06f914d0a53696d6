//! Storage of one series for an hour: 360 frames, one every ten seconds.
//!
//! The formats are compared with a lower bound: an encoder that knows only the rate of each bucket
//! needs on average at least the entropy of the counts.

use std::collections::BTreeMap;
use std::hint::black_box;

use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use sketches_ddsketch::DDSketch;

use crate::Effort;
use crate::data::LatencySeries;
use crate::floor::floors;
use crate::merge;
use crate::record::{NO_STATISTICS, SUM_MIN_MAX};
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples, number};
use crate::rounds::{BenchContender, Passes, measure};
use crate::topdeck;

/// Values per frame, and number of hosts averaged: hosts differ less if frames are larger.
const SIZES: [(usize, u64); 4] = [(50, 8), (200, 8), (1000, 8), (10_000, 2)];
/// The size with a target; encoding and decoding are timed with its frames.
const SIZE: usize = 1000;
const LIMIT_BYTES: f64 = 110.0;
const LIMIT_PER_CENT: f64 = 1.08;
const ZSTD_LEVEL: i32 = 3;

const METHOD: &str = "Mean bytes per frame over all frames of several hosts. An hour of a host \
                      is 360 frames. The logarithm of the median of frame *t* is that of the \
                      host, N(ln 5 ms, 0.5), plus a random walk with steps N(0, 0.01) plus 0.1 · \
                      sin(2π*t*/360); values are lognormal around it with σ = 0.85, in integer \
                      nanoseconds. The block and the rows with zstd encode all 360 frames of a \
                      host together. Only rows with exact sum, min and max store the same \
                      information; the error is the maximum error of a value reconstructed from \
                      its bucket.\n\nThe floor is the entropy of a Poisson count with the rate \
                      *n* times the probability of a bucket, summed over the buckets of \
                      topdeck's default grid. “Frame's own rate” uses the true distribution of \
                      each frame, which no encoder knows; “pooled rate” uses the mean rates over \
                      the 360 frames of a block, which an encoder could store once. Neither \
                      includes sum, min and max: “exact sum, min, max” is their additional \
                      entropy, given the buckets (min and max uniform within their buckets, the \
                      sum normal).";

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let sizes = if effort.quick { &SIZES[..3] } else { &SIZES[..] };
    let columns: Vec<Vec<FormatSize>> = sizes
        .iter()
        .map(|&(size, hosts)| mean_over_hosts(size, if effort.quick { 1 } else { hosts }))
        .collect();
    let mut header = vec!["".to_owned(), "keeps".to_owned(), "error".to_owned()];
    header.extend(sizes.iter().map(|(size, _)| format!("n = {size}")));
    let caption = "Bytes per frame by values per frame.".to_owned();
    let mut table = ReportTable { caption, header, text_columns: 3, rows: Vec::new(), plot: None };
    for (at, row) in columns[0].iter().enumerate() {
        let mut cells = vec![row.name.clone(), row.extras.to_owned(), row.error.to_owned()];
        cells.extend(columns.iter().map(|column| number(column[at].bytes)));
        table.rows.push(cells);
    }
    let at_size = sizes.iter().position(|&(size, _)| size == SIZE).expect("SIZE is one of SIZES");
    let speed = coding_speed(effort);
    let sizes_as_samples = |(column, &(size, _)): (&Vec<FormatSize>, &(usize, u64))| {
        (format!("n = {size}, bytes"), column.iter().map(FormatSize::as_samples).collect())
    };
    let mut samples: Vec<_> = columns.iter().zip(sizes).map(sizes_as_samples).collect();
    samples.push((format!("n = {SIZE}, ns per frame"), speed.clone()));
    ReportSection {
        name: "bytes",
        title: "Stored bytes",
        method: METHOD.to_owned(),
        targets: targets(&columns[at_size]),
        tables: vec![table, speed_table(&speed)],
        samples,
    }
}

/// Mean size in one format.
pub(crate) struct FormatSize {
    pub(crate) name: String,
    pub(crate) extras: &'static str,
    pub(crate) error: &'static str,
    /// Bytes per frame.
    pub(crate) bytes: f64,
}

impl FormatSize {
    /// Computes a row from the bytes of all frames of a series.
    pub(crate) fn new(
        name: &str,
        keeps: &'static str,
        error: &'static str,
        total_bytes: usize,
    ) -> FormatSize {
        let bytes = total_bytes as f64 / LatencySeries::FRAMES as f64;
        FormatSize { name: name.to_owned(), extras: keeps, error, bytes }
    }

    fn as_samples(&self) -> Samples {
        Samples { name: self.name.clone(), remark: self.extras, values: vec![self.bytes] }
    }
}

fn targets(rows: &[FormatSize]) -> Vec<ReportTarget> {
    let block = rows.iter().find(|row| row.name == topdeck::BLOCK).map(|row| row.bytes);
    let size = format!("stored bytes per frame, block of 360, n = {SIZE}");
    // The bound is 1.0830 %, usually written as 1.08, also in the target.
    let error = (1e4 * topdeck::relative_error()).round() / 100.0;
    vec![
        ReportTarget::at_most(&size, LIMIT_BYTES, "B", block),
        ReportTarget::at_most("error of a stored value, worst", LIMIT_PER_CENT, "%", Some(error)),
    ]
}

fn speed_table(rows: &[Samples]) -> ReportTable {
    let caption = format!(
        "CPU time of encoding and decoding, nanoseconds per frame of n = {SIZE}: median \
         (min–max)."
    );
    ReportTable::of_samples(&caption, "unit of work", &[("ns per frame", rows)])
}

fn coding_speed(effort: &Effort) -> Vec<Samples> {
    let series = LatencySeries::new(1, SIZE);
    let passes = Passes::Milliseconds(if effort.quick { 5 } else { 30 });
    let mut contenders = topdeck::coding_contenders(&series.frames);
    contenders.extend(peer_coding(&series.frames));
    measure(&mut contenders, effort.rounds, passes)
}

/// Runs `work` on each element of `stored`.
pub(crate) fn for_each_stored<S>(stored: &[S], mut work: impl FnMut(&S)) -> u64 {
    stored.iter().for_each(|one| work(black_box(one)));
    stored.len() as u64
}

fn peer_coding(frames: &[Vec<u64>]) -> Vec<BenchContender<'static>> {
    let sketches: Vec<DDSketch> = frames.iter().map(|frame| merge::ddsketch(frame)).collect();
    let sketch_bytes: Vec<Vec<u8>> = sketches.iter().map(DDSketch::to_java_bytes).collect();
    let hdrs: Vec<Hdr<u64>> = frames.iter().map(|frame| merge::hdr(frame)).collect();
    let hdr_bytes: Vec<Vec<u8>> = hdrs.iter().map(deflated).collect();
    let mut deserializer = Deserializer::new();
    vec![
        BenchContender::new("sketches-ddsketch, encode", "frame", move || {
            for_each_stored(&sketches, |one| {
                black_box(one.to_java_bytes());
            })
        }),
        BenchContender::new("sketches-ddsketch, decode", "frame", move || {
            for_each_stored(&sketch_bytes, |bytes| {
                black_box(DDSketch::from_java_bytes(bytes).expect("own bytes"));
            })
        }),
        BenchContender::new("hdrhistogram, 2 digits, V2 + deflate, encode", "frame", move || {
            for_each_stored(&hdrs, |one| {
                black_box(deflated(one));
            })
        }),
        BenchContender::new("hdrhistogram, 2 digits, V2 + deflate, decode", "frame", move || {
            for_each_stored(&hdr_bytes, |bytes| {
                let one: Hdr<u64> = deserializer.deserialize(&mut &bytes[..]).expect("own bytes");
                black_box(one);
            })
        }),
    ]
}

fn deflated(histogram: &Hdr<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).expect("memory takes all bytes");
    bytes
}

fn mean_over_hosts(size: usize, hosts: u64) -> Vec<FormatSize> {
    let mut sum: Vec<FormatSize> = Vec::new();
    for host in 1..=hosts {
        let rows = series_sizes(&LatencySeries::new(host, size));
        match sum.is_empty() {
            true => sum = rows,
            false => sum.iter_mut().zip(rows).for_each(|(sum, row)| sum.bytes += row.bytes),
        }
    }
    sum.iter_mut().for_each(|row| row.bytes /= hosts as f64);
    sum
}

fn series_sizes(series: &LatencySeries) -> Vec<FormatSize> {
    let mut rows = topdeck::format_sizes(&series.frames);
    rows.extend(floors(series).map(|(name, bytes)| FormatSize {
        name: format!("floor, exponential scale 5: {name}"),
        extras: NO_STATISTICS,
        error: topdeck::ERROR,
        bytes,
    }));
    rows.extend(hdr(&series.frames));
    let circllhist: Vec<Vec<u8>> =
        series.frames.iter().map(|frame| circllhist_bytes(frame)).collect();
    rows.extend(raw_and_zstd("circllhist", NO_STATISTICS, "4.76 %", &circllhist));
    let ddsketch: Vec<Vec<u8>> =
        series.frames.iter().map(|frame| merge::ddsketch(frame).to_java_bytes()).collect();
    rows.extend(raw_and_zstd("DDSketch, Java format", SUM_MIN_MAX, "1 %", &ddsketch));
    rows
}

/// Each frame alone, and all frames concatenated through zstd.
pub(crate) fn raw_and_zstd(
    name: &str,
    keeps: &'static str,
    error: &'static str,
    frames: &[Vec<u8>],
) -> [FormatSize; 2] {
    let block = frames.concat();
    let zstd = zstd::bulk::compress(&block, ZSTD_LEVEL).expect("memory takes all bytes");
    [
        FormatSize::new(&format!("{name}, frame by frame"), keeps, error, block.len()),
        FormatSize::new(&format!("{name}, 360 frames through zstd 3"), keeps, error, zstd.len()),
    ]
}

fn hdr(frames: &[Vec<u64>]) -> Vec<FormatSize> {
    const ERROR: &str = "0.39 %";
    let histograms: Vec<_> = frames.iter().map(|frame| merge::hdr(frame)).collect();
    let plain: Vec<Vec<u8>> = histograms.iter().map(merge::hdr_bytes).collect();
    let total = histograms.iter().map(|one| deflated(one).len()).sum();
    let mut rows = vec![FormatSize::new(
        "HDR V2 + deflate, 2 digits, frame by frame",
        NO_STATISTICS,
        ERROR,
        total,
    )];
    rows.extend(raw_and_zstd("HDR V2, 2 digits", NO_STATISTICS, ERROR, &plain));
    rows
}

/// Binary format of circllhist, implemented here because openhistogram 0.1.1 omits bytes of counts
/// above 255.
fn circllhist_bytes(frame: &[u64]) -> Vec<u8> {
    let mut bins = BTreeMap::<(i8, i8), u64>::new();
    for &nanoseconds in frame {
        // Two leading digits d and the exponent p of the first: value = d/10 · 10^p seconds.
        let power = nanoseconds.ilog10() as i8;
        let digits = match power {
            0 => nanoseconds * 10,
            _ => nanoseconds / 10u64.pow(power as u32 - 1),
        };
        *bins.entry((power - 9, digits as i8)).or_default() += 1;
    }
    let mut bytes = (bins.len() as u16).to_be_bytes().to_vec();
    for ((power, digits), count) in bins {
        let significant = count.to_be_bytes();
        let significant = &significant[count.leading_zeros() as usize / 8..];
        bytes.extend([digits as u8, power as u8, significant.len() as u8 - 1]);
        bytes.extend(significant);
    }
    bytes
}
